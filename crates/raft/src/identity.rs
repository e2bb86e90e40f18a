//! Who this member is: the numbers every member computes alike, and the file that ties a data
//! directory to one of them.
//!
//! Always true: the identity file is written whole, right after the log was begun, and is never
//! changed. A directory of another member, another cluster or a newer format is refused
//! before a byte of it is read as data.

use meerkat_types::{ClusterId, MemberId};
use sha1::{Digest, Sha1};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the whole data directory's layout.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub cluster: ClusterId,
    pub member: MemberId,
    /// Made at random with the directory: tells a wiped disk from the one its peers knew.
    pub incarnation: u64,
    /// It joined a running cluster, and so never begins one, even before it was first reached.
    pub joined: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is damaged ({what}); restore the directory from a backup")]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{path} was written in format {found}, and this version knows formats up to {FORMAT_VERSION}; start the newer version on it"
    )]
    NewerFormat { path: PathBuf, found: u32 },
    #[error(
        "{path} belongs to member {found:?}, not to {expected:?}; point --data-dir at this member's own directory"
    )]
    OtherMember { path: PathBuf, found: String, expected: String },
    #[error(
        "{path} belongs to member {found} of cluster {found_cluster}, but --initial-cluster and --initial-cluster-token describe cluster {expected_cluster}; use the directory of that cluster, or an empty one"
    )]
    OtherCluster { path: PathBuf, found: MemberId, found_cluster: ClusterId, expected_cluster: ClusterId },
}

/// A member's id at bootstrap: from its sorted peer URLs and the cluster's token, so that every
/// member computes the same set from the same `--initial-cluster`.
pub fn bootstrap_member_id(peer_urls: &[String], token: &str) -> MemberId {
    let mut urls: Vec<&str> = peer_urls.iter().map(String::as_str).collect();
    urls.sort_unstable();
    let mut hash = Sha1::new();
    for url in urls {
        hash.update(url.as_bytes());
    }
    hash.update(token.as_bytes());
    MemberId(first_eight(hash))
}

/// The id of a member added at run time: from its sorted peer URLs and the time. `taken` ids, present
/// or past, are passed over, so that an id never comes back.
pub fn added_member_id(
    peer_urls: &[String],
    unix_seconds: u64,
    taken: impl Fn(MemberId) -> bool,
) -> MemberId {
    let mut seconds = unix_seconds;
    loop {
        let id = bootstrap_member_id(peer_urls, &seconds.to_string());
        // Zero means "no member" on the wire.
        if id.0 != 0 && !taken(id) {
            return id;
        }
        seconds = seconds.wrapping_add(1);
    }
}

/// The cluster's id: from the sorted ids of its first members.
pub fn bootstrap_cluster_id(members: &[MemberId]) -> ClusterId {
    ClusterId(first_eight(hash_of(members)))
}

/// The id of a cluster that begins with a restored state: from its members and that state, so that
/// members with different beginnings are strangers to each other.
pub fn restored_cluster_id(members: &[MemberId], digest: &[u8]) -> ClusterId {
    let mut hash = hash_of(members);
    hash.update(digest);
    ClusterId(first_eight(hash))
}

fn hash_of(members: &[MemberId]) -> Sha1 {
    let mut ids = members.to_vec();
    ids.sort_unstable();
    let mut hash = Sha1::new();
    for id in ids {
        hash.update(id.0.to_be_bytes());
    }
    hash
}

fn first_eight(hash: Sha1) -> u64 {
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

impl Identity {
    /// Reads the identity of `member_dir`; `None` for a directory that never held a member.
    pub fn read(member_dir: &Path) -> Result<Option<Identity>, IdentityError> {
        let path = member_dir.join("identity");
        match fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text).map(Some),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IdentityError::Io { path, source }),
        }
    }

    /// Writes the identity of a new directory, durably.
    pub fn create(&self, member_dir: &Path) -> Result<(), IdentityError> {
        let path = member_dir.join("identity");
        write_durably(member_dir, "identity", self.to_text().as_bytes())
            .map_err(|source| IdentityError::Io { path, source })
    }

    fn to_text(&self) -> String {
        let body = format!(
            "meerkat-format {FORMAT_VERSION}\nname {}\ncluster {:016x}\nmember {:016x}\nincarnation {:016x}\n",
            self.name, self.cluster.0, self.member.0, self.incarnation
        );
        let joined = if self.joined { "joined yes\n" } else { "" };
        let body = format!("{body}{joined}");
        let checksum = crc32c::crc32c(body.as_bytes());
        format!("{body}checksum {checksum:08x}\n")
    }
}

/// Replaces `dir/name` with `content` so that a crash leaves the old file or the new one, whole.
pub(crate) fn write_durably(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    // The rename itself is only durable once the directory is.
    sync_dir(dir)
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn parse(path: &Path, text: &str) -> Result<Identity, IdentityError> {
    let damaged = |what: &str| IdentityError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let format: u32 = field(text, "meerkat-format")
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| damaged("no format line"))?;
    // Before the checksum: a newer format may sum up differently.
    if format > FORMAT_VERSION {
        return Err(IdentityError::NewerFormat { path: path.to_owned(), found: format });
    }
    let (body, checksum) = text.split_once("checksum ").ok_or_else(|| damaged("no checksum line"))?;
    if format!("{:08x}", crc32c::crc32c(body.as_bytes())) != checksum.strip_suffix('\n').unwrap_or_default() {
        return Err(damaged("its checksum does not match"));
    }
    let number = |name: &str| {
        field(text, name)
            .and_then(|value| u64::from_str_radix(value, 16).ok())
            .ok_or_else(|| damaged("a number is missing"))
    };
    Ok(Identity {
        name: field(text, "name").ok_or_else(|| damaged("no name"))?.to_owned(),
        cluster: ClusterId(number("cluster")?),
        member: MemberId(number("member")?),
        incarnation: number("incarnation")?,
        joined: field(body, "joined").is_some(),
    })
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            name: "m 1".into(),
            cluster: ClusterId(7),
            member: MemberId(u64::MAX),
            incarnation: 3,
            joined: false,
        }
    }

    #[test]
    fn an_identity_reads_back_as_written() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(Identity::read(dir.path()).expect("reads"), None);
        identity().create(dir.path()).expect("writes");
        assert_eq!(Identity::read(dir.path()).expect("reads"), Some(identity()));
        let joined = Identity { joined: true, ..identity() };
        joined.create(dir.path()).expect("writes");
        assert_eq!(Identity::read(dir.path()).expect("reads"), Some(joined));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("temp dir");
        let text = identity().to_text().replace("meerkat-format 1", "meerkat-format 9");
        fs::write(dir.path().join("identity"), text).expect("writes");
        let error = Identity::read(dir.path()).expect_err("refused");
        assert!(matches!(error, IdentityError::NewerFormat { found: 9, .. }), "{error}");
    }

    #[test]
    fn any_damaged_byte_is_found() {
        let dir = tempfile::tempdir().expect("temp dir");
        let text = identity().to_text().into_bytes();
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            fs::write(dir.path().join("identity"), damaged).expect("writes");
            assert_ne!(Identity::read(dir.path()).ok().flatten(), Some(identity()), "byte {at}");
        }
    }

    #[test]
    fn the_id_of_an_added_member_is_never_one_that_was_used() {
        let urls = ["http://a:1".to_owned()];
        let first = added_member_id(&urls, 7, |_| false);
        assert_eq!(first, bootstrap_member_id(&urls, "7"));
        assert_eq!(added_member_id(&urls, 7, |id| id == first), bootstrap_member_id(&urls, "8"));
    }

    #[test]
    fn ids_depend_on_urls_and_token_but_not_on_order() {
        let urls = |list: &[&str]| list.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let one = bootstrap_member_id(&urls(&["http://a:1", "http://b:2"]), "t");
        assert_eq!(one, bootstrap_member_id(&urls(&["http://b:2", "http://a:1"]), "t"));
        assert_ne!(one, bootstrap_member_id(&urls(&["http://a:1", "http://b:2"]), "u"));
        assert_eq!(
            bootstrap_cluster_id(&[MemberId(1), MemberId(2)]),
            bootstrap_cluster_id(&[MemberId(2), MemberId(1)])
        );
    }
}
