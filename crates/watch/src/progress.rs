//! Progress marks: "nothing up to here will follow".
//!
//! A mark goes through the same queue as events, behind all that were queued before it, and is told
//! only if none of those was lost from the queue meanwhile.

use crate::core::Core;
use crate::history::Horizon;
use crate::stream::{Item, Mark, MarkOf, StreamId};
use crate::watcher::Watcher;
use meerkat_types::Revision;

impl Core {
    /// A client asks how far all the watchers of its stream have come. As in etcd it is answered only
    /// if all of them are level; else it may ask again.
    pub fn request_progress(&mut self, id: StreamId, horizon: Horizon) {
        let Some(stream) = self.stream_mut(id) else { return };
        if stream.mark_at.is_some() {
            // Not instead of the one that waits: a client that asks often would never hear.
            stream.mark_again = Some(horizon.current);
        } else {
            stream.mark_at = Some(horizon.current);
            self.marks.push(id);
        }
        self.queue_due_marks();
    }

    /// Queues the marks that were asked for and whose revision is published by now.
    pub(crate) fn queue_due_marks(&mut self) {
        if self.marks.is_empty() {
            return;
        }
        let frontier = self.frontier();
        for id in std::mem::take(&mut self.marks) {
            let Some(stream) = self.stream_mut(id) else { continue };
            match stream.mark_at {
                Some(at) if frontier < at => self.marks.push(id),
                _ => {
                    stream.mark_at = stream.mark_again.take();
                    let again = stream.mark_at.is_some();
                    self.queue_mark(id, frontier);
                    if again {
                        self.marks.push(id);
                    }
                }
            }
        }
    }

    fn queue_mark(&mut self, id: StreamId, frontier: Revision) {
        let stream = &self.streams[id.slot as usize];
        // Who asks again before the last answer is read learns nothing new from another.
        let said = stream.items.back().is_some_and(|item| {
            matches!(item, Item::Mark(Mark { of: MarkOf::All { reverts }, revision })
                if *reverts == stream.reverts && *revision == frontier)
        });
        if said || !stream.late.is_empty() {
            return;
        }
        let level = |slot: &u32| is_level(&self.watchers[*slot as usize], frontier);
        if stream.watchers.is_empty() || !stream.watchers.values().all(level) {
            return;
        }
        let mark = Mark { of: MarkOf::All { reverts: stream.reverts }, revision: frontier };
        self.streams[id.slot as usize].push(Item::Mark(mark), &mut self.awake);
    }

    /// The time for periodic marks has come: watchers that asked for them and were told nothing since
    /// the last time get one.
    pub fn tick(&mut self, id: StreamId) {
        let frontier = self.frontier();
        let Some(stream) = self.streams.get_mut(id.slot as usize).filter(|stream| stream.id == id) else {
            return;
        };
        let slots: Vec<u32> = stream.watchers.values().copied().collect();
        for slot in slots {
            let watcher = &mut self.watchers[slot as usize];
            let told = std::mem::replace(&mut watcher.told, false);
            if watcher.spec.progress && !told && is_level(watcher, frontier) {
                let of = MarkOf::Watcher { watcher: slot, epoch: watcher.epoch };
                stream.push(Item::Mark(Mark { of, revision: frontier }), &mut self.awake);
            }
        }
    }
}

/// Owed nothing up to the frontier, and meant to start by then. One that starts after what readers
/// saw when it was made may still be ahead of the frontier: a mark would take it back.
fn is_level(watcher: &Watcher, frontier: Revision) -> bool {
    watcher.is_synced()
        && watcher.next <= frontier.next()
        && watcher.spec.start.is_none_or(|start| start <= frontier)
}
