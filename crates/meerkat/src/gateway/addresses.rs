//! Addresses as the gateway takes them: `host:port`, or a URL of which only that counts.

use std::net::IpAddr;

/// A host and a port, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

impl HostPort {
    /// As Go splits them: an IPv6 address stands between brackets.
    pub fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None if host.contains([':', ']']) => return None,
            None => host,
        };
        Some(HostPort { host: bare.to_owned(), port: port.parse().ok()? })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The endpoints of a list with commas, without their schemes.
pub fn endpoints(list: &str) -> Result<Vec<HostPort>, String> {
    let endpoints = list.split(',').map(str::trim).filter(|text| !text.is_empty());
    endpoints
        .map(|text| {
            HostPort::parse(without_scheme(text)).ok_or_else(|| format!("error parsing endpoint {text:?}"))
        })
        .collect()
}

fn without_scheme(endpoint: &str) -> &str {
    let Some((_, rest)) = endpoint.split_once("://") else { return endpoint };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Whether who listens at one would hear itself when it dials the other.
pub fn is_itself(listening: &[IpAddr], dialled: IpAddr) -> bool {
    let is_own = |own: &IpAddr| *own == dialled || (own.is_unspecified() && dialled.is_loopback());
    listening.iter().any(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port_whatever_stands_around_them() {
        for (text, expected) in [
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            ("localhost:2379", "localhost:2379"),
            ("http://10.0.0.1:2379", "10.0.0.1:2379"),
            ("https://user@member.example:2379/path?x", "member.example:2379"),
            ("[::1]:2379", "[::1]:2379"),
            ("http://[::1]:2379,b:1", "[::1]:2379 b:1"),
        ] {
            let read = endpoints(text).expect(text);
            let texts: Vec<String> = read.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(" "), expected);
        }
        for text in ["127.0.0.1", "a:b", "::1:2379", "[::1:2379", "a:70000", "http://a"] {
            assert_eq!(endpoints(text), Err(format!("error parsing endpoint {text:?}")));
        }
        assert_eq!(endpoints(""), Ok(Vec::new()));
    }

    #[test]
    fn one_who_listens_everywhere_hears_itself_on_loopback() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(is_itself(&[address("127.0.0.1")], address("127.0.0.1")));
        assert!(is_itself(&[address("0.0.0.0")], address("127.0.0.1")));
        assert!(!is_itself(&[address("127.0.0.1")], address("127.0.0.2")));
        assert!(!is_itself(&[address("0.0.0.0")], address("10.0.0.1")));
    }
}
