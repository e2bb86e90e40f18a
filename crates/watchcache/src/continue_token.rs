//! Where a paged list goes on, and at which revision.
//!
//! A token is opaque to clients but not secret: anybody can make one. So a token names no key outside
//! the list that it is used with: its start is relative to the list's prefix, and a start that could
//! climb out of it, or that is no clean path, is refused. Others that speak this protocol read the same
//! tokens, which is why the spelling is fixed: base64url without padding over a small JSON object.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meerkat_kubernetes::status::Refusal;
use serde::Deserialize;
use serde_json::Value;

/// A namespace, a name and what JSON and base64 make of them fit several times.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;

const SPELLING: &str = "meta.k8s.io/v1";

/// What stands in a token whose list has lost its revision.
const LATEST: i64 = -1;

/// The state that the next page is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueAt {
    /// The revision of the first page. Never zero.
    Exact(u64),
    /// Whatever is newest: the pages together are no picture of one moment.
    Latest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    pub at: ContinueAt,
    /// The first key that may be in the next page, without the prefix of the list.
    start: String,
}

#[derive(Deserialize)]
struct Wire {
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    /// `last`: the last key of the page, without the prefix of the list.
    pub fn after(last: &str, at: ContinueAt) -> ContinueToken {
        ContinueToken { at, start: format!("{last}\0") }
    }

    pub fn decode(text: &str) -> Result<ContinueToken, Refusal> {
        if TOKEN_BYTES_MAX < text.len() {
            return Err(invalid("it is too long"));
        }
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid("it is not base64url"))?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| invalid("it has no token in it"))?;
        if wire.v != SPELLING {
            return Err(invalid("this server does not know its version"));
        }
        let at = match wire.rv {
            LATEST => ContinueAt::Latest,
            revision => match u64::try_from(revision) {
                Ok(revision) if 0 < revision => ContinueAt::Exact(revision),
                _ => return Err(invalid("its resource version is none to go on at")),
            },
        };
        if !is_clean(&wire.start) {
            return Err(invalid("its start is no key of a list"));
        }
        Ok(ContinueToken { at, start: wire.start })
    }

    pub fn encode(&self) -> String {
        let rv = match self.at {
            // The store counts its revisions in an i64.
            ContinueAt::Exact(revision) => i64::try_from(revision).unwrap_or(i64::MAX),
            ContinueAt::Latest => LATEST,
        };
        let start = Value::from(self.start.as_str());
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{SPELLING}","rv":{rv},"start":{start}}}"#))
    }

    /// The first key of the next page. `prefix` is the list's, and ends in a slash.
    pub fn start_key(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.start)
    }

    /// The same place, for a client that can live with a list that is no picture of one moment.
    #[must_use]
    pub fn at_latest(&self) -> ContinueToken {
        ContinueToken { at: ContinueAt::Latest, start: self.start.clone() }
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::bad_request(format!("continue key is not valid: {why}"))
}

/// A key below the prefix: no segment is empty or climbs, and only the last byte may be the NUL that
/// makes a start out of a key.
fn is_clean(start: &str) -> bool {
    let key = start.strip_suffix('\0').unwrap_or(start);
    !key.contains('\0') && key.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn encoded(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..500 {
            let segment = |rng: &mut StdRng| -> String {
                (0..rng.random_range(1..20)).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
            };
            let last = match rng.random_range(0..2) {
                0 => segment(&mut rng),
                _ => format!("{}/{}", segment(&mut rng), segment(&mut rng)),
            };
            let at = match rng.random_range(0..4) {
                0 => ContinueAt::Latest,
                _ => ContinueAt::Exact(1 + (rng.random::<u64>() >> rng.random_range(2..64))),
            };
            let token = ContinueToken::after(&last, at);
            assert_eq!(ContinueToken::decode(&token.encode()), Ok(token.clone()));
            assert_eq!(token.start_key("/registry/pods/"), format!("/registry/pods/{last}\0"));
        }
    }

    #[test]
    fn others_read_and_write_the_same_spelling() {
        let theirs = encoded(r#"{"v":"meta.k8s.io/v1","rv":42,"start":"a/b\u0000"}"#);
        let ours = ContinueToken::after("a/b", ContinueAt::Exact(42));
        assert_eq!(ContinueToken::decode(&theirs), Ok(ours.clone()));
        assert_eq!(ours.encode(), theirs);
    }

    #[test]
    fn a_token_that_expired_keeps_its_place_at_another_revision() {
        let token = ContinueToken::after("a/b", ContinueAt::Exact(42)).at_latest();
        assert_eq!(token, ContinueToken::after("a/b", ContinueAt::Latest));
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn a_start_never_leaves_its_list() {
        for start in [
            "",
            "\\u0000",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "a/../../b",
            "a/./b",
            "..\\u0000",
            "a/..\\u0000",
            "a\\u0000b",
            "a\\u0000\\u0000",
            "a/\\u0000",
        ] {
            let text = encoded(&format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#));
            let refusal = ContinueToken::decode(&text).expect_err(start);
            assert_eq!(refusal.code(), 400, "{start}");
        }
    }

    #[test]
    fn what_is_no_token_is_a_bad_request() {
        let padded = format!("{}==", encoded("{}"));
        let long = "A".repeat(TOKEN_BYTES_MAX + 1);
        for text in [
            "%",
            "abc$",
            padded.as_str(),
            long.as_str(),
            &encoded("[]"),
            &encoded("{}"),
            &encoded(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#),
            &encoded(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            &encoded(r#"{"v":"meta.k8s.io/v1","start":"a"}"#),
            &encoded(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            &encoded(r#"{"v":"meta.k8s.io/v1","rv":99999999999999999999,"start":"a"}"#),
            &encoded(r#"{"v":"meta.k8s.io/v1","rv":1,"start":7}"#),
            &encoded(&"[".repeat(3_000)),
        ] {
            assert_eq!(ContinueToken::decode(text).expect_err("no token").code(), 400, "{text}");
        }
    }
}
