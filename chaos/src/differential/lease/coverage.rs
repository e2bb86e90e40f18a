//! How often each kind of step and answer came up; none may be missing.
//!
//! Kinds are read off the steps, the world before them and the answers, not noted by the generator,
//! so that a generator which only believes it made something is found out.

use std::collections::BTreeMap;
use std::fmt;

use meerkat_proto::pb::etcdserver::compare::{CompareResult, TargetUnion};
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest, RequestOp, TxnRequest, request_op};

use super::answer::LeaseAnswer;
use super::generator::TTL_MAX;
use super::names::is_picked;
use super::step::{Ask, Step};
use super::world::World;
use crate::differential::request::{Answer, Request};

/// Kinds that every run must contain.
const KINDS: &[&str] = &[
    "grant: the server's choice",
    "grant: chosen",
    "grant: chosen, negative",
    "grant: the least and the largest id",
    "grant: of a lease that exists",
    "grant: of a lease that existed",
    "grant: TTL of 0",
    "grant: negative TTL",
    "grant: TTL below the floor",
    "grant: the longest TTL",
    "grant: TTL above the longest",
    "revoke: without keys",
    "revoke: with one key",
    "revoke: with several keys",
    "revoke: with many keys",
    "revoke: of a lease that a server named",
    "revoke: of a lease that existed",
    "revoke: of a lease that never existed",
    "revoke: of lease 0",
    "time to live: with keys, some",
    "time to live: with keys, none",
    "time to live: without keys",
    "time to live: of a lease that existed",
    "time to live: of a lease that never existed",
    "time to live: of lease 0",
    "leases: some",
    "stream: opened",
    "stream: half-closed",
    "stream: closed",
    "stream: several open",
    "renew: a lease",
    "renew: a lease that existed",
    "renew: a lease that never existed",
    "renew: lease 0",
    "renew: several at once",
    "put: with a lease",
    "put: with an unknown lease",
    "put: takes a key off its lease",
    "put: moves a key to another lease",
    "put: ignore_lease, key has one",
    "put: ignore_lease, key has none",
    "put: ignore_value with a lease",
    "delete: of attached keys",
    "txn: put with a lease",
    "txn: nested put with a lease",
    "txn: two leases",
    "txn: an unknown lease",
    "txn: an attached key deleted",
    "compare: lease, equal",
    "compare: lease, not equal",
    "compare: lease, greater",
    "compare: lease, less",
    "compare: lease, of a range",
    "txn: success taken",
    "txn: failure taken",
    "answer: granted",
    "answer: lease already exists",
    "answer: too large lease TTL",
    "answer: requested lease not found",
    "answer: revoked",
    "answer: renewed",
    "answer: not renewed",
    "answer: no such lease",
    "answer: to a put, requested lease not found",
    "answer: lease is provided",
    "answer: key not found",
    "expiry: with keys",
    "expiry: without keys",
    "expiry: after a renewal",
    "expiry: after a key left the lease",
];

/// The kinds that only clusters of several members can show.
const KINDS_OF_SEVERAL: &[&str] = &["answer: no leader"];

/// Counts of everything that came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    kinds: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Counts a kind if it came up.
    pub fn count(&mut self, kind: &'static str, came_up: bool) {
        let known = KINDS.contains(&kind) || KINDS_OF_SEVERAL.contains(&kind);
        debug_assert!(known, "{kind} is not in the table");
        if came_up {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// Counts a step, before it is taken.
    pub fn note_step(&mut self, step: &Step, world: &World) {
        match step {
            Step::Ask { ask: Ask::Grant(grant), .. } => self.note_grant(grant, world),
            Step::Ask { ask: Ask::Revoke(lease), .. } => self.note_revoke(*lease, world),
            Step::Ask { ask: Ask::TimeToLive { lease, keys }, .. } => {
                self.note_time_to_live(*lease, *keys, world);
            }
            Step::Ask { ask: Ask::Leases, .. } => self.count("leases: some", 1 < world.leases.len()),
            Step::Kv { request, .. } => self.note_request(request, world),
            Step::Open { .. } => {
                self.count("stream: opened", true);
                self.count("stream: several open", !world.open_streams().is_empty());
            }
            Step::HalfClose { .. } => self.count("stream: half-closed", true),
            Step::Close { .. } => self.count("stream: closed", true),
            Step::Renew { leases, .. } => {
                self.count("renew: several at once", 1 < leases.len());
                for lease in leases {
                    self.count("renew: a lease", world.leases.contains_key(lease));
                    self.count("renew: a lease that existed", world.gone.contains(lease));
                    self.count("renew: a lease that never existed", *lease != 0 && never(*lease, world));
                    self.count("renew: lease 0", *lease == 0);
                }
            }
        }
    }

    fn note_grant(&mut self, grant: &LeaseGrantRequest, world: &World) {
        let LeaseGrantRequest { ttl, id } = *grant;
        self.count("grant: the server's choice", id == 0);
        self.count("grant: chosen", 0 < id);
        self.count("grant: chosen, negative", id < 0);
        self.count("grant: the least and the largest id", id == i64::MAX || id == i64::MIN);
        self.count("grant: of a lease that exists", world.leases.contains_key(&id));
        self.count("grant: of a lease that existed", world.gone.contains(&id));
        self.count("grant: the longest TTL", ttl == TTL_MAX);
        self.count("grant: TTL above the longest", TTL_MAX < ttl);
    }

    fn note_revoke(&mut self, lease: i64, world: &World) {
        let exists = world.leases.contains_key(&lease);
        let keys = world.keys_of(lease).len();
        self.count("revoke: without keys", exists && keys == 0);
        self.count("revoke: with one key", exists && keys == 1);
        self.count("revoke: with several keys", exists && (2..20).contains(&keys));
        self.count("revoke: with many keys", exists && 20 <= keys);
        self.count("revoke: of a lease that a server named", exists && is_picked(lease));
        self.count("revoke: of a lease that existed", world.gone.contains(&lease));
        self.count("revoke: of a lease that never existed", lease != 0 && never(lease, world));
        self.count("revoke: of lease 0", lease == 0);
    }

    fn note_time_to_live(&mut self, lease: i64, keys: bool, world: &World) {
        let exists = world.leases.contains_key(&lease);
        let some = !world.keys_of(lease).is_empty();
        self.count("time to live: with keys, some", exists && keys && some);
        self.count("time to live: with keys, none", exists && keys && !some);
        self.count("time to live: without keys", exists && !keys);
        self.count("time to live: of a lease that existed", world.gone.contains(&lease));
        self.count("time to live: of a lease that never existed", lease != 0 && never(lease, world));
        self.count("time to live: of lease 0", lease == 0);
    }

    fn note_request(&mut self, request: &Request, world: &World) {
        match request {
            Request::Put(put) => self.note_put(put, world),
            Request::Delete(delete) => {
                let attached = world.keys.get(&delete.key).is_some_and(|lease| *lease != 0);
                self.count("delete: of attached keys", attached);
            }
            Request::Txn(txn) => self.note_txn(txn, world, false),
            Request::Range(_) | Request::Compact(_) => {}
        }
    }

    fn note_put(&mut self, put: &PutRequest, world: &World) {
        let known = world.leases.contains_key(&put.lease);
        let has = world.keys.get(&put.key).copied();
        let attached = has.filter(|lease| *lease != 0);
        let plain = !put.ignore_lease;
        self.count("put: with a lease", plain && known);
        self.count("put: with an unknown lease", plain && put.lease != 0 && !known);
        self.count("put: takes a key off its lease", plain && put.lease == 0 && attached.is_some());
        let moves = attached.is_some_and(|lease| lease != put.lease);
        self.count("put: moves a key to another lease", plain && known && moves);
        self.count("put: ignore_lease, key has one", put.ignore_lease && attached.is_some());
        self.count("put: ignore_lease, key has none", put.ignore_lease && has == Some(0));
        self.count("put: ignore_value with a lease", put.ignore_value && plain && known);
    }

    fn note_txn(&mut self, txn: &TxnRequest, world: &World, nested: bool) {
        let mut leases = Vec::new();
        for RequestOp { request } in txn.success.iter().chain(&txn.failure) {
            match request {
                Some(request_op::Request::RequestPut(put)) if put.lease != 0 => leases.push(put.lease),
                Some(request_op::Request::RequestTxn(txn)) => self.note_txn(txn, world, true),
                Some(request_op::Request::RequestDeleteRange(delete)) => {
                    let attached = world.keys.get(&delete.key).is_some_and(|lease| *lease != 0);
                    self.count("txn: an attached key deleted", attached);
                }
                _ => {}
            }
        }
        let known = |lease: &&i64| world.leases.contains_key(lease);
        self.count("txn: put with a lease", !nested && leases.iter().any(|lease| known(&lease)));
        self.count("txn: nested put with a lease", nested && leases.iter().any(|lease| known(&lease)));
        self.count("txn: an unknown lease", leases.iter().any(|lease| !known(&lease)));
        let mut distinct: Vec<&i64> = leases.iter().filter(known).collect();
        distinct.sort_unstable();
        distinct.dedup();
        self.count("txn: two leases", 1 < distinct.len());
        for compare in &txn.compare {
            let about = matches!(compare.target_union, Some(TargetUnion::Lease(_)));
            let asks = |result: CompareResult| about && compare.result == result as i32;
            self.count("compare: lease, equal", asks(CompareResult::Equal));
            self.count("compare: lease, not equal", asks(CompareResult::NotEqual));
            self.count("compare: lease, greater", asks(CompareResult::Greater));
            self.count("compare: lease, less", asks(CompareResult::Less));
            self.count("compare: lease, of a range", about && !compare.range_end.is_empty());
        }
    }

    /// Counts an answer of the Lease service.
    pub fn note_answer(&mut self, answer: &LeaseAnswer) {
        match answer {
            LeaseAnswer::Grant(_) => self.count("answer: granted", true),
            LeaseAnswer::Revoke(_) => self.count("answer: revoked", true),
            LeaseAnswer::TimeToLive(answer) => self.count("answer: no such lease", answer.ttl == -1),
            LeaseAnswer::KeepAlive(answer) => {
                self.count("answer: renewed", 0 < answer.ttl);
                self.count("answer: not renewed", answer.ttl == 0);
            }
            LeaseAnswer::Refused(_, text) => {
                self.count("answer: lease already exists", text == "etcdserver: lease already exists");
                self.count("answer: too large lease TTL", text == "etcdserver: too large lease TTL");
                let not_found = text == "etcdserver: requested lease not found";
                self.count("answer: requested lease not found", not_found);
            }
            LeaseAnswer::Leases(_) | LeaseAnswer::Ended => {}
        }
    }

    /// Counts an answer of the KV service.
    pub fn note_change(&mut self, answer: &Answer) {
        match answer {
            Answer::Txn(txn) => {
                self.count("txn: success taken", txn.succeeded);
                self.count("txn: failure taken", !txn.succeeded);
            }
            Answer::Refused(_, text) => {
                let not_found = text == "etcdserver: requested lease not found";
                self.count("answer: to a put, requested lease not found", not_found);
                self.count("answer: lease is provided", text == "etcdserver: lease is provided");
                self.count("answer: key not found", text == "etcdserver: key not found");
            }
            Answer::Range(_) | Answer::Put(_) | Answer::Delete(_) | Answer::Compact(_) => {}
        }
    }

    /// What should have come up with so many members and did not.
    pub fn gaps(&self, members: usize) -> Vec<String> {
        let several: &[&str] = if 1 < members { KINDS_OF_SEVERAL } else { &[] };
        let missing = KINDS.iter().chain(several).filter(|kind| !self.kinds.contains_key(*kind));
        missing.map(|kind| format!("never exercised: {kind}")).collect()
    }
}

fn never(lease: i64, world: &World) -> bool {
    !world.leases.contains_key(&lease) && !world.gone.contains(&lease)
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in KINDS.iter().chain(KINDS_OF_SEVERAL) {
            writeln!(f, "  {:>6}  {kind}", self.kinds.get(kind).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_exercised_is_a_gap_for_every_kind() {
        assert_eq!(Coverage::default().gaps(1).len(), KINDS.len());
    }

    #[test]
    fn several_members_must_show_more() {
        assert_eq!(Coverage::default().gaps(3).len(), KINDS.len() + KINDS_OF_SEVERAL.len());
    }

    #[test]
    fn what_came_up_is_no_gap() {
        let mut coverage = Coverage::default();
        coverage.note_step(&Step::Open { member: 0 }, &World::new(1));
        assert_eq!(coverage.gaps(1).len(), KINDS.len() - 1);
    }
}
