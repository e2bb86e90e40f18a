//! A part of the key space as if it were all of it.
//!
//! Always true: a range inside a namespace never reaches outside it, whatever its end; and a key
//! comes back as it was sent. Namespaces nest by putting one prefix behind the other.

use bytes::{Bytes, BytesMut};
use meerkat_types::{Key, KeyRange, KeyValue};

/// The bytes put before every key. Empty for the whole key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespace {
    prefix: Bytes,
}

impl Namespace {
    pub(crate) fn inside(&self, prefix: &[u8]) -> Namespace {
        Namespace { prefix: self.join(prefix) }
    }

    /// The key as the server knows it.
    pub(crate) fn wrap_key(&self, key: &Key) -> Bytes {
        if self.prefix.is_empty() { key.bytes().clone() } else { self.join(key.as_bytes()) }
    }

    /// The range as the server knows it.
    pub(crate) fn wrap_range(&self, range: &KeyRange) -> KeyRange {
        if self.prefix.is_empty() {
            return range.clone();
        }
        // The key that is the prefix itself has no name inside, so not even "all" holds it.
        let first = self.wrap_first(range.first());
        match range {
            KeyRange::One(_) => KeyRange::One(first),
            KeyRange::Span { end, .. } => KeyRange::Span { first, end: self.join(end) },
            KeyRange::From(_) => match KeyRange::prefix(&self.prefix).end() {
                Some(end) => KeyRange::Span { first, end },
                None => KeyRange::From(first),
            },
        }
    }

    /// Takes the prefix off. `None` for a key that is not inside, which no right answer holds.
    pub(crate) fn strip_key(&self, key: &Bytes) -> Option<Bytes> {
        key.starts_with(&self.prefix).then(|| key.slice(self.prefix.len()..))
    }

    /// The key-value with its key as the caller knows it; `None` if it is not inside.
    pub(crate) fn strip(&self, mut kv: KeyValue) -> Option<KeyValue> {
        kv.key = self.strip_key(&kv.key)?;
        Some(kv)
    }

    fn wrap_first(&self, first: &Key) -> Key {
        match Key::new(self.join(first.as_bytes())) {
            Some(key) => key,
            None => first.clone(),
        }
    }

    fn join(&self, rest: &[u8]) -> Bytes {
        let mut joined = BytesMut::with_capacity(self.prefix.len() + rest.len());
        joined.extend_from_slice(&self.prefix);
        joined.extend_from_slice(rest);
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keys;

    fn check(prefix: &[u8], keys: Keys, first: &[u8], end: &[u8]) {
        let namespace = Namespace::default().inside(prefix);
        let wrapped = namespace.wrap_range(keys.range().expect("test keys"));
        assert_eq!((wrapped.first().as_bytes(), wrapped.range_end().as_ref()), (first, end), "{keys:?}");
    }

    #[test]
    fn no_range_reaches_outside_its_namespace() {
        check(b"a/", "k".into(), b"a/k", b"");
        check(b"a/", Keys::span("k", "m"), b"a/k", b"a/m");
        check(b"a/", Keys::from("k"), b"a/k", b"a0");
        check(b"a/", Keys::all(), b"a/\0", b"a0");
        check(b"a/", Keys::prefix("k"), b"a/k", b"a/l");
        check(b"a/", Keys::prefix(b"\xff"), b"a/\xff", b"a0");
        check(b"\xff", Keys::from("k"), b"\xffk", b"\0");
        check(b"", Keys::from("k"), b"k", b"\0");
        check(b"a/", Keys::span("k", "b"), b"a/k", b"a/k");
    }

    #[test]
    fn namespaces_nest() {
        let inner = Namespace::default().inside(b"a/").inside(b"b/");
        let key = Key::new(Bytes::from_static(b"k")).expect("test key");
        assert_eq!(inner.wrap_key(&key), "a/b/k");
        assert_eq!(inner.strip_key(&Bytes::from_static(b"a/b/k")), Some(Bytes::from_static(b"k")));
        assert_eq!(inner.strip_key(&Bytes::from_static(b"a/x")), None);
    }
}
