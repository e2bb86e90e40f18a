//! Which keys a request is about. The wire's conventions for `range_end` end here.

use crate::Key;
use bytes::Bytes;

/// A set of neighbouring keys, in unsigned byte order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Exactly this key.
    One(Key),
    /// From `first`, inclusive, to `end`, exclusive. Empty when `end` is not above `first`.
    Span { first: Key, end: Bytes },
    /// This key and every one above it. `From("\0")` is the whole key space.
    From(Key),
}

impl KeyRange {
    /// Reads the wire's pair: no `range_end` means one key, a single zero byte means "and all above".
    pub fn from_wire(key: Key, range_end: Bytes) -> KeyRange {
        match range_end.as_ref() {
            [] => KeyRange::One(key),
            [0] => KeyRange::From(key),
            _ => KeyRange::Span { first: key, end: range_end },
        }
    }

    /// The wire's `range_end` for this range.
    pub fn range_end(&self) -> Bytes {
        match self {
            KeyRange::One(_) => Bytes::new(),
            KeyRange::Span { end, .. } => end.clone(),
            KeyRange::From(_) => Bytes::from_static(&[0]),
        }
    }

    /// The lowest key that can be in the range.
    pub fn first(&self) -> &Key {
        match self {
            KeyRange::One(key) | KeyRange::From(key) | KeyRange::Span { first: key, .. } => key,
        }
    }

    /// The first bytes that are above every key of the range; `None` when nothing is.
    pub fn end(&self) -> Option<Bytes> {
        match self {
            KeyRange::One(key) => {
                let mut end = Vec::with_capacity(key.as_bytes().len() + 1);
                end.extend_from_slice(key.as_bytes());
                end.push(0);
                Some(end.into())
            }
            KeyRange::Span { end, .. } => Some(end.clone()),
            KeyRange::From(_) => None,
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::One(one) => one.as_bytes() == key,
            KeyRange::Span { first, end } => first.as_bytes() <= key && key < end.as_ref(),
            KeyRange::From(first) => first.as_bytes() <= key,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, KeyRange::Span { first, end } if end.as_ref() <= first.as_bytes())
    }

    /// The range of all keys that begin with `prefix`; the whole key space for an empty prefix.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let Some(first) = Key::new(Bytes::copy_from_slice(prefix)) else {
            return KeyRange::everything();
        };
        match prefix_end(prefix) {
            Some(end) => KeyRange::Span { first, end },
            None => KeyRange::From(first),
        }
    }

    pub fn everything() -> KeyRange {
        KeyRange::From(Key::new(Bytes::from_static(&[0])).expect("one byte is not empty"))
    }
}

/// The shortest bytes above every key with this prefix; `None` when the prefix is all 0xff.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &'static [u8]) -> Key {
        Key::new(Bytes::from_static(bytes)).expect("test key")
    }

    fn check(first: &'static [u8], end: &'static [u8], inside: &[&[u8]], outside: &[&[u8]]) {
        let range = KeyRange::from_wire(key(first), Bytes::from_static(end));
        for k in inside {
            assert!(range.contains(k), "{range:?} should hold {k:?}");
        }
        for k in outside {
            assert!(!range.contains(k), "{range:?} should not hold {k:?}");
        }
        assert_eq!(range.range_end().as_ref(), end);
    }

    #[test]
    fn no_end_is_one_key() {
        check(b"a", b"", &[b"a"], &[b"a\0", b"b", b"A"]);
    }

    #[test]
    fn a_zero_byte_as_end_is_open_ended() {
        check(b"b", b"\0", &[b"b", b"b\0", b"\xff\xff"], &[b"a", b"a\xff"]);
        check(b"\0", b"\0", &[b"\0", b"a"], &[]);
    }

    #[test]
    fn an_end_not_above_the_key_is_empty() {
        check(b"b", b"a", &[], &[b"a", b"b"]);
        assert!(KeyRange::from_wire(key(b"b"), Bytes::from_static(b"b")).is_empty());
    }

    #[test]
    fn a_prefix_ends_at_its_last_raisable_byte() {
        assert_eq!(KeyRange::prefix(b"a\xff").range_end().as_ref(), b"b");
        assert_eq!(KeyRange::prefix(b"\xff\xff").range_end().as_ref(), b"\0");
        assert_eq!(KeyRange::prefix(b""), KeyRange::everything());
    }
}
