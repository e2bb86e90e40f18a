//! Keeps a browser's pages away from a door that asks nobody for a name.
//!
//! A page of anywhere can send requests to this machine, and it can have its own name point here. Programs
//! have no Origin, or their server's; they ask by the name they were given. So what comes from another origin
//! is refused; and on loopback, where no name leads but `localhost`, so is what asks by another name.

use super::answer::header;
use http::HeaderMap;
use http::header::{HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use meerkat_kubernetes::status::{Reason, Refusal};
use std::net::{IpAddr, SocketAddr};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// `authority`: of the request's own line, which HTTP/2 has in the place of a Host.
pub fn check(headers: &HeaderMap, authority: Option<&Authority>, peer: SocketAddr) -> Result<(), Refusal> {
    let asked = authority.map_or_else(|| header(headers, &HOST), Authority::as_str);
    if peer.ip().to_canonical().is_loopback() && !asked.is_empty() && !is_local(asked) {
        return Err(refusal(&format!(
            "the server is asked for as {asked:?}: on this machine it is an address or localhost, and a proxy in \
             front of it must ask so too"
        )));
    }
    let origin = header(headers, &ORIGIN);
    let is_own = origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(asked));
    if !origin.is_empty() && !is_own {
        return Err(refusal(&format!("the origin {origin:?} is not the server's own")));
    }
    if header(headers, &FETCH_SITE) == "cross-site" {
        return Err(refusal("a page of another site has asked for this"));
    }
    Ok(())
}

fn refusal(why: &str) -> Refusal {
    Refusal::new(Reason::Forbidden, why)
}

/// An address, or a name that nobody can point elsewhere. `asked`: with or without a port.
fn is_local(asked: &str) -> bool {
    let host = match asked.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => asked.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn is_let_in(peer: &str, rows: &[(&'static str, &'static str)]) -> bool {
        check(&headers(rows), None, peer.parse().expect("an address")).is_ok()
    }

    #[test]
    fn programs_come_in_and_pages_of_others_do_not() {
        let here = "127.0.0.1:9";
        for host in ["127.0.0.1:2378", "localhost", "LOCALHOST:1", "[::1]:2378", "a.localhost:1", "10.0.0.1"]
        {
            assert!(is_let_in(here, &[("host", host)]), "{host}");
        }
        assert!(is_let_in(here, &[]), "who says no name is no page");
        for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"] {
            assert!(!is_let_in(here, &[("host", host)]), "{host}");
            assert!(is_let_in("10.0.0.9:9", &[("host", host)]), "elsewhere a name is a name");
        }
        let own = [("host", "127.0.0.1:1"), ("origin", "http://127.0.0.1:1")];
        assert!(is_let_in(here, &own));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:2", "x"] {
            assert!(!is_let_in(here, &[("host", "127.0.0.1:1"), ("origin", origin)]), "{origin}");
        }
        assert!(!is_let_in(here, &[("host", "localhost"), ("sec-fetch-site", "cross-site")]));
        assert!(is_let_in(here, &[("host", "localhost"), ("sec-fetch-site", "none")]));
    }

    #[test]
    fn the_name_in_the_request_line_counts_where_there_is_one() {
        let evil: Authority = "evil.example:80".parse().expect("an authority");
        let peer = "[::1]:9".parse().expect("an address");
        assert!(check(&headers(&[]), Some(&evil), peer).is_err());
    }
}
