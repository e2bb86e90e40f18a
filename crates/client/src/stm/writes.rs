//! What a transaction is going to write, and how its own reads see it before it is written.
//!
//! Always true: one key has at most one write, the last; a server refuses a transaction that writes a
//! key twice.

use crate::{KeyRange, KeyValue, LeaseId, Op};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Put { value: Bytes, lease: Option<LeaseId> },
    Delete,
}

impl Write {
    /// What a reader of the key finds afterwards.
    fn leaves(&self) -> Option<&Bytes> {
        match self {
            Write::Put { value, .. } => Some(value),
            Write::Delete => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Writes(BTreeMap<Bytes, Write>);

impl Writes {
    pub(super) fn set(&mut self, key: Bytes, write: Write) {
        self.0.insert(key, write);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a key will hold, if it is written at all; the inner `None` is "deleted".
    pub(super) fn of(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.0.get(key).map(|write| write.leaves().cloned())
    }

    /// A range as it was found, with the writes laid over it.
    pub(super) fn overlay(&self, range: &KeyRange, found: &[KeyValue]) -> Vec<(Bytes, Bytes)> {
        let mut seen: BTreeMap<Bytes, Bytes> =
            found.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect();
        for (key, write) in self.0.iter().filter(|(key, _)| range.contains(key)) {
            match write.leaves() {
                Some(value) => seen.insert(key.clone(), value.clone()),
                None => seen.remove(key),
            };
        }
        seen.into_iter().collect()
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        let op = |(key, write): (&Bytes, &Write)| match write {
            Write::Put { value, lease: None } => Op::put(key.clone(), value.clone()),
            Write::Put { value, lease: Some(lease) } => {
                Op::put_with_lease(key.clone(), value.clone(), *lease)
            }
            Write::Delete => Op::delete(key.clone()),
        };
        self.0.iter().map(op).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    fn put(value: &'static str) -> Write {
        Write::Put { value: value.into(), lease: None }
    }

    fn found(pairs: &[(&'static str, &'static str)]) -> Vec<KeyValue> {
        let kv = |(key, value): &(&'static str, &'static str)| KeyValue {
            key: (*key).into(),
            value: (*value).into(),
            created: Revision::new(2),
            modified: Revision::new(2),
            version: 1,
            lease: None,
        };
        pairs.iter().map(kv).collect()
    }

    #[test]
    fn the_last_write_of_a_key_is_the_one_that_counts() {
        let mut writes = Writes::default();
        assert!(writes.is_empty());
        writes.set("a".into(), put("1"));
        writes.set("a".into(), Write::Delete);
        assert_eq!(writes.of(b"a"), Some(None));
        writes.set("a".into(), put("2"));
        assert_eq!(writes.of(b"a"), Some(Some("2".into())));
        assert_eq!(writes.of(b"b"), None);
        assert_eq!(writes.ops().len(), 1);
    }

    #[test]
    fn a_range_shows_own_puts_and_hides_own_deletions_in_key_order() {
        let mut writes = Writes::default();
        writes.set("k/b".into(), put("new"));
        writes.set("k/c".into(), Write::Delete);
        writes.set("k/d".into(), put("changed"));
        writes.set("l".into(), put("outside"));
        let seen =
            writes.overlay(&KeyRange::prefix(b"k/"), &found(&[("k/a", "1"), ("k/c", "3"), ("k/d", "4")]));
        let expected: Vec<(Bytes, Bytes)> =
            [("k/a", "1"), ("k/b", "new"), ("k/d", "changed")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(seen, expected);
    }
}
