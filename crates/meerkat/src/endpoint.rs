//! Where a cluster is to be found, as an operator writes it.
//!
//! `host:port` and `http://host:port` are one place, but the text is kept: outputs name an endpoint
//! as it was given. What is spelled `https://` is never dialled in clear, and what is spelled
//! `http://` never encrypted; without a scheme the connection's settings decide.

use std::fmt;

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    written: String,
    scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
    /// A socket in the file system.
    Unix,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, Failure> {
        let written = text.trim();
        let refused = |why: &str| Failure::bad_arguments(format!("endpoint {written:?}: {why}"));
        let (scheme, address) = match written.split_once("://") {
            None => (None, written),
            Some(("http", address)) => (Some(Scheme::Http), address),
            Some(("https", address)) => (Some(Scheme::Https), address),
            Some(("unix", "")) => return Err(refused("expected a path")),
            Some(("unix", _)) => {
                return Ok(Endpoint { written: written.to_owned(), scheme: Some(Scheme::Unix) });
            }
            Some(_) => return Err(refused("only http://, https:// and unix:// are supported")),
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(|| refused("expected host:port"))?;
        if host.is_empty() || port.trim_end_matches('/').parse::<u16>().is_err() {
            return Err(refused("expected host:port"));
        }
        Ok(Endpoint { written: written.to_owned(), scheme })
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

    /// How it must be dialled, if its text says so.
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// `host:port`, to dial.
    pub fn authority(&self) -> &str {
        let address = self.written.split_once("://").map_or(self.written.as_str(), |(_, address)| address);
        address.trim_end_matches('/')
    }

    /// `http://host:port`, as HTTP clients want it; `https://` or `unix://` only if it was written so.
    pub fn uri(&self) -> String {
        self.uri_with(self.scheme.unwrap_or(Scheme::Http))
    }

    pub fn uri_with(&self, scheme: Scheme) -> String {
        let scheme = match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Unix => return self.written.clone(),
        };
        format!("{scheme}://{}", self.authority())
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
            assert_eq!(endpoint.uri(), "http://127.0.0.1:2379");
        }
        let secure = Endpoint::parse("https://a:1/").expect("a good endpoint");
        assert_eq!((secure.uri().as_str(), secure.scheme()), ("https://a:1", Some(Scheme::Https)));
        let file = Endpoint::parse("unix:///run/a.sock").expect("a good endpoint");
        assert_eq!((file.uri().as_str(), file.scheme()), ("unix:///run/a.sock", Some(Scheme::Unix)));
        let unsaid = Endpoint::parse("a:1").expect("a good endpoint");
        assert_eq!(unsaid.uri_with(Scheme::Https), "https://a:1");
    }

    #[test]
    fn what_cannot_be_dialled_is_refused() {
        for text in ["unix://", "unixs://a:1", "a", ":1", "a:b", "http://a", "https://a"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        assert!(Endpoint::parse_list(" , ").is_err());
    }
}
