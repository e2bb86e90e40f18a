//! What is always true between two calls, looked at whole. Too dear for production: for tests.

use crate::core::{Core, key_of};
use crate::range_tree::VisitRound;
use crate::stream::{Item, Stream, StreamId};
use crate::watcher::{State, Watcher};
use std::collections::HashMap;

impl Core {
    /// Panics if the parts of the core do not agree with each other.
    pub fn check(&self) {
        self.ring.check();
        let synced = self.watchers.iter().filter(|(_, watcher)| watcher.is_synced()).count();
        let late = self.watchers.iter().filter(|(_, watcher)| watcher.is_late()).count();
        assert_eq!((self.synced.len(), self.late.len()), (synced, late), "groups hold whom states name");
        for (slot, watcher) in &self.watchers {
            self.check_watcher(slot as u32, watcher);
        }
        for (_, stream) in &self.streams {
            self.check_counts(stream);
            self.check_line(stream);
            self.check_notes(stream);
        }
    }

    fn check_watcher(&self, slot: u32, watcher: &Watcher) {
        let stream = self.stream(watcher.stream).expect("a watcher goes with its stream");
        assert_eq!(stream.watchers.get(&watcher.spec.id), Some(&slot), "a stream knows its watchers");
        let (mut in_synced, mut in_late) = (0, 0);
        let key = watcher.spec.range.first().as_bytes();
        let count = |slots: &[u32]| slots.iter().filter(|other| **other == slot).count();
        let key_of = |slot| key_of(&self.watchers, slot);
        self.synced.visit(key, VisitRound::NONE, key_of, &mut |slots| in_synced += count(slots));
        self.late.visit(key, VisitRound::NONE, key_of, &mut |slots| in_late += count(slots));
        let expected = match watcher.state {
            State::Synced(_) => (1, 0),
            State::CatchingUp { .. } => (0, 1),
            State::Ended => (0, 0),
        };
        assert_eq!((in_synced, in_late), expected, "a watcher is in the group of its state, and in no other");
        if watcher.is_late() {
            assert!(watcher.next <= self.frontier(), "who is late is owed something published");
        }
    }

    fn check_counts(&self, stream: &Stream) {
        let notes = || {
            stream.items.iter().filter_map(|item| match item {
                Item::Note(note) => Some(note),
                Item::Control(_) | Item::Mark(_) => None,
            })
        };
        let held: usize = notes().filter_map(|note| note.held.as_ref()).map(|held| held.weight()).sum();
        assert_eq!((stream.notes, stream.held_bytes), (notes().count(), held), "notes are counted");
        assert_eq!(stream.dealt, notes().filter(|note| note.dealt).count(), "dealt notes are counted");
        let is_late = |slot: &&u32| self.watchers[**slot as usize].is_late();
        assert_eq!(
            stream.late.len(),
            stream.watchers.values().filter(is_late).count(),
            "the late are listed"
        );
        assert!(stream.late.iter().all(|slot| self.watchers[*slot as usize].is_late()), "only the late");
        let waits = self.marks.iter().filter(|id| **id == stream.id).count();
        assert_eq!(waits, usize::from(stream.mark_at.is_some()), "who waits for a mark is listed once");
    }

    fn check_line(&self, stream: &Stream) {
        let in_line = self.hungry.iter().filter(|id| **id == stream.id).count();
        assert_eq!(in_line, usize::from(stream.hungry), "who is hungry stands in line once");
        if stream.reader.is_some() {
            assert!(stream.items.is_empty(), "nobody sleeps while something is queued for him");
            assert!(stream.end.is_none(), "nobody sleeps after the end");
            assert!(stream.hungry || stream.late.is_empty(), "who sleeps with late watchers stands in line");
        }
    }

    /// What counts among the notes of a watcher is in order, and below what it is owed next.
    fn check_notes(&self, stream: &Stream) {
        let mut last = HashMap::new();
        for item in &stream.items {
            let Item::Note(note) = item else { continue };
            let watcher = self.watchers.get(note.watcher as usize);
            let Some(watcher) = watcher.filter(|watcher| watcher.epoch == note.epoch) else { continue };
            assert!(note.revision < watcher.next, "what is queued is owed no more");
            let before = last.insert(note.watcher, note.revision);
            assert!(before.is_none_or(|before| before < note.revision), "what is queued is in order");
        }
    }

    fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(id.slot as usize).filter(|stream| stream.id == id)
    }
}
