//! One change of one object, as the ring keeps it: what was before, what is now, and its frames.
//!
//! What was before comes from the cache itself, so that an event and the list before it always agree.

use super::entry::Entry;
use super::filter::Filter;
use super::frame::{Encodes, Frames};
use super::transition::{EventType, transition};
use std::sync::Arc;

/// What happened to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Created,
    Updated,
    Deleted,
}

#[derive(Debug)]
pub struct Event {
    revision: u64,
    received_ms: u64,
    sides: Sides,
    pub(super) frames: Frames,
}

#[derive(Debug)]
enum Sides {
    Created(Entry),
    Updated { old: Entry, new: Entry },
    Deleted(Entry),
}

/// What an event weighs beside the bytes of its objects.
const OVERHEAD_BYTES: usize = 256;

impl Event {
    pub fn put(old: Option<Entry>, new: Entry, received_ms: u64, encodes: &Arc<Encodes>) -> Arc<Event> {
        let revision = new.revision();
        let sides = match old {
            None => Sides::Created(new),
            Some(old) => Sides::Updated { old, new },
        };
        Arc::new(Event { revision, received_ms, sides, frames: Frames::new(encodes) })
    }

    pub fn deleted(old: Entry, revision: u64, received_ms: u64, encodes: &Arc<Encodes>) -> Arc<Event> {
        Arc::new(Event { revision, received_ms, sides: Sides::Deleted(old), frames: Frames::new(encodes) })
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn received_ms(&self) -> u64 {
        self.received_ms
    }

    pub fn change(&self) -> Change {
        match &self.sides {
            Sides::Created(_) => Change::Created,
            Sides::Updated { .. } => Change::Updated,
            Sides::Deleted(_) => Change::Deleted,
        }
    }

    /// The object before the change.
    pub fn previous(&self) -> Option<&Entry> {
        match &self.sides {
            Sides::Created(_) => None,
            Sides::Updated { old, .. } | Sides::Deleted(old) => Some(old),
        }
    }

    /// The object after it.
    pub fn current(&self) -> Option<&Entry> {
        match &self.sides {
            Sides::Created(new) | Sides::Updated { new, .. } => Some(new),
            Sides::Deleted(_) => None,
        }
    }

    pub fn key(&self) -> &Arc<str> {
        match &self.sides {
            Sides::Created(entry) | Sides::Updated { new: entry, .. } | Sides::Deleted(entry) => entry.key(),
        }
    }

    /// What a watcher with `filter` is told of this, in order.
    pub fn told(&self, filter: &Filter) -> &'static [EventType] {
        let matches = |entry: Option<&Entry>| entry.is_some_and(|entry| filter.matches(entry));
        let is_same = match &self.sides {
            Sides::Updated { old, new } => old.uid() == new.uid(),
            Sides::Created(_) | Sides::Deleted(_) => true,
        };
        transition(matches(self.previous()), matches(self.current()), is_same)
    }

    /// About what it takes in memory, with one frame.
    pub fn weight(&self) -> usize {
        let bytes = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.json().len());
        OVERHEAD_BYTES + 2 * bytes(self.current()) + bytes(self.previous())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::{pod, pod_with_uid};
    use crate::cacher::filter::{Scope, Term, Test};

    fn web() -> Filter {
        Filter::new(Scope::all(), vec![Term::label("app", Test::Equals("web".into()))])
    }

    fn told(old: Option<Entry>, new: Option<Entry>) -> &'static [EventType] {
        let encodes = Arc::default();
        let event = match (old, new) {
            (old, Some(new)) => Event::put(old, new, 0, &encodes),
            (Some(old), None) => Event::deleted(old, 9, 0, &encodes),
            (None, None) => panic!("nothing happened"),
        };
        event.told(&web())
    }

    #[test]
    fn a_label_that_flips_deletes_and_flipping_back_adds() {
        let (web, db) = (|| Some(pod("a/1", "app=web", "", 1)), || Some(pod("a/1", "app=db", "", 2)));
        assert_eq!(told(web(), db()), [EventType::Deleted]);
        assert_eq!(told(db(), web()), [EventType::Added]);
        assert_eq!(told(web(), web()), [EventType::Modified]);
        assert_eq!(told(db(), db()), []);
        assert_eq!(told(None, web()), [EventType::Added]);
        assert_eq!(told(web(), None), [EventType::Deleted]);
        assert_eq!(told(db(), None), []);
    }

    #[test]
    fn another_object_of_the_same_name_is_told_as_two() {
        let entry = |uid: &str| Some(pod_with_uid("a/1", uid, "app=web", "", 1));
        assert_eq!(told(entry("one"), entry("other")), [EventType::Deleted, EventType::Added]);
    }
}
