//! What a transaction has read, and the guard that says it is all still so.
//!
//! Everything is read at one revision R. At commit time the guard asks, in one atomic step:
//!
//! * of each key that was read or found in a range: is its `mod_revision` what it was? That of a
//!   missing key is 0. Revisions never come back, so an equal one means an unchanged key. This catches
//!   updates and deletions, and the creation of a key that was read as missing.
//! * of each range: is every key in it now older than R + 1? A key that someone put into the range
//!   since has a later revision. This catches insertions: the phantoms that a guard of the first kind
//!   cannot name. It does not see deletions, because a deleted key is not there to be compared; that is
//!   why the first kind is needed for every key of the range as well.
//!
//! Both together hold exactly if reading again now would give the same. One thing slips through, and
//! does no harm: a key that was missing, was created and is deleted again reads the same as before.

use crate::{Compare, KeyRange, KeyValue, Revision};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Reads {
    at: Option<Revision>,
    /// Every key that was read by name or found in a range; `None` if it was missing.
    keys: BTreeMap<Bytes, Option<KeyValue>>,
    ranges: Vec<KeyRange>,
}

impl Reads {
    /// The revision that everything is read at, once there is one.
    pub(super) fn at(&self) -> Option<Revision> {
        self.at
    }

    /// The first read was answered at this revision; later ones do not change it.
    pub(super) fn begin(&mut self, at: Revision) {
        self.at.get_or_insert(at);
    }

    /// What is known of a key without asking: that it holds this, or (inner `None`) that it is missing.
    pub(super) fn known(&self, key: &[u8]) -> Option<Option<&KeyValue>> {
        match self.keys.get(key) {
            Some(kv) => Some(kv.as_ref()),
            None => self.ranges.iter().any(|range| range.contains(key)).then_some(None),
        }
    }

    pub(super) fn note_key(&mut self, key: Bytes, found: Option<KeyValue>) {
        self.keys.insert(key, found);
    }

    pub(super) fn note_range(&mut self, range: KeyRange, found: Vec<KeyValue>) {
        self.keys.extend(found.into_iter().map(|kv| (kv.key.clone(), Some(kv))));
        if !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }

    pub(super) fn compares(&self) -> Vec<Compare> {
        let mut compares = Vec::with_capacity(self.keys.len() + self.ranges.len());
        for (key, kv) in &self.keys {
            let modified = kv.as_ref().map_or(Revision::new(0), |kv| kv.modified);
            compares.push(Compare::key(key.clone()).mod_revision().equals(modified));
        }
        if let Some(at) = self.at {
            let older = |range: &KeyRange| Compare::keys(range.clone()).mod_revision().less(at.next());
            compares.extend(self.ranges.iter().map(older));
        }
        compares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &'static str, modified: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: Bytes::from_static(b"v"),
            created: Revision::new(modified),
            modified: Revision::new(modified),
            version: 1,
            lease: None,
        }
    }

    /// A store that answers a guard as a server does, as far as this module goes.
    fn holds(store: &[KeyValue], reads: &Reads) -> bool {
        let Some(at) = reads.at else { return true };
        let same_key = |(key, kv): (&Bytes, &Option<KeyValue>)| {
            store.iter().find(|now| now.key == key).map(|now| now.modified)
                == kv.as_ref().map(|kv| kv.modified)
        };
        let same_range = |range: &KeyRange| {
            store.iter().filter(|now| range.contains(&now.key)).all(|now| now.modified < at.next())
        };
        reads.keys.iter().all(same_key) && reads.ranges.iter().all(same_range)
    }

    fn ranged(found: Vec<KeyValue>) -> Reads {
        let mut reads = Reads::default();
        reads.begin(Revision::new(10));
        reads.note_range(KeyRange::prefix(b"k/"), found);
        reads
    }

    #[test]
    fn a_range_is_guarded_against_updates_insertions_and_deletions() {
        let reads = ranged(vec![kv("k/a", 3), kv("k/b", 10)]);
        let check =
            |store: &[KeyValue], expected: bool| assert_eq!(holds(store, &reads), expected, "{store:?}");
        check(&[kv("k/a", 3), kv("k/b", 10)], true);
        check(&[kv("k/a", 3), kv("k/b", 10), kv("l", 11)], true);
        check(&[kv("k/a", 11), kv("k/b", 10)], false);
        check(&[kv("k/a", 3), kv("k/b", 10), kv("k/c", 11)], false);
        check(&[kv("k/a", 3)], false);
        check(&[kv("k/a", 3), kv("k/b", 12)], false);
    }

    #[test]
    fn an_empty_range_is_guarded_against_insertions() {
        let reads = ranged(Vec::new());
        assert!(holds(&[], &reads));
        assert!(!holds(&[kv("k/a", 11)], &reads));
        assert_eq!(reads.compares().len(), 1);
    }

    #[test]
    fn every_key_and_every_range_is_compared_once() {
        let mut reads = ranged(vec![kv("k/a", 3)]);
        reads.note_key("k/a".into(), Some(kv("k/a", 3)));
        reads.note_key("other".into(), None);
        reads.note_range(KeyRange::prefix(b"k/"), vec![kv("k/a", 3)]);
        let wires: Vec<String> = reads.compares().iter().map(|compare| format!("{compare:?}")).collect();
        assert_eq!(wires.len(), 3, "{wires:?}");
        assert!(wires[0].contains("Equal") && wires[0].contains("ModRevision(3)"), "{wires:?}");
        assert!(wires[1].contains("Equal") && wires[1].contains("ModRevision(0)"), "{wires:?}");
        assert!(wires[2].contains("Less") && wires[2].contains("ModRevision(11)"), "{wires:?}");
    }

    #[test]
    fn what_a_range_did_not_hold_is_known_to_be_missing() {
        let reads = ranged(vec![kv("k/a", 3)]);
        assert_eq!(reads.known(b"k/a"), Some(Some(&kv("k/a", 3))));
        assert_eq!(reads.known(b"k/z"), Some(None));
        assert_eq!(reads.known(b"other"), None);
    }

    #[test]
    fn the_first_read_sets_the_revision_for_all() {
        let mut reads = Reads::default();
        reads.begin(Revision::new(5));
        reads.begin(Revision::new(9));
        assert_eq!(reads.at(), Some(Revision::new(5)));
    }
}
