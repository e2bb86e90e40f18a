//! The recent revisions, without a gap, up to the frontier.
//!
//! A revision too large to be kept still has its place, empty: who needs it reads history.

use crate::encoded::Encoded;
use meerkat_types::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Ring {
    entries: VecDeque<Option<Arc<Encoded>>>,
    /// Of the newest entry; the one before the first if there is none.
    last: Revision,
    bytes: usize,
    bytes_max: usize,
    entry_bytes_max: usize,
}

impl Ring {
    pub(crate) fn new(last: Revision, bytes_max: usize, entry_bytes_max: usize) -> Ring {
        Ring { entries: VecDeque::new(), last, bytes: 0, bytes_max, entry_bytes_max }
    }

    /// The newest revision that was added or jumped to.
    pub(crate) fn last(&self) -> Revision {
        self.last
    }

    /// The oldest revision that is here; one above the last if none is.
    pub(crate) fn first(&self) -> Revision {
        Revision::new(self.last.get() + 1 - self.entries.len() as i64)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next revision; says whether it is kept.
    pub(crate) fn push(&mut self, batch: &Arc<Encoded>) -> bool {
        // A gap here would be a revision no watcher can ever be told about.
        assert_eq!(batch.revision(), self.last.next(), "revisions are published without a gap");
        self.last = batch.revision();
        let kept = batch.weight() <= self.entry_bytes_max;
        self.entries.push_back(kept.then(|| batch.clone()));
        if kept {
            self.bytes += batch.weight();
        }
        // An empty place in front says no more than no place.
        while self.bytes_max < self.bytes || matches!(self.entries.front(), Some(None)) {
            self.drop_first();
        }
        kept
    }

    fn drop_first(&mut self) {
        if let Some(batch) = self.entries.pop_front().flatten() {
            self.bytes -= batch.weight();
        }
    }

    pub(crate) fn get(&self, revision: Revision) -> Option<&Arc<Encoded>> {
        let at = usize::try_from(revision.get() - self.first().get()).ok()?;
        self.entries.get(at)?.as_ref()
    }

    /// Revisions up to `last` will never be added: what is here no longer joins on to what comes.
    pub(crate) fn jump(&mut self, last: Revision) {
        assert!(self.last <= last, "the frontier never falls: {} to {last}", self.last);
        self.entries.clear();
        self.bytes = 0;
        self.last = last;
    }

    /// Panics if the bytes are counted wrongly, or a revision is not in its place.
    pub(crate) fn check(&self) {
        let kept = || self.entries.iter().flatten();
        assert_eq!(self.bytes, kept().map(|batch| batch.weight()).sum::<usize>(), "the ring's bytes");
        assert!(self.bytes <= self.bytes_max, "the ring's limit");
        for batch in kept() {
            let found = self.get(batch.revision()).map(|found| found.revision());
            assert_eq!(found, Some(batch.revision()), "a revision is found at its place");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoded::Meter;
    use bytes::Bytes;
    use meerkat_types::{Event, EventBatch, EventKind};

    fn batch(revision: i64, events: usize) -> Arc<Encoded> {
        let revision = Revision::new(revision);
        let event = Event {
            kind: EventKind::Delete { key: Bytes::from_static(b"key"), modified: revision },
            previous: None,
        };
        let events = vec![event; events].into();
        Encoded::new(EventBatch { revision, stamp_ms: 0, events }, &Arc::new(Meter::default()))
    }

    #[test]
    fn the_oldest_leave_when_the_bytes_are_used_up() {
        let weight = batch(1, 1).weight();
        let mut ring = Ring::new(Revision::new(4), 3 * weight, 2 * weight);
        assert_eq!(ring.first(), Revision::new(5));
        for revision in 5..=9 {
            assert!(ring.push(&batch(revision, 1)));
        }
        assert_eq!((ring.first(), ring.last()), (Revision::new(7), Revision::new(9)));
        assert!(ring.get(Revision::new(6)).is_none());
        assert_eq!(ring.get(Revision::new(7)).map(|batch| batch.revision()), Some(Revision::new(7)));
        assert!(ring.get(Revision::new(10)).is_none());
    }

    #[test]
    fn a_revision_too_large_leaves_a_place_and_nobody_is_pushed_out() {
        let weight = batch(1, 1).weight();
        let mut ring = Ring::new(Revision::new(1), 3 * weight, 2 * weight);
        assert!(ring.push(&batch(2, 1)));
        assert!(!ring.push(&batch(3, 100)));
        assert!(ring.push(&batch(4, 1)));
        assert!(ring.get(Revision::new(2)).is_some());
        assert!(ring.get(Revision::new(3)).is_none());
        assert!(ring.get(Revision::new(4)).is_some());
    }

    #[test]
    fn after_a_jump_the_next_revision_is_the_one_after_it() {
        let mut ring = Ring::new(Revision::new(1), 10_000, 10_000);
        ring.push(&batch(2, 1));
        ring.jump(Revision::new(20));
        assert!(ring.get(Revision::new(2)).is_none());
        assert_eq!(ring.bytes(), 0);
        ring.push(&batch(21, 1));
        assert_eq!(ring.first(), Revision::new(21));
    }
}
