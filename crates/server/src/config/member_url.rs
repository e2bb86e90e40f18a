//! An address of a member as its flags and the member list spell it.
//!
//! Always plain `http://host:port`, with the port written out and no path, so that the text given
//! on one member's command line equals the text computed on another's: member ids derive from it.
//! Never build the text of an address by hand; print this type.

use std::fmt;

use url::Url;

use super::ConfigError;

/// Where a member listens or is to be found. Host names are kept as names: they are resolved when
/// a connection is made, not when the flag is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberUrl {
    host: String,
    port: u16,
}

impl MemberUrl {
    pub fn parse(text: &str) -> Result<MemberUrl, ConfigError> {
        let trimmed = text.trim();
        let (scheme, rest) = trimmed.split_once("://").unwrap_or(("", trimmed));
        match scheme {
            "http" => {}
            "https" | "unixs" => return Err(ConfigError::TlsUrl(trimmed.to_owned())),
            "unix" => return Err(ConfigError::UnixUrl(trimmed.to_owned())),
            _ => return Err(ConfigError::UrlScheme(trimmed.to_owned())),
        }
        if rest.contains(['/', '?', '#']) {
            return Err(ConfigError::UrlPath(trimmed.to_owned()));
        }
        let bad_address = || ConfigError::UrlAddress(trimmed.to_owned());
        let parsed = Url::parse(trimmed).map_err(|_| bad_address())?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad_address());
        }
        // The url crate hides a port that is the scheme's own, so look at what was written.
        let (_, port) = rest.rsplit_once(':').ok_or_else(bad_address)?;
        let port = port.parse::<u16>().map_err(|_| bad_address())?;
        let host = parsed.host_str().ok_or_else(bad_address)?.to_owned();
        Ok(MemberUrl { host, port })
    }

    /// A comma-separated list, sorted as etcd sorts it. Empty text is an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<MemberUrl>, ConfigError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut urls = parts.map(MemberUrl::parse).collect::<Result<Vec<_>, _>>()?;
        urls.sort();
        Ok(urls)
    }

    /// The host as written; an IPv6 address keeps its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as resolvers and dialers take it.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether a listener may bind it: a name other than `localhost` could mean any interface.
    pub(super) fn can_be_bound(&self) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        self.host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok()
    }

    /// Whether two spellings are one address without asking a resolver.
    pub(super) fn is_same_place(&self, other: &MemberUrl) -> bool {
        let plain = |host: &str| if host == "localhost" { "127.0.0.1".to_owned() } else { host.to_owned() };
        self.port == other.port && plain(&self.host) == plain(&other.host)
    }
}

impl fmt::Display for MemberUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
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
        check("http://[::1]:2379", "http://[::1]:2379");
        check("http://0.0.0.0:2379", "http://0.0.0.0:2379");
    }

    #[test]
    fn what_is_not_a_host_and_port_is_refused() {
        check("http://127.0.0.1", "URL address does not have the form \"host:port\": http://127.0.0.1");
        check("http://:2379", "URL address does not have the form \"host:port\": http://:2379");
        check("http://a:b@c:1", "URL address does not have the form \"host:port\": http://a:b@c:1");
        check("http://a:70000", "URL address does not have the form \"host:port\": http://a:70000");
        check("http://127.0.0.1:2379/x", "URL must not contain a path: http://127.0.0.1:2379/x");
        check("127.0.0.1:2379", "URL scheme must be http, https, unix, or unixs: 127.0.0.1:2379");
        check("ftp://a:1", "URL scheme must be http, https, unix, or unixs: ftp://a:1");
    }

    #[test]
    fn what_this_version_cannot_serve_is_said_and_not_ignored() {
        check("https://a:1", "TLS is not supported in this version: https://a:1 (use http://)");
        check("unix://a:1", "unix sockets are not supported in this version: unix://a:1 (use http://)");
    }

    #[test]
    fn a_list_is_sorted_and_may_be_empty() {
        let list = MemberUrl::parse_list("http://b:1,http://a:2").expect("two good addresses");
        assert_eq!(list.iter().map(|u| u.to_string()).collect::<Vec<_>>(), ["http://a:2", "http://b:1"]);
        assert_eq!(MemberUrl::parse_list(""), Ok(vec![]));
    }
}
