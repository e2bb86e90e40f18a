//! What goes to the destination in one transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use meerkat_client::{Event, EventKind, KeyValue, LeaseId};

use super::progress::PROGRESS_KEY;

/// With the note of progress, below etcd's default of 128.
pub const CHANGES_MAX: usize = 100;
/// Below the 1.5 MiB that a member takes; a single larger change goes alone.
const BYTES_MAX: usize = 1 << 20;

/// What becomes of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Bytes,
    /// `None`: it is deleted.
    pub put: Option<(Bytes, Option<LeaseId>)>,
}

impl Change {
    pub fn put(kv: &KeyValue) -> Change {
        Change { key: kv.key.clone(), put: Some((kv.value.clone(), kv.lease)) }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.put.as_ref().map_or(0, |(value, _)| value.len())
    }
}

/// The changes of one revision. A transaction takes each key once, so of a key that changed twice in
/// one revision only the last counts: nobody could have read the other. In the order of keys, so that
/// it is the same order whenever it is asked for.
pub fn changes_of(events: &[Event]) -> Vec<Change> {
    let mut last: BTreeMap<Bytes, Change> = BTreeMap::new();
    for event in events {
        let change = match &event.kind {
            EventKind::Put(kv) => Change::put(kv),
            EventKind::Delete { key, .. } => Change { key: key.clone(), put: None },
        };
        if change.key != PROGRESS_KEY {
            last.insert(change.key.clone(), change);
        }
    }
    last.into_values().collect()
}

/// How many of the changes, from the first on, fit into one transaction: at least one, if there is one.
pub fn fitting(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let fits = changes.iter().take(CHANGES_MAX).take_while(|change| {
        bytes += change.bytes();
        bytes <= BYTES_MAX
    });
    fits.count().max(1).min(changes.len())
}

/// Whether the changes of one more revision may go with those before it: in one transaction, and no key
/// twice, since no change may be lost between two of them.
pub fn joins(before: &[Change], more: &[Change]) -> bool {
    let bytes: usize = before.iter().chain(more).map(Change::bytes).sum();
    let apart = || more.iter().all(|change| before.iter().all(|other| other.key != change.key));
    before.len() + more.len() <= CHANGES_MAX && bytes <= BYTES_MAX && apart()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, bytes: usize) -> Change {
        let key = Bytes::copy_from_slice(key.as_bytes());
        Change { key, put: Some((vec![0; bytes].into(), None)) }
    }

    #[test]
    fn a_transaction_is_bounded_in_changes_and_bytes_and_never_empty() {
        let small: Vec<Change> = (0..250).map(|n| change(&format!("{n:03}"), 1)).collect();
        assert_eq!(fitting(&small), CHANGES_MAX);
        assert_eq!(fitting(&small[..7]), 7);
        let large = [change("a", BYTES_MAX + 5), change("b", 1)];
        assert_eq!(fitting(&large), 1);
        assert_eq!(fitting(&[change("a", BYTES_MAX / 2), change("b", BYTES_MAX)]), 1);
        assert_eq!(fitting(&[]), 0);
    }

    #[test]
    fn revisions_go_together_only_if_no_change_is_hidden_by_another() {
        assert!(joins(&[change("a", 1)], &[change("b", 1)]));
        assert!(!joins(&[change("a", 1)], &[change("a", 1)]));
        assert!(!joins(&[change("a", BYTES_MAX)], &[change("b", 1)]));
        let many: Vec<Change> = (0..CHANGES_MAX).map(|n| change(&format!("{n:03}"), 1)).collect();
        assert!(!joins(&many, &[change("z", 1)]));
    }
}
