//! Brings late watchers level with the frontier.
//!
//! Streams whose reader is active and that have late watchers stand in line. A round is for the one
//! at the front, from the lowest revision any of its watchers is owed; every watcher of a stream in
//! line whose own position lies within what the round reads takes part, so that many who are late
//! by about the same share one read and soon go together. The ring serves rounds at once; behind it
//! the caller reads history, without the lock, and deals what it found.
//!
//! A watcher becomes synced only here, under the lock, with nothing owed up to the frontier. That is
//! why `dispatch` need not know of this room.

use crate::core::{Core, key_of};
use crate::encoded::{Encoded, Form};
use crate::history::Horizon;
use crate::range_tree::VisitRound;
use crate::stream::{Control, End, Item, Note, SlowPolicy, StreamId};
use crate::watcher::{self, State, Watcher};
use meerkat_types::{Event, HistoryAnswer, HistoryQuery, Revision};
use std::sync::Arc;

/// What to do for late watchers next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was dealt from memory; ask again.
    Dealt,
    /// History is to be read, and dealt.
    Read(HistoryQuery),
    /// Nobody is waiting.
    Nothing,
}

/// Where the events of a round come from, and for whom they will do.
#[derive(Clone, Copy)]
struct Round {
    number: u64,
    first: Revision,
    with_previous: bool,
    newest_only: bool,
    from_ring: bool,
    oldest: Option<Revision>,
}

impl Core {
    /// Puts a stream in line for history, if it has late watchers and room for what they are owed.
    pub(crate) fn line_up(&mut self, id: StreamId) {
        let (history_bytes, config) = (self.config.stream_history_bytes, self.config);
        let Some(stream) = self.stream_mut(id) else { return };
        let room = stream.dealt * 2 < config.outbox_items_max(stream.watchers.len())
            && stream.held_bytes * 2 < history_bytes;
        if !stream.late.is_empty() && room && !stream.hungry && stream.end.is_none() {
            stream.hungry = true;
            self.hungry.push_back(id);
            self.lined_up = true;
        }
    }

    /// Whether somebody joined the line since this was last asked.
    pub fn take_lined_up(&mut self) -> bool {
        std::mem::take(&mut self.lined_up)
    }

    /// One round from memory, and then the read that the next round needs, if it needs one.
    pub fn step(&mut self, horizon: Horizon) -> Step {
        let Some(id) = self.hungry.pop_front() else { return Step::Nothing };
        let Some(stream) = self.stream_mut(id) else { return Step::Dealt };
        if stream.late.is_empty() || stream.end.is_some() {
            stream.hungry = false;
            return Step::Dealt;
        }
        let newest_only = stream.options.slow == SlowPolicy::Coalesce;
        self.hungry.push_back(id);
        self.end_compacted(id, horizon.oldest);
        // Who is only a little late does not wait for a neighbour who starts far back.
        if !newest_only && let Some(first) = self.lowest_in_ring(id) {
            self.deal_ring(first, horizon.oldest);
        }
        let behind = self.late_of(id).map(|watcher| watcher.next).min();
        let Some(first) = behind.filter(|first| newest_only || self.ring.get(*first).is_none()) else {
            return Step::Dealt;
        };
        if !self.streams[id.slot as usize].hungry {
            return Step::Dealt;
        }
        self.counts.history_reads += 1;
        Step::Read(HistoryQuery {
            first,
            last: self.frontier(),
            events_max: self.config.scan_events,
            bytes_max: self.config.scan_bytes,
            with_previous: self.late_of(id).any(|watcher| watcher.spec.previous),
            newest_only,
        })
    }

    /// Deals to those in line whom the ring can serve, while a read for somebody else is under way.
    pub fn step_ring(&mut self, horizon: Horizon) {
        let waits = |id: &&StreamId| {
            let stream = self.streams.get(id.slot as usize).filter(|stream| stream.id == **id);
            stream.is_some_and(|stream| stream.options.slow != SlowPolicy::Coalesce)
        };
        let lowest = self.hungry.iter().filter(waits).filter_map(|id| self.lowest_in_ring(*id));
        if let Some(first) = lowest.filter(|first| horizon.oldest <= Some(*first)).min() {
            self.deal_ring(first, horizon.oldest);
        }
    }

    /// Ends the watchers of a stream whose history is gone.
    fn end_compacted(&mut self, id: StreamId, oldest: Option<Revision>) {
        let Some(oldest) = oldest else { return };
        let is_gone = |slot: &u32| self.watchers[*slot as usize].next < oldest;
        let gone: Vec<u32> = self.streams[id.slot as usize].late.iter().copied().filter(is_gone).collect();
        for slot in gone {
            let id = self.watchers[slot as usize].spec.id;
            self.end(slot, Control::Compacted { id, oldest });
        }
    }

    fn late_of(&self, id: StreamId) -> impl Iterator<Item = &Watcher> {
        self.streams[id.slot as usize].late.iter().map(|slot| &self.watchers[*slot as usize])
    }

    /// The lowest revision that the ring has of those that late watchers of the stream are owed next.
    fn lowest_in_ring(&self, id: StreamId) -> Option<Revision> {
        self.late_of(id).map(|watcher| watcher.next).filter(|next| self.ring.get(*next).is_some()).min()
    }

    fn deal_ring(&mut self, first: Revision, oldest: Option<Revision>) {
        let round = self.begin(first, true, false, true, oldest);
        let mut at = first;
        for _ in 0..self.config.ring_round {
            let Some(batch) = self.ring.get(at).cloned() else { break };
            self.deal_batch(&round, &batch);
            at = at.next();
        }
        self.finish(&round, at);
    }

    /// Deals what a read found. Watchers may have come and gone since it was asked for.
    pub fn deal(&mut self, query: &HistoryQuery, past: HistoryAnswer) {
        assert!(query.first < past.next, "a read of history gets on");
        let round = self.begin(query.first, query.with_previous, query.newest_only, false, None);
        for batch in past.batches {
            let batch = Encoded::new(batch, &self.meter);
            self.deal_batch(&round, &batch);
        }
        self.finish(&round, past.next.min(query.last.next()));
        self.relieve();
    }

    /// History cannot be read: those in line who need it are told. Whom the ring can serve stay.
    pub fn fail_history(&mut self, reason: &str) {
        for id in std::mem::take(&mut self.hungry) {
            if self.stream_mut(id).is_none() {
                continue;
            }
            if self.late_of(id).all(|watcher| self.ring.get(watcher.next).is_some()) {
                self.hungry.push_back(id);
                continue;
            }
            let stream = &mut self.streams[id.slot as usize];
            stream.hungry = false;
            stream.finish(End::Unreadable(reason.to_owned()), &mut self.awake);
        }
    }

    fn begin(
        &mut self,
        first: Revision,
        with_previous: bool,
        newest_only: bool,
        from_ring: bool,
        oldest: Option<Revision>,
    ) -> Round {
        self.rounds += 1;
        Round { number: self.rounds, first, with_previous, newest_only, from_ring, oldest }
    }

    fn deal_batch(&mut self, round: &Round, batch: &Arc<Encoded>) {
        // Of the look-ups; the round of history has many revisions.
        self.rounds += 1;
        for event in batch.events() {
            let Core { late, watchers, matched, .. } = self;
            matched.clear();
            let look_up = VisitRound { number: self.rounds, kind: watcher::kind_of(event) };
            late.visit(watcher::key_of(event), look_up, |slot| key_of(watchers, slot), &mut |slots| {
                matched.extend_from_slice(slots);
            });
            self.deal_event(round, batch, event);
        }
    }

    fn deal_event(&mut self, round: &Round, batch: &Arc<Encoded>, event: &Event) {
        let revision = batch.revision();
        let matched = std::mem::take(&mut self.matched);
        for &slot in &matched {
            if !self.takes_part(round, &self.watchers[slot as usize]) {
                continue;
            }
            let watcher = &mut self.watchers[slot as usize];
            if revision < watcher.next || !watcher.spec.filter.admits(event) {
                continue;
            }
            let stream = &mut self.streams[watcher.stream.slot as usize];
            let room = if round.from_ring {
                stream.dealt < self.config.outbox_items_max(stream.watchers.len())
            } else {
                let bytes_max = self.config.stream_history_bytes;
                stream.held_bytes == 0 || stream.held_bytes + batch.weight() <= bytes_max
            };
            if !room {
                watcher.next = revision;
                watcher.held_back = round.number;
                stream.full_round = round.number;
                continue;
            }
            watcher.next = revision.next();
            watcher.told = true;
            // The value before a compacted revision counts as gone, wherever it still is.
            let previous = watcher.spec.previous && round.oldest < Some(revision);
            let form = if previous { Form::WithPrevious } else { Form::Plain };
            let held = (!round.from_ring).then(|| batch.clone());
            let note = Note { watcher: slot, epoch: watcher.epoch, revision, held, form, dealt: true };
            stream.push(Item::Note(note), &mut self.awake);
        }
        self.matched = matched;
    }

    /// Whether the watcher's position lies within the round, and the round has what it needs.
    fn takes_part(&self, round: &Round, watcher: &Watcher) -> bool {
        let stream = &self.streams[watcher.stream.slot as usize];
        let coalesces = stream.options.slow == SlowPolicy::Coalesce;
        watcher.is_late()
            && stream.hungry
            && round.first <= watcher.next
            && watcher.held_back != round.number
            && coalesces == round.newest_only
            && (round.with_previous || !watcher.spec.previous)
    }

    /// Everything from the round's first revision up to `next`, exclusive, was dealt.
    fn finish(&mut self, round: &Round, next: Revision) {
        let line: Vec<StreamId> = self.hungry.iter().copied().collect();
        for id in line {
            if self.stream_mut(id).is_none() {
                continue;
            }
            let late: Vec<u32> = self.streams[id.slot as usize].late.iter().copied().collect();
            for slot in late {
                let watcher = &self.watchers[slot as usize];
                if self.takes_part(round, watcher) && watcher.next < next {
                    self.watchers[slot as usize].next = next;
                }
                if self.frontier() < self.watchers[slot as usize].next {
                    self.catch_up(slot);
                }
            }
        }
        self.leave_line(round);
    }

    fn catch_up(&mut self, slot: u32) {
        assert!(matches!(self.watchers[slot as usize].state, State::CatchingUp { .. }));
        self.leave(slot);
        self.enter_synced(slot);
        self.counts.caught_up += 1;
    }

    /// Who has nobody late or no room left stands in line no longer, until its reader has read.
    fn leave_line(&mut self, round: &Round) {
        let streams = &mut self.streams;
        self.hungry.retain(|id| {
            let Some(stream) = streams.get_mut(id.slot as usize).filter(|stream| stream.id == *id) else {
                return false;
            };
            let room = stream.full_round != round.number;
            stream.hungry = !stream.late.is_empty() && room && stream.end.is_none();
            stream.hungry
        });
    }
}
