//! Tells the synced watchers of a revision as it is published.
//!
//! The cost is that of the watchers that match, plus the look-up. Nobody is waited for: a stream
//! without room for one more note leaves its watcher behind, at this very revision.

use crate::core::{Core, key_of};
use crate::encoded::{Encoded, Form};
use crate::range_tree::VisitRound;
use crate::stream::{Item, Note};
use crate::watcher;
use meerkat_types::{Event, Revision};
use std::sync::Arc;

impl Core {
    /// Takes the next revision. They come in order and without a gap. Says how many were told.
    pub fn publish(&mut self, batch: &Arc<Encoded>) -> usize {
        let kept = self.ring.push(batch);
        self.rounds += 1;
        let mut told = 0;
        for event in batch.events() {
            self.find_synced(event);
            told += self.matched.len();
            self.tell_matched(event, batch.revision(), kept);
        }
        self.queue_due_marks();
        self.relieve();
        told
    }

    /// Revisions up to `frontier` will not be published: the state was replaced, or they came faster
    /// than they could be told. Whoever is owed some of them reads history.
    pub fn jump(&mut self, frontier: Revision) {
        let passed = self.frontier();
        self.ring.jump(frontier);
        let owed: Vec<(u32, Revision)> = self
            .watchers
            .iter()
            .filter(|(_, watcher)| watcher.is_synced())
            .map(|(slot, watcher)| (slot as u32, watcher.next.max(passed.next())))
            .filter(|(_, next)| *next <= frontier)
            .collect();
        for (slot, next) in owed {
            self.send_to_history(slot, next);
        }
        self.queue_due_marks();
    }

    fn find_synced(&mut self, event: &Event) {
        let Core { synced, watchers, matched, .. } = self;
        matched.clear();
        let round = VisitRound { number: self.rounds, kind: watcher::kind_of(event) };
        synced.visit(watcher::key_of(event), round, |slot| key_of(watchers, slot), &mut |slots| {
            matched.extend_from_slice(slots);
        });
    }

    fn tell_matched(&mut self, event: &Event, revision: Revision, kept: bool) {
        let matched = std::mem::take(&mut self.matched);
        for &slot in &matched {
            let watcher = &mut self.watchers[slot as usize];
            // Below `next`: it starts later, or an earlier event of this revision has told it.
            if revision < watcher.next || !watcher.spec.filter.admits(event) {
                continue;
            }
            let stream = &mut self.streams[watcher.stream.slot as usize];
            let room = stream.notes - stream.dealt < self.config.outbox_items_max(stream.watchers.len());
            if !room {
                self.fall_behind(slot, revision);
                continue;
            }
            if !kept {
                self.send_to_history(slot, revision);
                continue;
            }
            watcher.next = revision.next();
            watcher.told = true;
            let form = if watcher.spec.previous { Form::WithPrevious } else { Form::Plain };
            let note = Note { watcher: slot, epoch: watcher.epoch, revision, held: None, form, dealt: false };
            stream.push(Item::Note(note), &mut self.awake);
        }
        self.matched = matched;
    }
}
