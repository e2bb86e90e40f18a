//! Where a cluster is to be found, as an operator writes it.
//!
//! `host:port` and `http://host:port` are one place, but the text is kept: outputs name an endpoint
//! as it was given. A TLS endpoint is refused here, so that nothing is ever sent in clear by
//! mistake.

use std::fmt;

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    written: String,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, Failure> {
        let written = text.trim();
        let refused = |why: &str| Failure::bad_arguments(format!("endpoint {written:?}: {why}"));
        let address = match written.split_once("://") {
            None => written,
            Some(("http", address)) => address,
            Some(("https", _)) => return Err(refused("TLS is not supported in this version")),
            Some(_) => return Err(refused("only http:// is supported")),
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(|| refused("expected host:port"))?;
        if host.is_empty() || port.trim_end_matches('/').parse::<u16>().is_err() {
            return Err(refused("expected host:port"));
        }
        Ok(Endpoint { written: written.to_owned() })
    }

    /// A comma-separated list with at least one entry.
    pub fn parse_list(text: &str) -> Result<Vec<Endpoint>, Failure> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let endpoints = parts.map(Endpoint::parse).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(Failure::bad_arguments("no endpoints given"));
        }
        Ok(endpoints)
    }

    /// `host:port`, to dial.
    pub fn authority(&self) -> &str {
        self.written.trim_start_matches("http://").trim_end_matches('/')
    }

    /// `http://host:port`, as HTTP clients want it.
    pub fn uri(&self) -> String {
        format!("http://{}", self.authority())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_keeps_its_text_and_knows_its_address() {
        for text in ["127.0.0.1:2379", "http://127.0.0.1:2379", "http://127.0.0.1:2379/"] {
            let endpoint = Endpoint::parse(text).expect("a good endpoint");
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.authority(), "127.0.0.1:2379");
        }
    }

    #[test]
    fn what_cannot_be_dialled_is_refused() {
        for text in ["https://a:1", "unix://a:1", "a", ":1", "a:b", "http://a"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        assert!(Endpoint::parse_list(" , ").is_err());
    }
}
