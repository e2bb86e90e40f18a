//! Random steps from one seed.
//!
//! Pure but for its random numbers: given the seed and the world, the same steps come out. Leases
//! made here live for minutes, longer than any run, so that no clock has a say; short ones belong to
//! `expiry`. A compare that asks for more than equality never meets two ids that servers picked,
//! whose order is each server's own affair. Transactions read nothing old and delete with no open
//! end: both make etcd 3.5.1 go wrong by itself.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RequestOp, TxnRequest, request_op,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::names::is_picked;
use super::step::{Ask, Step};
use super::world::World;
use crate::differential::keys;
use crate::differential::request::{Request, delete_op, everything, put_op};

/// The longest TTL there is.
pub const TTL_MAX: i64 = 9_000_000_000;
/// Never granted by a run.
const UNKNOWN: std::ops::Range<i64> = 1_000_000..2_000_000;
/// More leases than this are not kept: they would seldom meet.
const LEASES_MAX: usize = 14;
const STREAMS_MAX: usize = 6;
/// Keys of one lease that is made to hold many.
const MANY: usize = 60;

/// The source of steps.
#[derive(Debug)]
pub struct Generator {
    random: StdRng,
}

impl Generator {
    /// One run's steps.
    pub fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    /// The next step.
    pub fn next(&mut self, world: &World) -> Step {
        let member = self.random.random_range(0..world.members);
        let streams = world.open_streams();
        match self.random.random_range(0..100) {
            0..=12 if world.leases.len() < LEASES_MAX => Step::Ask { member, ask: self.grant(world) },
            0..=21 => Step::Ask { member, ask: Ask::Revoke(self.some_lease(world)) },
            22..=33 => {
                let lease = self.some_lease(world);
                Step::Ask { member, ask: Ask::TimeToLive { lease, keys: self.chance(2) } }
            }
            34..=37 => Step::Ask { member, ask: Ask::Leases },
            38..=39 if streams.len() < STREAMS_MAX => Step::Open { member },
            _ if streams.is_empty() => Step::Open { member },
            38..=49 => {
                let stream = *streams.choose(&mut self.random).expect("not empty");
                let count = self.random.random_range(1..6);
                Step::Renew { stream, leases: (0..count).map(|_| self.some_lease(world)).collect() }
            }
            50 => Step::HalfClose { stream: *streams.choose(&mut self.random).expect("not empty") },
            51 => Step::Close { stream: *streams.choose(&mut self.random).expect("not empty") },
            _ => Step::Kv { member, request: self.kv(world) },
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn grant(&mut self, world: &World) -> Ask {
        let existing: Vec<i64> = world.leases.keys().copied().collect();
        let id = match self.random.random_range(0..20) {
            0..=6 => 0,
            7..=11 => self.random.random_range(1..40),
            12..=13 => -self.random.random_range(1..40),
            14 => *[i64::MAX, i64::MIN].choose(&mut self.random).expect("two"),
            15..=16 => world.gone.iter().copied().find(|name| !is_picked(*name)).unwrap_or(7),
            _ => existing.choose(&mut self.random).copied().unwrap_or(0),
        };
        // A short life is asked for only where the lease exists, and so is refused.
        let ttl = match self.random.random_range(0..12) {
            0 => TTL_MAX + 1,
            1 => i64::MAX,
            2 => TTL_MAX,
            3..=5 if world.leases.contains_key(&id) => {
                *[0, -1, i64::MIN, 1].choose(&mut self.random).expect("four")
            }
            _ => self.random.random_range(600..100_000),
        };
        Ask::Grant(LeaseGrantRequest { ttl, id })
    }

    /// A lease that exists, mostly; else one that did, one that never did, or none.
    fn some_lease(&mut self, world: &World) -> i64 {
        let pick = self.random.random_range(0..20);
        let from: Vec<i64> = match pick {
            0..=13 => world.leases.keys().copied().collect(),
            14..=16 => world.gone.iter().copied().collect(),
            17 => return 0,
            _ => Vec::new(),
        };
        from.choose(&mut self.random).copied().unwrap_or_else(|| self.unknown_lease())
    }

    fn known_lease(&mut self, world: &World) -> i64 {
        let known: Vec<i64> = world.leases.keys().copied().collect();
        known.choose(&mut self.random).copied().unwrap_or(0)
    }

    fn unknown_lease(&mut self) -> i64 {
        let lease = self.random.random_range(UNKNOWN);
        if self.random.random() { lease } else { -lease }
    }

    fn kv(&mut self, world: &World) -> Request {
        match self.random.random_range(0..48) {
            0..=21 => Request::Put(self.put(world)),
            22..=25 => Request::Delete(keys::deletion(&mut self.random)),
            26..=29 => Request::Range(everything()),
            30..=34 => Request::Txn(self.txn_of_puts(world)),
            35..=37 => Request::Txn(self.nested(world)),
            38..=43 => Request::Txn(self.compared(world)),
            44..=45 => Request::Txn(self.txn_of_delete_and_put(world)),
            _ => Request::Txn(self.many_puts(world)),
        }
    }

    fn put(&mut self, world: &World) -> PutRequest {
        let mut put = PutRequest {
            key: self.key(world),
            value: keys::value(&mut self.random),
            prev_kv: self.chance(3),
            ..Default::default()
        };
        match self.random.random_range(0..30) {
            0..=13 => put.lease = self.known_lease(world),
            14..=17 => {}
            18..=20 => put.ignore_lease = true,
            21..=22 => {
                (put.ignore_value, put.value, put.lease) = (true, Bytes::new(), self.known_lease(world));
            }
            23 => (put.ignore_value, put.ignore_lease, put.value) = (true, true, Bytes::new()),
            24 => (put.ignore_lease, put.lease) = (true, self.known_lease(world)),
            25 => (put.ignore_value, put.value) = (true, Bytes::new()),
            _ => put.lease = self.some_lease(world),
        }
        put
    }

    /// Often one that is there, so that leases change hands.
    fn key(&mut self, world: &World) -> Bytes {
        if self.chance(3) {
            let there: Vec<&Bytes> = world.keys.keys().collect();
            if let Some(key) = there.choose(&mut self.random) {
                return (*key).clone();
            }
        }
        keys::key(&mut self.random)
    }

    fn txn_of_puts(&mut self, world: &World) -> TxnRequest {
        let count = self.random.random_range(2..5);
        let mut success: Vec<RequestOp> = (0..count).map(|_| put_op(self.put(world))).collect();
        if self.chance(2) {
            success.push(RequestOp { request: Some(request_op::Request::RequestRange(everything())) });
        }
        TxnRequest { success, ..Default::default() }
    }

    fn nested(&mut self, world: &World) -> TxnRequest {
        let inner = if self.chance(2) { self.compared(world) } else { self.txn_of_puts(world) };
        let mut success = vec![RequestOp { request: Some(request_op::Request::RequestTxn(inner)) }];
        if self.chance(2) {
            success.insert(0, put_op(self.put(world)));
        }
        TxnRequest { success, ..Default::default() }
    }

    fn compared(&mut self, world: &World) -> TxnRequest {
        let compare = vec![self.compare(world)];
        let (success, failure) = (vec![put_op(self.put(world))], vec![put_op(self.put(world))]);
        TxnRequest { compare, success, failure }
    }

    fn compare(&mut self, world: &World) -> Compare {
        let key = self.key(world);
        // What the key hangs on, mostly, so that equality is met.
        let lease = match self.random.random_range(0..6) {
            0..=2 => world.keys.get(&key).copied().unwrap_or(0),
            3 => 0,
            _ => self.some_lease(world),
        };
        let results: &[CompareResult] = if is_picked(lease) {
            &[CompareResult::Equal, CompareResult::NotEqual]
        } else {
            &[CompareResult::Equal, CompareResult::NotEqual, CompareResult::Greater, CompareResult::Less]
        };
        let range_end = if self.chance(5) { keys::prefix_end(&key) } else { Bytes::new() };
        Compare {
            key,
            range_end,
            target: CompareTarget::Lease as i32,
            result: *results.choose(&mut self.random).expect("not empty") as i32,
            target_union: Some(TargetUnion::Lease(lease)),
        }
    }

    /// A key leaves its lease and another, or the same, comes to one, in one revision.
    fn txn_of_delete_and_put(&mut self, world: &World) -> TxnRequest {
        let key = self.key(world);
        let delete = DeleteRangeRequest { key, prev_kv: true, ..Default::default() };
        TxnRequest { success: vec![delete_op(delete), put_op(self.put(world))], ..Default::default() }
    }

    fn many_puts(&mut self, world: &World) -> TxnRequest {
        let lease = self.known_lease(world);
        let put = |number: usize| PutRequest {
            key: format!("many/{number:03}").into_bytes().into(),
            value: Bytes::from_static(b"x"),
            lease,
            ..Default::default()
        };
        // Backwards: that a revoke deletes in key order must not come of the order of attaching.
        TxnRequest {
            success: (0..MANY).rev().map(|number| put_op(put(number))).collect(),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_the_same_steps_again() {
        let mut world = World::new(3);
        world.granted(5, 60);
        world.streams.push(Some(0));
        let steps = |seed| {
            let mut generator = Generator::new(seed);
            (0..500).map(|_| generator.next(&world)).collect::<Vec<_>>()
        };
        assert!(steps(4) == steps(4));
        assert!(steps(4) != steps(5));
    }

    #[test]
    fn no_lease_made_here_is_short_enough_to_end_by_itself() {
        let mut world = World::new(1);
        world.granted(5, 60);
        let mut generator = Generator::new(1);
        for _ in 0..5_000 {
            if let Step::Ask { ask: Ask::Grant(grant), .. } = generator.next(&world) {
                assert!(600 <= grant.ttl || world.leases.contains_key(&grant.id), "{grant:?}");
            }
        }
    }
}
