//! An address of a member as its flags and the member list spell it.
//!
//! Either `http(s)://host:port`, with the port written out and no path, or `unix(s)://path`. The text
//! given on one member's command line equals the text computed on another's: member ids derive from
//! it. Never build the text of an address by hand; print this type.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::ConfigError;

/// How what is sent to an address is protected on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Plain,
    Tls,
}

/// Where a member listens or is to be found. Host names are kept as names: they are resolved when
/// a connection is made, not when the flag is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberUrl {
    transport: Transport,
    place: UrlPlace,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum UrlPlace {
    Tcp {
        host: String,
        port: u16,
    },
    /// A socket in the file system, as written: relative to where the process was started, unless it
    /// begins with a slash.
    Unix {
        path: String,
    },
}

impl MemberUrl {
    pub fn parse(text: &str) -> Result<MemberUrl, ConfigError> {
        let trimmed = text.trim();
        let (scheme, rest) = trimmed.split_once("://").unwrap_or(("", trimmed));
        let transport = match scheme {
            "http" | "unix" => Transport::Plain,
            "https" | "unixs" => Transport::Tls,
            _ => return Err(ConfigError::UrlScheme(trimmed.to_owned())),
        };
        let bad_address = || ConfigError::UrlAddress(trimmed.to_owned());
        if scheme.starts_with("unix") {
            if rest.is_empty() {
                return Err(bad_address());
            }
            return Ok(MemberUrl { transport, place: UrlPlace::Unix { path: rest.to_owned() } });
        }
        if rest.contains(['/', '?', '#']) {
            return Err(ConfigError::UrlPath(trimmed.to_owned()));
        }
        let parsed = Url::parse(trimmed).map_err(|_| bad_address())?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad_address());
        }
        // The url crate hides a port that is the scheme's own, so look at what was written.
        let (_, port) = rest.rsplit_once(':').ok_or_else(bad_address)?;
        let port = port.parse::<u16>().map_err(|_| bad_address())?;
        let host = parsed.host_str().ok_or_else(bad_address)?.to_owned();
        Ok(MemberUrl { transport, place: UrlPlace::Tcp { host, port } })
    }

    /// A comma-separated list, sorted as etcd sorts it. Empty text is an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<MemberUrl>, ConfigError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut urls = parts.map(MemberUrl::parse).collect::<Result<Vec<_>, _>>()?;
        urls.sort();
        Ok(urls)
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Host, as written (an IPv6 address keeps its brackets), and port; none for a socket in the
    /// file system.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        match &self.place {
            UrlPlace::Tcp { host, port } => Some((host, *port)),
            UrlPlace::Unix { .. } => None,
        }
    }

    /// The file of a socket in the file system.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match &self.place {
            UrlPlace::Tcp { .. } => None,
            UrlPlace::Unix { path } => Some(PathBuf::from(path)),
        }
    }

    /// The host without the brackets of an IPv6 address.
    pub fn bare_host(&self) -> Option<&str> {
        self.host_and_port().map(|(host, _)| host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// What follows the scheme: `host:port`, or a path.
    pub fn address(&self) -> String {
        match &self.place {
            UrlPlace::Tcp { host, port } => format!("{host}:{port}"),
            UrlPlace::Unix { path } => path.clone(),
        }
    }

    /// Whether a listener may bind it: a name other than `localhost` could mean any interface.
    pub fn can_be_bound(&self) -> bool {
        self.bare_host().is_none_or(|host| host == "localhost" || host.parse::<std::net::IpAddr>().is_ok())
    }

    /// Whether two spellings are one address without asking a resolver.
    pub(super) fn is_same_place(&self, other: &MemberUrl) -> bool {
        let plain = |url: &MemberUrl| match &url.place {
            UrlPlace::Tcp { host, port } if host == "localhost" => {
                UrlPlace::Tcp { host: "127.0.0.1".to_owned(), port: *port }
            }
            place => place.clone(),
        };
        self.transport == other.transport && plain(self) == plain(other)
    }
}

impl fmt::Display for MemberUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = match self.transport {
            Transport::Plain => "",
            Transport::Tls => "s",
        };
        match &self.place {
            UrlPlace::Tcp { host, port } => write!(f, "http{s}://{host}:{port}"),
            UrlPlace::Unix { path } => write!(f, "unix{s}://{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let got = match MemberUrl::parse(text) {
            Ok(url) => url.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected, "for {text:?}");
    }

    #[test]
    fn an_address_prints_as_it_was_written() {
        check("http://127.0.0.1:2379", "http://127.0.0.1:2379");
        check(" http://m0:80 ", "http://m0:80");
        check("https://m0:443", "https://m0:443");
        check("http://[::1]:2379", "http://[::1]:2379");
        check("http://0.0.0.0:2379", "http://0.0.0.0:2379");
        check("unix://localhost:1234", "unix://localhost:1234");
        check("unixs:///run/it.sock", "unixs:///run/it.sock");
    }

    #[test]
    fn what_is_not_a_host_and_port_is_refused() {
        check("http://127.0.0.1", "URL address does not have the form \"host:port\": http://127.0.0.1");
        check("http://:2379", "URL address does not have the form \"host:port\": http://:2379");
        check("http://a:b@c:1", "URL address does not have the form \"host:port\": http://a:b@c:1");
        check("https://a:70000", "URL address does not have the form \"host:port\": https://a:70000");
        check("http://127.0.0.1:2379/x", "URL must not contain a path: http://127.0.0.1:2379/x");
        check("127.0.0.1:2379", "URL scheme must be http, https, unix, or unixs: 127.0.0.1:2379");
        check("ftp://a:1", "URL scheme must be http, https, unix, or unixs: ftp://a:1");
        check("unix://", "URL address does not have the form \"host:port\": unix://");
    }

    #[test]
    fn a_list_is_sorted_and_may_be_empty() {
        let list = MemberUrl::parse_list("http://b:1,http://a:2").expect("two good addresses");
        assert_eq!(list.iter().map(|u| u.to_string()).collect::<Vec<_>>(), ["http://a:2", "http://b:1"]);
        assert_eq!(MemberUrl::parse_list(""), Ok(vec![]));
    }

    #[test]
    fn encrypted_and_plain_are_two_places() {
        let url = |text| MemberUrl::parse(text).expect("good");
        assert!(url("https://localhost:1").is_same_place(&url("https://127.0.0.1:1")));
        assert!(!url("https://localhost:1").is_same_place(&url("http://localhost:1")));
    }
}
