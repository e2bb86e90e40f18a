//! Gives the reader of a stream what is queued for it.
//!
//! Notes become revisions only here. One that has left the ring meanwhile sets its watcher back to
//! it; nothing after it is told before it. A progress mark behind such a note is swallowed.

use crate::core::Core;
use crate::encoded::{Encoded, Form};
use crate::stream::{Control, End, Item, Mark, MarkOf, Note, StreamId};
use crate::watcher::WatchSpec;
use std::sync::Arc;
use std::task::Waker;

/// About what an answer without events weighs.
const CONTROL_BYTES: usize = 64;

/// What a stream is to send.
#[derive(Debug)]
pub enum Out {
    Events(Delivery),
    Control(Control),
}

/// Revisions for one watcher, in order; those of its range and filter are to be sent, in one answer.
#[derive(Debug)]
pub struct Delivery {
    pub spec: Arc<WatchSpec>,
    pub form: Form,
    pub first: Arc<Encoded>,
    pub more: Vec<Arc<Encoded>>,
    watcher: u32,
    weight: usize,
}

impl Delivery {
    pub fn batches(&self) -> impl Iterator<Item = &Arc<Encoded>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub fn last(&self) -> &Arc<Encoded> {
        self.more.last().unwrap_or(&self.first)
    }
}

/// Whether there will be more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Something was given.
    Open,
    /// Nothing was there; the reader is woken when that changes.
    Parked,
    Ended(End),
}

impl Core {
    /// Moves up to about `budget` bytes of what is queued to `out`. If there is nothing, `reader` is
    /// kept, to be woken.
    pub fn take(&mut self, id: StreamId, budget: usize, reader: &Waker, out: &mut Vec<Out>) -> Taken {
        let mut left = budget;
        loop {
            let now_ms = self.now_ms;
            let Some(stream) = self.stream_mut(id) else { return Taken::Ended(End::Stopping) };
            if let Some(end) = &stream.end {
                return Taken::Ended(end.clone());
            }
            stream.read_ms = now_ms;
            if left == 0 {
                break;
            }
            let Some(item) = stream.pop() else { break };
            match item {
                Item::Control(control) => {
                    left = left.saturating_sub(CONTROL_BYTES);
                    out.push(Out::Control(control));
                }
                Item::Mark(mark) => out.extend(self.hold_mark(id, &mark).map(Out::Control)),
                Item::Note(note) => {
                    let weight = self.give(note, out);
                    left = left.saturating_sub(weight);
                }
            }
        }
        self.line_up(id);
        if !out.is_empty() {
            return Taken::Open;
        }
        let Some(stream) = self.stream_mut(id) else { return Taken::Ended(End::Stopping) };
        stream.reader = Some(reader.clone());
        Taken::Parked
    }

    /// Adds what a note stands for to `out`; says what it weighs.
    fn give(&mut self, note: Note, out: &mut Vec<Out>) -> usize {
        let watcher = self.watchers.get(note.watcher as usize);
        let Some(watcher) = watcher.filter(|watcher| watcher.epoch == note.epoch) else { return 0 };
        let Some(batch) = note.held.or_else(|| self.ring.get(note.revision).cloned()) else {
            self.revert(note.watcher, note.revision);
            return 0;
        };
        let weight = batch.weight();
        if let Some(Out::Events(last)) = out.last_mut()
            && last.watcher == note.watcher
            && last.form == note.form
            && last.weight + weight <= self.config.merge_bytes
        {
            last.weight += weight;
            last.more.push(batch);
            return weight;
        }
        let spec = watcher.spec.clone();
        let (watcher, form) = (note.watcher, note.form);
        out.push(Out::Events(Delivery { spec, form, first: batch, more: Vec::new(), watcher, weight }));
        weight
    }

    fn hold_mark(&self, id: StreamId, mark: &Mark) -> Option<Control> {
        let (id, holds) = match mark.of {
            MarkOf::All { reverts } => {
                (None, self.streams.get(id.slot as usize).is_some_and(|stream| stream.reverts == reverts))
            }
            MarkOf::Watcher { watcher, epoch } => {
                let watcher = self.watchers.get(watcher as usize);
                let watcher = watcher.filter(|watcher| watcher.epoch == epoch)?;
                (Some(watcher.spec.id), true)
            }
        };
        holds.then_some(Control::Progress { id, revision: mark.revision })
    }

    /// Notes that the stream is about to write out a large revision, which may take it long; with
    /// nothing, that it is done.
    pub fn set_in_flight(&mut self, id: StreamId, batch: Option<Arc<Encoded>>) {
        if let Some(stream) = self.stream_mut(id) {
            stream.in_flight = batch;
        }
    }

    /// The large revision that is being written out, unless its memory was needed.
    pub fn in_flight(&mut self, id: StreamId) -> Result<Arc<Encoded>, End> {
        let now_ms = self.now_ms;
        let Some(stream) = self.stream_mut(id) else { return Err(End::Stopping) };
        stream.read_ms = now_ms;
        match (&stream.in_flight, &stream.end) {
            (Some(batch), None) => Ok(batch.clone()),
            (_, end) => Err(end.clone().unwrap_or(End::OutOfMemory)),
        }
    }
}
