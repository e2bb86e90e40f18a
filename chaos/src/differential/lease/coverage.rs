//! Kinds of steps and answers that every run must contain.

use meerkat_proto::pb::etcdserver::compare::{CompareResult, TargetUnion};
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest, RequestOp, TxnRequest, request_op};

use super::answer::LeaseAnswer;
use super::generator::TTL_MAX;
use super::names::is_picked;
use super::step::{Ask, Step};
use super::world::World;
use crate::differential::coverage::Coverage;
use crate::differential::request::{Answer, Request};

/// All of them.
pub const KINDS: &str = "\
grant: the server's choice; chosen; chosen, negative; the least and the largest id
grant: of a lease that exists; of a lease that existed; TTL of 0; negative TTL; TTL below the floor
grant: the longest TTL; TTL above the longest
revoke: without keys; with one key; with several keys; with many keys
revoke: of a lease that a server named; of a lease that existed; of a lease that never existed
revoke: of lease 0
time to live: with keys, some; with keys, none; without keys; of a lease that existed
time to live: of a lease that never existed; of lease 0
leases: some
stream: opened; half-closed; closed; several open
renew: a lease; a lease that existed; a lease that never existed; lease 0; several at once
put: with a lease; with an unknown lease; takes a key off its lease; moves a key to another lease
put: ignore_lease, key has one; ignore_lease, key has none; ignore_value with a lease
delete: of attached keys
txn: put with a lease; nested put with a lease; two leases; an unknown lease
txn: an attached key deleted; success taken; failure taken
compare: lease, equal; lease, not equal; lease, greater; lease, less; lease, of a range
answer: granted; lease already exists; too large lease TTL; requested lease not found; revoked
answer: renewed; not renewed; no such lease; to a put, requested lease not found; lease is provided
answer: key not found
expiry: with keys; without keys; after a renewal; after a key left the lease";

/// The kind that only clusters of several members can show.
pub const NO_LEADER: &str = "answer: no leader";

/// Counts a step, before it is taken.
pub fn note_step(kinds: &mut Coverage, step: &Step, world: &World) {
    match step {
        Step::Ask { ask: Ask::Grant(grant), .. } => note_grant(kinds, grant, world),
        Step::Ask { ask: Ask::Revoke(lease), .. } => note_revoke(kinds, *lease, world),
        Step::Ask { ask: Ask::TimeToLive { lease, keys }, .. } => {
            note_time_to_live(kinds, *lease, *keys, world);
        }
        Step::Ask { ask: Ask::Leases, .. } => kinds.count("leases: some", 1 < world.leases.len()),
        Step::Kv { request, .. } => note_request(kinds, request, world),
        Step::Open { .. } => {
            kinds.count("stream: opened", true);
            kinds.count("stream: several open", !world.open_streams().is_empty());
        }
        Step::HalfClose { .. } => kinds.count("stream: half-closed", true),
        Step::Close { .. } => kinds.count("stream: closed", true),
        Step::Renew { leases, .. } => {
            kinds.count("renew: several at once", 1 < leases.len());
            for lease in leases {
                kinds.count("renew: a lease", world.leases.contains_key(lease));
                kinds.count("renew: a lease that existed", world.gone.contains(lease));
                kinds.count("renew: a lease that never existed", *lease != 0 && never(*lease, world));
                kinds.count("renew: lease 0", *lease == 0);
            }
        }
    }
}

fn note_grant(kinds: &mut Coverage, grant: &LeaseGrantRequest, world: &World) {
    let LeaseGrantRequest { ttl, id } = *grant;
    kinds.count("grant: the server's choice", id == 0);
    kinds.count("grant: chosen", 0 < id);
    kinds.count("grant: chosen, negative", id < 0);
    kinds.count("grant: the least and the largest id", id == i64::MAX || id == i64::MIN);
    kinds.count("grant: of a lease that exists", world.leases.contains_key(&id));
    kinds.count("grant: of a lease that existed", world.gone.contains(&id));
    kinds.count("grant: the longest TTL", ttl == TTL_MAX);
    kinds.count("grant: TTL above the longest", TTL_MAX < ttl);
}

fn note_revoke(kinds: &mut Coverage, lease: i64, world: &World) {
    let exists = world.leases.contains_key(&lease);
    let keys = world.keys_of(lease).len();
    kinds.count("revoke: without keys", exists && keys == 0);
    kinds.count("revoke: with one key", exists && keys == 1);
    kinds.count("revoke: with several keys", exists && (2..20).contains(&keys));
    kinds.count("revoke: with many keys", exists && 20 <= keys);
    kinds.count("revoke: of a lease that a server named", exists && is_picked(lease));
    kinds.count("revoke: of a lease that existed", world.gone.contains(&lease));
    kinds.count("revoke: of a lease that never existed", lease != 0 && never(lease, world));
    kinds.count("revoke: of lease 0", lease == 0);
}

fn note_time_to_live(kinds: &mut Coverage, lease: i64, keys: bool, world: &World) {
    let exists = world.leases.contains_key(&lease);
    let some = !world.keys_of(lease).is_empty();
    kinds.count("time to live: with keys, some", exists && keys && some);
    kinds.count("time to live: with keys, none", exists && keys && !some);
    kinds.count("time to live: without keys", exists && !keys);
    kinds.count("time to live: of a lease that existed", world.gone.contains(&lease));
    kinds.count("time to live: of a lease that never existed", lease != 0 && never(lease, world));
    kinds.count("time to live: of lease 0", lease == 0);
}

fn note_request(kinds: &mut Coverage, request: &Request, world: &World) {
    match request {
        Request::Put(put) => note_put(kinds, put, world),
        Request::Delete(delete) => {
            let attached = world.keys.get(&delete.key).is_some_and(|lease| *lease != 0);
            kinds.count("delete: of attached keys", attached);
        }
        Request::Txn(txn) => note_txn(kinds, txn, world, false),
        Request::Range(_) | Request::Compact(_) => {}
    }
}

fn note_put(kinds: &mut Coverage, put: &PutRequest, world: &World) {
    let known = world.leases.contains_key(&put.lease);
    let has = world.keys.get(&put.key).copied();
    let attached = has.filter(|lease| *lease != 0);
    let plain = !put.ignore_lease;
    kinds.count("put: with a lease", plain && known);
    kinds.count("put: with an unknown lease", plain && put.lease != 0 && !known);
    kinds.count("put: takes a key off its lease", plain && put.lease == 0 && attached.is_some());
    let moves = attached.is_some_and(|lease| lease != put.lease);
    kinds.count("put: moves a key to another lease", plain && known && moves);
    kinds.count("put: ignore_lease, key has one", put.ignore_lease && attached.is_some());
    kinds.count("put: ignore_lease, key has none", put.ignore_lease && has == Some(0));
    kinds.count("put: ignore_value with a lease", put.ignore_value && plain && known);
}

fn note_txn(kinds: &mut Coverage, txn: &TxnRequest, world: &World, nested: bool) {
    let mut leases = Vec::new();
    for RequestOp { request } in txn.success.iter().chain(&txn.failure) {
        match request {
            Some(request_op::Request::RequestPut(put)) if put.lease != 0 => leases.push(put.lease),
            Some(request_op::Request::RequestTxn(txn)) => note_txn(kinds, txn, world, true),
            Some(request_op::Request::RequestDeleteRange(delete)) => {
                let attached = world.keys.get(&delete.key).is_some_and(|lease| *lease != 0);
                kinds.count("txn: an attached key deleted", attached);
            }
            _ => {}
        }
    }
    let known = |lease: &&i64| world.leases.contains_key(lease);
    kinds.count("txn: put with a lease", !nested && leases.iter().any(|lease| known(&lease)));
    kinds.count("txn: nested put with a lease", nested && leases.iter().any(|lease| known(&lease)));
    kinds.count("txn: an unknown lease", leases.iter().any(|lease| !known(&lease)));
    let mut distinct: Vec<&i64> = leases.iter().filter(known).collect();
    distinct.sort_unstable();
    distinct.dedup();
    kinds.count("txn: two leases", 1 < distinct.len());
    for compare in &txn.compare {
        let about = matches!(compare.target_union, Some(TargetUnion::Lease(_)));
        let asks = |result: CompareResult| about && compare.result == result as i32;
        kinds.count("compare: lease, equal", asks(CompareResult::Equal));
        kinds.count("compare: lease, not equal", asks(CompareResult::NotEqual));
        kinds.count("compare: lease, greater", asks(CompareResult::Greater));
        kinds.count("compare: lease, less", asks(CompareResult::Less));
        kinds.count("compare: lease, of a range", about && !compare.range_end.is_empty());
    }
}

/// Counts an answer of the Lease service.
pub fn note_answer(kinds: &mut Coverage, answer: &LeaseAnswer) {
    match answer {
        LeaseAnswer::Grant(_) => kinds.count("answer: granted", true),
        LeaseAnswer::Revoke(_) => kinds.count("answer: revoked", true),
        LeaseAnswer::TimeToLive(answer) => kinds.count("answer: no such lease", answer.ttl == -1),
        LeaseAnswer::KeepAlive(answer) => {
            kinds.count("answer: renewed", 0 < answer.ttl);
            kinds.count("answer: not renewed", answer.ttl == 0);
        }
        LeaseAnswer::Refused(_, text) => {
            kinds.count("answer: lease already exists", text == "etcdserver: lease already exists");
            kinds.count("answer: too large lease TTL", text == "etcdserver: too large lease TTL");
            let not_found = text == "etcdserver: requested lease not found";
            kinds.count("answer: requested lease not found", not_found);
        }
        LeaseAnswer::Leases(_) | LeaseAnswer::Ended => {}
    }
}

/// Counts an answer of the KV service.
pub fn note_change(kinds: &mut Coverage, answer: &Answer) {
    match answer {
        Answer::Txn(txn) => {
            kinds.count("txn: success taken", txn.succeeded);
            kinds.count("txn: failure taken", !txn.succeeded);
        }
        Answer::Refused(_, text) => {
            let not_found = text == "etcdserver: requested lease not found";
            kinds.count("answer: to a put, requested lease not found", not_found);
            kinds.count("answer: lease is provided", text == "etcdserver: lease is provided");
            kinds.count("answer: key not found", text == "etcdserver: key not found");
        }
        Answer::Range(_) | Answer::Put(_) | Answer::Delete(_) | Answer::Compact(_) => {}
    }
}

fn never(lease: i64, world: &World) -> bool {
    !world.leases.contains_key(&lease) && !world.gone.contains(&lease)
}
