//! Which keys a request is about.

use crate::Error;
use bytes::Bytes;
use meerkat_proto::error_text::EtcdError;
use meerkat_types::{Key, KeyRange};

/// One key, or neighbouring keys.
///
/// Anything that is bytes turns into the one key it spells; ranges have names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Option<KeyRange>);

impl Keys {
    /// Exactly this key.
    pub fn one(key: impl Into<Bytes>) -> Keys {
        Keys(Key::new(key.into()).map(KeyRange::One))
    }

    /// All keys that begin with these bytes; all keys if there are none.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Keys {
        Keys(Some(KeyRange::prefix(prefix.as_ref())))
    }

    /// From `first` (inclusive) to `end` (exclusive), in byte order. No keys if `end` is not above
    /// `first`.
    pub fn span(first: impl Into<Bytes>, end: impl Into<Bytes>) -> Keys {
        let (first, end) = (first.into(), end.into());
        Keys(Key::new(first).map(|first| span(first, end)))
    }

    /// This key and every one above it.
    pub fn from(key: impl Into<Bytes>) -> Keys {
        Keys(Key::new(key.into()).map(KeyRange::From))
    }

    /// Every key.
    pub fn all() -> Keys {
        Keys(Some(KeyRange::everything()))
    }

    /// The range, or the refusal a server would give: no key may be empty.
    pub(crate) fn range(&self) -> Result<&KeyRange, Error> {
        self.0.as_ref().ok_or_else(|| Error::refused_here(EtcdError::EmptyKey))
    }
}

/// An end of no bytes or of one zero byte means something else on the wire, so a span that holds
/// no key is always spelled with an end equal to a first key that is above both.
fn span(first: Key, end: Bytes) -> KeyRange {
    if first.as_bytes() < end.as_ref() {
        return KeyRange::Span { first, end };
    }
    let end = if first.as_bytes() == [0] { Bytes::from_static(&[0, 0]) } else { first.into_bytes() };
    match Key::new(end.clone()) {
        Some(first) => KeyRange::Span { first, end },
        None => KeyRange::everything(),
    }
}

impl From<KeyRange> for Keys {
    fn from(range: KeyRange) -> Keys {
        match range {
            KeyRange::Span { first, end } => Keys(Some(span(first, end))),
            range @ (KeyRange::One(_) | KeyRange::From(_)) => Keys(Some(range)),
        }
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Keys {
        Keys(Some(KeyRange::One(key)))
    }
}

macro_rules! one_key {
    ($($bytes:ty),*) => {
        $(impl From<$bytes> for Keys {
            fn from(key: $bytes) -> Keys {
                Keys::one(key)
            }
        })*
    };
}

one_key!(String, Vec<u8>, Bytes);

macro_rules! one_borrowed_key {
    ($($bytes:ty),*) => {
        $(impl From<&$bytes> for Keys {
            fn from(key: &$bytes) -> Keys {
                Keys::one(Bytes::copy_from_slice(key.as_ref()))
            }
        })*
    };
}

one_borrowed_key!(str, [u8], String, Vec<u8>);

impl<const N: usize> From<&[u8; N]> for Keys {
    fn from(key: &[u8; N]) -> Keys {
        Keys::one(Bytes::copy_from_slice(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: Keys, wire: Option<(&[u8], &[u8])>) {
        let found = keys.range().ok().map(|range| (range.first().bytes().clone(), range.range_end()));
        let wanted = wire.map(|(key, end)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(end)));
        assert_eq!(found, wanted, "{keys:?}");
    }

    #[test]
    fn every_shape_has_its_spelling_on_the_wire() {
        check("a".into(), Some((b"a", b"")));
        check(Keys::prefix("ab"), Some((b"ab", b"ac")));
        check(Keys::prefix(""), Some((b"\0", b"\0")));
        check(Keys::span("a", "c"), Some((b"a", b"c")));
        check(Keys::from("b"), Some((b"b", b"\0")));
        check(Keys::all(), Some((b"\0", b"\0")));
    }

    #[test]
    fn an_empty_key_is_refused() {
        check("".into(), None);
        check(Keys::span("", "c"), None);
        check(Keys::from(""), None);
        let error = Keys::one("").range().expect_err("an empty key");
        assert_eq!(error.etcd(), Some(EtcdError::EmptyKey));
    }

    #[test]
    fn a_span_of_no_keys_never_turns_into_one_key_or_all() {
        check(Keys::span("b", ""), Some((b"b", b"b")));
        check(Keys::span("b", "\0"), Some((b"b", b"b")));
        check(Keys::span("b", "a"), Some((b"b", b"b")));
        check(Keys::span("\0", "\0"), Some((b"\0\0", b"\0\0")));
        check(Keys::span("\0", ""), Some((b"\0\0", b"\0\0")));
    }
}
