//! How often each kind of step, option and reply came up; none may be missing.
//!
//! Kinds are read off the steps and the transcripts themselves, not noted by the generator, so that
//! a generator which only believes it made something is found out.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{RequestOp, TxnRequest, WatchCreateRequest, request_op};

use super::allow_list::Row;
use super::step::Step;
use super::transcript::{General, Transcript};
use super::world::{Phase, StreamState, World, is_delete};
use crate::differential::keys;
use crate::differential::request::Request;

/// Kinds that every run must contain.
const KINDS: &[&str] = &[
    "change: put",
    "change: delete of a key",
    "change: delete of a range",
    "change: txn of several keys",
    "change: txn that changes nothing",
    "change: txn, a key deleted then put",
    "change: txn, a key put then deleted",
    "change: compaction, logical",
    "change: compaction, physical",
    "change: compaction at the current revision",
    "change: compaction where a key was deleted",
    "stream: opened",
    "stream: opened, requires a leader",
    "stream: half-closed",
    "stream: half-closed, then given events",
    "stream: closed",
    "stream: empty request",
    "stream: unknown request",
    "span: one key",
    "span: interval",
    "span: prefix",
    "span: from key",
    "span: everything",
    "span: nothing",
    "span: empty key alone",
    "span: empty key, end 0",
    "span: empty key, some end",
    "id: the server's choice",
    "id: chosen",
    "id: chosen, negative",
    "id: in use",
    "id: used before",
    "start: from now",
    "start: past",
    "start: the current revision",
    "start: the next revision",
    "start: future",
    "start: compacted",
    "start: the compacted revision",
    "start: the compacted revision, a deletion",
    "start: negative",
    "option: prev_kv",
    "option: fragment",
    "option: progress_notify",
    "option: no puts",
    "option: no deletes",
    "option: no puts, no deletes",
    "option: unknown filter",
    "cancel: a watcher",
    "cancel: an id never used",
    "cancel: an id canceled before",
    "cancel: a watcher that compaction ended",
    "progress: asked, to be answered",
    "progress: asked without watchers",
    "progress: asked before a watcher begins",
    "progress: asked while compaction has ended a watcher",
    "reply: watcher range is empty",
    "reply: duplicate watch id",
    "reply: negative start refused",
    "reply: canceled",
    "reply: canceled by compaction",
    "reply: progress",
    "event: put",
    "event: delete",
    "event: with a previous value",
];

/// Counts of everything that came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    kinds: BTreeMap<&'static str, u64>,
    allowed: BTreeMap<Row, u64>,
}

impl Coverage {
    /// Counts one kind.
    pub fn count(&mut self, kind: &'static str, when: bool) {
        debug_assert!(KINDS.contains(&kind), "{kind} is in the list");
        if when {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// Counts a use of the allow-list.
    pub fn allow(&mut self, row: Row) {
        *self.allowed.entry(row).or_default() += 1;
    }

    /// How often a row was needed.
    pub fn allowed(&self, row: Row) -> u64 {
        self.allowed.get(&row).copied().unwrap_or(0)
    }

    /// Counts a step, before it is taken.
    pub fn note_step(&mut self, step: &Step, world: &World) {
        match step {
            Step::Change { request, .. } => self.note_change(request, world),
            Step::Open { requires_leader, .. } => {
                self.count("stream: opened", true);
                self.count("stream: opened, requires a leader", *requires_leader);
            }
            Step::Close { .. } => self.count("stream: closed", true),
            Step::HalfClose { .. } => self.count("stream: half-closed", true),
            Step::Create { stream, request } => {
                self.note_span(request);
                self.note_id(request.watch_id, &world.streams[*stream]);
                self.note_start(request.start_revision, world);
                self.note_options(request);
            }
            Step::Cancel { stream, id } => self.note_cancel(*id, &world.streams[*stream]),
            Step::Progress { stream } => self.note_progress(*stream, world),
            Step::Nonsense { message, .. } => {
                self.count("stream: empty request", message.is_empty());
                self.count("stream: unknown request", !message.is_empty());
            }
            Step::Compare => {}
        }
    }

    fn note_change(&mut self, request: &Request, world: &World) {
        match request {
            Request::Put(_) => self.count("change: put", true),
            Request::Delete(delete) => {
                self.count("change: delete of a key", delete.range_end.is_empty());
                self.count("change: delete of a range", !delete.range_end.is_empty());
            }
            Request::Txn(txn) => self.note_txn(txn),
            Request::Compact(compaction) => {
                let revision = compaction.revision;
                self.count("change: compaction, physical", compaction.physical);
                self.count("change: compaction, logical", !compaction.physical);
                self.count("change: compaction at the current revision", revision == world.revision);
                let deletes = world.at(revision).any(is_delete);
                self.count("change: compaction where a key was deleted", deletes);
            }
            Request::Range(_) => {}
        }
    }

    fn note_txn(&mut self, txn: &TxnRequest) {
        use request_op::Request::{RequestDeleteRange, RequestPut};
        self.count("change: txn that changes nothing", txn.success.is_empty());
        let puts = |op: &&RequestOp| matches!(op.request, Some(RequestPut(_)));
        self.count("change: txn of several keys", 1 < txn.success.iter().filter(puts).count());
        let both = |delete: &RequestOp, put: &RequestOp| match (&delete.request, &put.request) {
            (Some(RequestDeleteRange(delete)), Some(RequestPut(put))) => {
                delete.range_end.as_ref() == b"\0" && delete.key <= put.key
            }
            _ => false,
        };
        for pair in txn.success.windows(2) {
            self.count("change: txn, a key deleted then put", both(&pair[0], &pair[1]));
            self.count("change: txn, a key put then deleted", both(&pair[1], &pair[0]));
        }
    }

    fn note_span(&mut self, request: &WatchCreateRequest) {
        let end = &request.range_end;
        let kind = match (request.key.as_ref(), end.as_ref()) {
            (b"", b"") => "span: empty key alone",
            (b"", b"\0") => "span: empty key, end 0",
            (b"", _) => "span: empty key, some end",
            (_, b"") => "span: one key",
            (b"\0", b"\0") => "span: everything",
            (_, b"\0") => "span: from key",
            (key, end) if end <= key => "span: nothing",
            (key, end) if Bytes::copy_from_slice(end) == keys::prefix_end(key) => "span: prefix",
            _ => "span: interval",
        };
        self.count(kind, true);
    }

    fn note_id(&mut self, id: i64, state: &StreamState) {
        self.count("id: the server's choice", id == 0);
        self.count("id: chosen", id != 0);
        self.count("id: chosen, negative", id < 0);
        self.count("id: in use", id != 0 && state.holder(id).is_some());
        self.count("id: used before", id != 0 && state.free_ids().contains(&id));
    }

    fn note_start(&mut self, start: i64, world: &World) {
        let (now, compacted) = (world.revision, world.compacted);
        let kind = match start {
            0 => "start: from now",
            ..0 => "start: negative",
            _ if start < compacted => "start: compacted",
            _ if start == compacted => "start: the compacted revision",
            _ if start < now => "start: past",
            _ if start == now => "start: the current revision",
            _ if start == now + 1 => "start: the next revision",
            _ => "start: future",
        };
        self.count(kind, true);
        let deletes = start == compacted && world.at(start).any(is_delete);
        self.count("start: the compacted revision, a deletion", deletes);
    }

    fn note_options(&mut self, request: &WatchCreateRequest) {
        let (no_puts, no_deletes) = (request.filters.contains(&0), request.filters.contains(&1));
        self.count("option: prev_kv", request.prev_kv);
        self.count("option: fragment", request.fragment);
        self.count("option: progress_notify", request.progress_notify);
        self.count("option: no puts", no_puts && !no_deletes);
        self.count("option: no deletes", no_deletes && !no_puts);
        self.count("option: no puts, no deletes", no_puts && no_deletes);
        self.count("option: unknown filter", request.filters.iter().any(|filter| !(0..2).contains(filter)));
    }

    fn note_cancel(&mut self, id: i64, state: &StreamState) {
        let holder = state.holder(id);
        let known = state.watchers.contains_key(&id);
        self.count("cancel: a watcher", holder.is_some());
        self.count("cancel: a watcher that compaction ended", holder.is_some_and(|it| it.is_compacted()));
        self.count("cancel: an id canceled before", known && holder.is_none());
        self.count("cancel: an id never used", !known);
    }

    fn note_progress(&mut self, stream: usize, world: &World) {
        let state = &world.streams[stream];
        let early = state.live().any(|watcher| world.revision < watcher.request.start_revision);
        self.count("progress: asked, to be answered", world.answers_progress(stream));
        self.count("progress: asked without watchers", state.live().next().is_none());
        self.count("progress: asked before a watcher begins", early);
        let ended = state.live().any(super::world::Watcher::is_compacted);
        self.count("progress: asked while compaction has ended a watcher", ended);
    }

    /// Counts what a stream has said; once for each stream, when it is over.
    pub fn note_heard(&mut self, heard: &Transcript, phase: Phase) {
        for general in &heard.general {
            match general {
                General::Progress { .. } => self.count("reply: progress", true),
                General::Refused { reason, .. } => {
                    self.count("reply: watcher range is empty", reason.contains("range is empty"));
                    self.count("reply: duplicate watch id", reason.contains("duplicate watch ID"));
                    self.count("reply: negative start refused", reason.contains("compacted"));
                }
            }
        }
        let lives = heard.ids().flat_map(|id| heard.lives(id)).collect::<Vec<_>>();
        for life in &lives {
            for end in &life.ends {
                self.count("reply: canceled", end.compact_revision == 0);
                self.count("reply: canceled by compaction", end.compact_revision != 0);
            }
            for event in &life.events {
                self.count("event: put", !is_delete(event));
                self.count("event: delete", is_delete(event));
                self.count("event: with a previous value", event.prev_kv.is_some());
            }
        }
        let given = lives.iter().any(|life| !life.events.is_empty());
        self.count("stream: half-closed, then given events", phase == Phase::HalfClosed && given);
    }

    /// What should have come up and did not.
    pub fn gaps(&self) -> Vec<String> {
        let missing = KINDS.iter().filter(|kind| !self.kinds.contains_key(*kind));
        missing.map(|kind| format!("never exercised: {kind}")).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in KINDS {
            writeln!(f, "  {:>6}  {kind}", self.kinds.get(kind).copied().unwrap_or(0))?;
        }
        for row in Row::ALL {
            writeln!(f, "  {:>6}  allowed difference {row:?}", self.allowed(row))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_exercised_is_a_gap_for_every_kind() {
        assert_eq!(Coverage::default().gaps().len(), KINDS.len());
    }

    #[test]
    fn what_came_up_is_no_gap() {
        let mut coverage = Coverage::default();
        coverage.note_step(&Step::Open { member: 0, requires_leader: false }, &World::new(1));
        assert_eq!(coverage.gaps().len(), KINDS.len() - 1);
    }
}
