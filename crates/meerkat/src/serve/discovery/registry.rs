//! What a discovery service knows of a cluster that is still to begin, and what follows from it.
//!
//! ```text
//!   /_etcd/registry/<token>/_config/size          how many members there will be; somebody's put, beforehand
//!   /_etcd/registry/<token>/members/<member id>   name=url,… of one; its own put
//! ```
//!
//! The first so many by the revision at which they came are the cluster; whoever comes later is told that it
//! is full. Keys, values and texts are etcd's, so that members and services of either kind go together.
//!
//! Pure: what was read is handed in.

use std::fmt;

use meerkat_server::config::{Config, InitialNames, MemberUrl};

const PREFIX: &str = "/_etcd/registry";

/// Where a cluster is kept.
#[derive(Clone, Debug)]
pub struct Places {
    cluster: String,
}

impl Places {
    /// A token may be a path; as in etcd it does not lead out of where it belongs by accident.
    pub fn new(token: &str) -> Places {
        let mut parts: Vec<&str> = PREFIX.split('/').skip(1).collect();
        for part in token.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        Places { cluster: format!("/{}", parts.join("/")) }
    }

    pub fn size(&self) -> String {
        format!("{}/_config/size", self.cluster)
    }

    pub fn members(&self) -> String {
        format!("{}/members", self.cluster)
    }

    pub fn member(&self, id: impl fmt::Display) -> String {
        format!("{}/{id}", self.members())
    }
}

/// Why a member does not get into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoined {
    SizeNotFound,
    BadSize,
    Full,
    InvalidUrl,
    /// The service would not have this member, or cannot be asked as it was said.
    Refused(String),
}

impl fmt::Display for NotJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotJoined::SizeNotFound => "discovery: size key not found",
            NotJoined::BadSize => "discovery: size key is bad",
            NotJoined::Full => "discovery: cluster is full",
            NotJoined::InvalidUrl => "discovery: invalid peer URL",
            NotJoined::Refused(reason) => reason,
        })
    }
}

/// How many members there will be, by the value of that key.
pub fn size(value: Option<&[u8]>) -> Result<usize, NotJoined> {
    let value = value.ok_or(NotJoined::SizeNotFound)?;
    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
    size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size != 0).ok_or(NotJoined::BadSize)
}

/// The members that have come so far, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    members: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    came_at: i64,
    key: String,
    /// `name=url,…`
    description: String,
}

impl Registered {
    /// Takes one in, or says why it does not count.
    pub fn add(&mut self, key: &[u8], value: &[u8], came_at: i64) -> Result<(), &'static str> {
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        let (key, description) = (text(key), text(value));
        if !description.contains('=') {
            return Err("invalid peer info returned from discovery service");
        }
        if self.members.iter().any(|member| member.key == key) {
            return Err("found duplicate peer from discovery service");
        }
        self.members.push(Entry { came_at, key, description });
        self.members.sort_by_key(|member| member.came_at);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is a place for whoever has this key: its own, or one that is still free.
    pub fn has_place(&self, key: &str, size: usize) -> Result<(), NotJoined> {
        let is_in = self.members.iter().take(size).any(|member| member.key == key);
        match is_in || self.members.len() < size {
            true => Ok(()),
            false => Err(NotJoined::Full),
        }
    }

    /// The cluster, once all have come.
    pub fn cluster(&self, size: usize) -> Result<Vec<(String, MemberUrl)>, NotJoined> {
        let descriptions = self.members.iter().take(size).map(|member| member.description.as_str());
        let rows = descriptions.flat_map(|description| description.split(',')).map(str::trim);
        let parsed = rows.filter(|row| !row.is_empty()).map(|row| {
            let (name, url) = row.split_once('=').ok_or(NotJoined::InvalidUrl)?;
            Ok((name.to_owned(), MemberUrl::parse(url).map_err(|_| NotJoined::InvalidUrl)?))
        });
        let mut cluster = parsed.collect::<Result<Vec<_>, _>>()?;
        cluster.sort();
        Ok(cluster)
    }
}

/// The configuration with the cluster that came together.
pub fn begin(mut config: Config, cluster: Vec<(String, MemberUrl)>) -> Result<Config, String> {
    config.initial_cluster = cluster;
    config.initial_names = InitialNames::Agreed;
    let mut urls: Vec<&MemberUrl> = config.initial_cluster.iter().map(|(_, url)| url).collect();
    urls.sort();
    match urls.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(format!("discovery cluster {} has duplicate url", config.initial_cluster_text())),
        false => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_etcd_writes() {
        let places = Places::new("tok");
        assert_eq!(places.size(), "/_etcd/registry/tok/_config/size");
        assert_eq!(places.members(), "/_etcd/registry/tok/members");
        let id = meerkat_client::MemberId(0x0123_4567_89ab_cdef);
        assert_eq!(places.member(id), "/_etcd/registry/tok/members/123456789abcdef");
        assert_eq!(Places::new("/a//b/./c/../").members(), "/_etcd/registry/a/b/members");
    }

    #[test]
    fn a_size_is_a_number_above_zero() {
        assert_eq!(size(Some(b"3")), Ok(3));
        assert_eq!(size(None), Err(NotJoined::SizeNotFound));
        for bad in [&b"0"[..], b"-1", b"", b"three", b"3 ", b"99999999999999999999", &[0xff]] {
            assert_eq!(size(Some(bad)), Err(NotJoined::BadSize), "{bad:?}");
        }
    }

    fn registered(rows: &[(&str, &str, i64)]) -> Registered {
        let mut registered = Registered::default();
        for (key, value, came_at) in rows {
            registered.add(key.as_bytes(), value.as_bytes(), *came_at).expect("a good one");
        }
        registered
    }

    #[test]
    fn the_first_to_come_are_the_cluster() {
        let rows =
            [("c", "c=http://c:1", 9), ("a", "a=http://a:1,a=http://a:2", 7), ("b", "b=http://b:1", 8)];
        let registered = registered(&rows);
        let text = |size| {
            let cluster = registered.cluster(size).expect("good addresses");
            cluster.iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(text(2), "a=http://a:1,a=http://a:2,b=http://b:1");
        assert_eq!(text(3), "a=http://a:1,a=http://a:2,b=http://b:1,c=http://c:1");
        assert_eq!(registered.has_place("c", 2), Err(NotJoined::Full));
        assert_eq!(registered.has_place("b", 2), Ok(()), "one that comes again has its place");
        assert_eq!(registered.has_place("d", 3), Err(NotJoined::Full));
        assert_eq!(registered.has_place("d", 4), Ok(()));
        assert_eq!(Registered::default().has_place("d", 1), Ok(()));
    }

    #[test]
    fn what_is_no_member_does_not_count() {
        let mut one = registered(&[("a", "a=http://a:1", 1)]);
        assert_eq!(one.add(b"a", b"a=http://b:1", 2), Err("found duplicate peer from discovery service"));
        assert_eq!(one.add(b"b", b"", 2), Err("invalid peer info returned from discovery service"));
        assert_eq!(one.len(), 1);
        let bad = registered(&[("a", "a=ftp://a:1", 1)]);
        assert_eq!(bad.cluster(1), Err(NotJoined::InvalidUrl));
    }

    #[test]
    fn two_members_at_one_address_are_no_cluster() {
        let config = Config::from_flags(meerkat_server::config::RawFlags::default()).expect("defaults");
        let twice =
            registered(&[("a", "a=http://a:1", 1), ("b", "b=http://a:1", 2)]).cluster(2).expect("parsed");
        let reason = "discovery cluster a=http://a:1,b=http://a:1 has duplicate url";
        assert_eq!(begin(config, twice).map(|_| ()), Err(reason.to_owned()));
    }
}
