//! Kinds of steps and replies that every run must contain.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{RequestOp, TxnRequest, WatchCreateRequest, request_op};

use super::step::Step;
use super::transcript::{General, Transcript};
use super::world::{Phase, StreamState, Watcher, World, is_delete};
use crate::differential::coverage::Coverage;
use crate::differential::keys;
use crate::differential::kv::coverage::overlap;
use crate::differential::request::Request;

/// All of them.
pub const KINDS: &str = "\
change: put; delete of a key; delete of a range; txn of several keys; txn that changes nothing
change: txn, a key deleted then put; txn, a key put then deleted; compaction, logical
change: compaction, physical; compaction at the current revision; compaction where a key was deleted
stream: opened; opened, requires a leader; half-closed; half-closed, then given events; closed
stream: empty request; unknown request
span: one key; interval; prefix; from key; everything; nothing; empty key alone; empty key, end 0
span: empty key, some end
id: the server's choice; chosen; chosen, negative; in use; used before
start: from now; past; the current revision; the next revision; future; compacted
start: the compacted revision; the compacted revision, a deletion; negative
option: prev_kv; fragment; progress_notify; no puts; no deletes; no puts, no deletes; unknown filter
cancel: a watcher; an id never used; an id canceled before; a watcher that compaction ended
progress: asked, to be answered; asked without watchers; asked before a watcher begins
progress: asked while compaction has ended a watcher
reply: watcher range is empty; duplicate watch id; negative start refused; canceled
reply: canceled by compaction; progress
event: put; delete; with a previous value";

/// Counts a step, before it is taken.
pub fn note_step(kinds: &mut Coverage, step: &Step, world: &World) {
    match step {
        Step::Change { request, .. } => note_change(kinds, request, world),
        Step::Open { requires_leader, .. } => {
            kinds.count("stream: opened", true);
            kinds.count("stream: opened, requires a leader", *requires_leader);
        }
        Step::Close { .. } => kinds.count("stream: closed", true),
        Step::HalfClose { .. } => kinds.count("stream: half-closed", true),
        Step::Create { stream, request } => {
            note_span(kinds, request);
            note_id(kinds, request.watch_id, &world.streams[*stream]);
            note_start(kinds, request.start_revision, world);
            note_options(kinds, request);
        }
        Step::Cancel { stream, id } => note_cancel(kinds, *id, &world.streams[*stream]),
        Step::Progress { stream } => note_progress(kinds, *stream, world),
        Step::Nonsense { message, .. } => {
            kinds.count("stream: empty request", message.is_empty());
            kinds.count("stream: unknown request", !message.is_empty());
        }
        Step::Compare => {}
    }
}

fn note_change(kinds: &mut Coverage, request: &Request, world: &World) {
    match request {
        Request::Put(_) => kinds.count("change: put", true),
        Request::Delete(delete) => {
            kinds.count("change: delete of a key", delete.range_end.is_empty());
            kinds.count("change: delete of a range", !delete.range_end.is_empty());
        }
        Request::Txn(txn) => note_txn(kinds, txn),
        Request::Compact(compaction) => {
            let revision = compaction.revision;
            kinds.count("change: compaction, physical", compaction.physical);
            kinds.count("change: compaction, logical", !compaction.physical);
            kinds.count("change: compaction at the current revision", revision == world.revision);
            let deletes = world.at(revision).any(is_delete);
            kinds.count("change: compaction where a key was deleted", deletes);
        }
        Request::Range(_) => {}
    }
}

fn note_txn(kinds: &mut Coverage, txn: &TxnRequest) {
    use request_op::Request::RequestPut;
    kinds.count("change: txn that changes nothing", txn.success.is_empty());
    let puts = |op: &&RequestOp| matches!(op.request, Some(RequestPut(_)));
    kinds.count("change: txn of several keys", 1 < txn.success.iter().filter(puts).count());
    for pair in txn.success.windows(2) {
        kinds.count("change: txn, a key deleted then put", overlap(&pair[0], &pair[1]));
        kinds.count("change: txn, a key put then deleted", overlap(&pair[1], &pair[0]));
    }
}

fn note_span(kinds: &mut Coverage, request: &WatchCreateRequest) {
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
    kinds.count(kind, true);
}

fn note_id(kinds: &mut Coverage, id: i64, state: &StreamState) {
    kinds.count("id: the server's choice", id == 0);
    kinds.count("id: chosen", id != 0);
    kinds.count("id: chosen, negative", id < 0);
    kinds.count("id: in use", id != 0 && state.holder(id).is_some());
    kinds.count("id: used before", id != 0 && state.free_ids().contains(&id));
}

fn note_start(kinds: &mut Coverage, start: i64, world: &World) {
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
    kinds.count(kind, true);
    let deletes = start == compacted && world.at(start).any(is_delete);
    kinds.count("start: the compacted revision, a deletion", deletes);
}

fn note_options(kinds: &mut Coverage, request: &WatchCreateRequest) {
    let (no_puts, no_deletes) = (request.filters.contains(&0), request.filters.contains(&1));
    kinds.count("option: prev_kv", request.prev_kv);
    kinds.count("option: fragment", request.fragment);
    kinds.count("option: progress_notify", request.progress_notify);
    kinds.count("option: no puts", no_puts && !no_deletes);
    kinds.count("option: no deletes", no_deletes && !no_puts);
    kinds.count("option: no puts, no deletes", no_puts && no_deletes);
    kinds.count("option: unknown filter", request.filters.iter().any(|filter| !(0..2).contains(filter)));
}

fn note_cancel(kinds: &mut Coverage, id: i64, state: &StreamState) {
    let holder = state.holder(id);
    let known = state.watchers.contains_key(&id);
    kinds.count("cancel: a watcher", holder.is_some());
    kinds.count("cancel: a watcher that compaction ended", holder.is_some_and(|it| it.is_compacted()));
    kinds.count("cancel: an id canceled before", known && holder.is_none());
    kinds.count("cancel: an id never used", !known);
}

fn note_progress(kinds: &mut Coverage, stream: usize, world: &World) {
    let state = &world.streams[stream];
    let early = state.live().any(|watcher| world.revision < watcher.request.start_revision);
    kinds.count("progress: asked, to be answered", world.answers_progress(stream));
    kinds.count("progress: asked without watchers", state.live().next().is_none());
    kinds.count("progress: asked before a watcher begins", early);
    let ended = state.live().any(Watcher::is_compacted);
    kinds.count("progress: asked while compaction has ended a watcher", ended);
}

/// Counts what a stream has said; once for each stream, when it is over.
pub fn note_heard(kinds: &mut Coverage, heard: &Transcript, phase: Phase) {
    for general in &heard.general {
        match general {
            General::Progress { .. } => kinds.count("reply: progress", true),
            General::Refused { reason, .. } => {
                kinds.count("reply: watcher range is empty", reason.contains("range is empty"));
                kinds.count("reply: duplicate watch id", reason.contains("duplicate watch ID"));
                kinds.count("reply: negative start refused", reason.contains("compacted"));
            }
        }
    }
    let lives = heard.ids().flat_map(|id| heard.lives(id)).collect::<Vec<_>>();
    for life in &lives {
        for end in &life.ends {
            kinds.count("reply: canceled", end.compact_revision == 0);
            kinds.count("reply: canceled by compaction", end.compact_revision != 0);
        }
        for event in &life.events {
            kinds.count("event: put", !is_delete(event));
            kinds.count("event: delete", is_delete(event));
            kinds.count("event: with a previous value", event.prev_kv.is_some());
        }
    }
    let given = lives.iter().any(|life| !life.events.is_empty());
    kinds.count("stream: half-closed, then given events", phase == Phase::HalfClosed && given);
}
