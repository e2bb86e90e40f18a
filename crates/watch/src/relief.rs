//! Keeps what watchers hold in memory within bounds.
//!
//! All revisions that anybody holds are metered: the ring, what is published and not yet dispatched,
//! history on its way to late watchers, and large revisions that are being written out. Above the
//! limit the streams that were read the longest ago give back what is queued for them; their watchers
//! go back to where that began, and are served again when they are read. Only a large revision half written cannot be taken back:
//! its stream is ended, as the last resort, and says so. The stream that was read last keeps what it
//! has, so that somebody always gets on; above the limit is at most what that one holds.

use crate::core::Core;
use crate::encoded::Encoded;
use crate::stream::{End, Item, Note, StreamId};
use meerkat_types::Revision;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

impl Core {
    pub(crate) fn relieve(&mut self) {
        if !self.is_over() {
            self.relieved_to = 0;
            return;
        }
        // What could not be freed the last time cannot be freed now. The mark follows a fall, so that
        // any growth from there is looked at again.
        let held = self.meter.bytes();
        if held <= self.relieved_to {
            self.relieved_to = held;
            return;
        }
        let mut streams: Vec<(u64, StreamId)> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.held_bytes > 0 || stream.in_flight.is_some())
            .map(|(_, stream)| (stream.read_ms, stream.id))
            .collect();
        streams.sort_unstable();
        // Its reader is about to take it. Else what does not fit beside what stalled streams are
        // writing out, or at all, would be read and given back for ever.
        let kept = streams.pop().map_or_else(BTreeSet::new, |(_, id)| self.held_by(id));
        // Nothing is freed by taking from others what that one holds as well.
        streams.retain(|(_, id)| !self.held_by(*id).is_subset(&kept));
        for (_, id) in &streams {
            if !self.is_over() {
                break;
            }
            self.give_back(*id);
        }
        for (_, id) in streams {
            if !self.is_over() {
                break;
            }
            self.cut(id);
        }
        self.relieved_to = self.meter.bytes();
    }

    /// The revisions that a stream keeps in memory beyond the ring.
    fn held_by(&self, id: StreamId) -> BTreeSet<*const Encoded> {
        let stream = &self.streams[id.slot as usize];
        let noted = stream.items.iter().filter_map(|item| match item {
            Item::Note(note) => note.held.as_ref(),
            Item::Control(_) | Item::Mark(_) => None,
        });
        noted.chain(&stream.in_flight).map(Arc::as_ptr).collect()
    }

    fn is_over(&self) -> bool {
        self.config.ring_bytes.saturating_add(self.config.memory_bytes) < self.meter.bytes()
    }

    /// Takes the history out of a stream's queue, and sets its watchers back to where it began.
    fn give_back(&mut self, id: StreamId) {
        let stream = &mut self.streams[id.slot as usize];
        if stream.held_bytes == 0 {
            return;
        }
        let watchers = &self.watchers;
        let counts = |note: &Note| {
            watchers.get(note.watcher as usize).is_some_and(|watcher| watcher.epoch == note.epoch)
        };
        let notes = |items: &VecDeque<Item>, pick: &dyn Fn(&Note) -> bool| -> BTreeMap<u32, Revision> {
            // In reverse, so that the first one stays.
            let notes = items.iter().rev().filter_map(|item| match item {
                Item::Note(note) if counts(note) && pick(note) => Some((note.watcher, note.revision)),
                _ => None,
            });
            notes.collect()
        };
        let holders = notes(&stream.items, &|note| note.held.is_some());
        // Everything that is queued for them goes, or it would be told out of order.
        let back = notes(&stream.items, &|note| holders.contains_key(&note.watcher));
        stream.items.retain(|item| match item {
            Item::Note(note) => counts(note) && !back.contains_key(&note.watcher),
            Item::Control(_) | Item::Mark(_) => true,
        });
        stream.notes = stream.items.iter().filter(|item| matches!(item, Item::Note(_))).count();
        stream.dealt =
            stream.items.iter().filter(|item| matches!(item, Item::Note(note) if note.dealt)).count();
        stream.held_bytes = 0;
        stream.hungry = false;
        self.hungry.retain(|other| *other != id);
        self.counts.set_back += 1;
        for (slot, first) in back {
            self.revert(slot, first);
        }
    }

    fn cut(&mut self, id: StreamId) {
        let stream = &mut self.streams[id.slot as usize];
        if stream.in_flight.is_some() {
            self.counts.cut += 1;
            self.cut_clients.push(stream.options.client.clone());
            stream.finish(End::OutOfMemory, &mut self.awake);
        }
    }
}
