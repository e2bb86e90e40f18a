//! Random steps from one seed.
//!
//! Given the seed and the world so far, the same steps come out. Two things are never asked: the
//! watch id -1, which the contract keeps for replies that concern no watcher, and leases, which
//! nobody grants.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, DeleteRangeRequest, PutRequest, TxnRequest, WatchCreateRequest,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::step::Step;
use super::world::World;
use crate::differential::keys;
use crate::differential::request::{Request, delete_op, put_op};

const STREAMS_OPEN_MAX: usize = 8;
const WATCHERS_PER_STREAM_MAX: usize = 40;
/// A field of the union that no version has.
const UNKNOWN_UNION: &[u8] = b"\x52\x02\x08\x07";

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
        let Some(stream) = world.open_streams().choose(&mut self.random).copied() else {
            return self.open(world);
        };
        match self.random.random_range(0..1_000) {
            0..=499 => self.change(world),
            500..=529 => self.compact(world),
            530..=549 => Step::Compare,
            550..=579 => Step::Progress { stream },
            580..=599 => self.nonsense(stream),
            600..=619 if world.heard_streams().len() < STREAMS_OPEN_MAX => self.open(world),
            620..=624 => Step::HalfClose { stream },
            625..=632 => self.close(world),
            633..=749 => self.cancel(world, stream),
            _ if world.streams[stream].live_ids().len() < WATCHERS_PER_STREAM_MAX => {
                Step::Create { stream, request: self.create(world, stream) }
            }
            _ => self.cancel(world, stream),
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn open(&mut self, world: &World) -> Step {
        Step::Open { member: self.random.random_range(0..world.members), requires_leader: self.chance(3) }
    }

    fn close(&mut self, world: &World) -> Step {
        let stream = world.heard_streams().choose(&mut self.random).copied();
        stream.map_or(Step::Compare, |stream| Step::Close { stream })
    }

    fn nonsense(&mut self, stream: usize) -> Step {
        let message = if self.random.random() { UNKNOWN_UNION } else { b"" };
        Step::Nonsense { stream, message: Bytes::from_static(message) }
    }

    fn cancel(&mut self, world: &World, stream: usize) -> Step {
        let state = &world.streams[stream];
        let ids = match self.random.random_range(0..6) {
            0 => state.free_ids(),
            1 => vec![self.random.random_range(1_000..2_000), -self.random.random_range(1..2_000)],
            _ => state.live_ids(),
        };
        let id = ids.choose(&mut self.random).copied().unwrap_or(7_777);
        Step::Cancel { stream, id }
    }

    fn create(&mut self, world: &World, stream: usize) -> WatchCreateRequest {
        let (key, range_end) = self.span();
        let mut request = WatchCreateRequest {
            key,
            range_end,
            start_revision: self.start(world),
            progress_notify: self.chance(3),
            filters: self.filters(),
            prev_kv: self.random.random(),
            watch_id: self.id(world, stream),
            fragment: self.chance(3),
        };
        if request.start_revision < 0 {
            // One thing wrong at a time.
            request.range_end = Bytes::new();
        }
        request
    }

    fn span(&mut self) -> (Bytes, Bytes) {
        match self.random.random_range(0..16) {
            0 => (Bytes::new(), Bytes::new()),
            1 => (Bytes::new(), Bytes::from_static(b"\0")),
            2 => (Bytes::new(), keys::key(&mut self.random)),
            3 | 4 => {
                let prefix = keys::key(&mut self.random);
                let end = keys::prefix_end(&prefix);
                (prefix, end)
            }
            _ => keys::range(&mut self.random),
        }
    }

    fn start(&mut self, world: &World) -> i64 {
        let (now, compacted) = (world.revision, world.compacted);
        match self.random.random_range(0..20) {
            0..=7 => 0,
            8 => -self.random.random_range(1..1_000),
            9 => now,
            10 => now + 1,
            11 | 12 => now + self.random.random_range(2..80),
            13 | 14 if 1 < compacted => self.random.random_range(1..compacted),
            15 | 16 if 0 < compacted => compacted,
            _ => self.random.random_range(compacted.max(1)..=now),
        }
    }

    fn filters(&mut self) -> Vec<i32> {
        let some: &[i32] = match self.random.random_range(0..12) {
            0 | 1 => &[0],
            2 | 3 => &[1],
            4 => &[0, 1],
            5 => &[1, 1],
            6 => &[7],
            7 => &[-1, 0],
            _ => &[],
        };
        some.to_vec()
    }

    fn id(&mut self, world: &World, stream: usize) -> i64 {
        let state = &world.streams[stream];
        let ids = match self.random.random_range(0..12) {
            0 => (1..30).collect(),
            1 => (2..50).map(|id: i64| -id).collect(),
            2 => state.live_ids(),
            3 => state.free_ids(),
            _ => Vec::new(),
        };
        ids.choose(&mut self.random).copied().unwrap_or(0)
    }

    fn compact(&mut self, world: &World) -> Step {
        let (low, now) = (world.compacted, world.revision);
        let revision = match self.random.random_range(0..10) {
            0 => now,
            1 => low,
            2 => now + self.random.random_range(1..100),
            // Where a key was deleted.
            3..=5 => self.deletion_after(world).unwrap_or(now),
            _ => self.random.random_range(low..=now),
        };
        let request = Request::Compact(CompactionRequest { revision, physical: self.random.random() });
        Step::Change { member: self.random.random_range(0..world.members), request }
    }

    fn deletion_after(&mut self, world: &World) -> Option<i64> {
        let deletions = world.history.iter().filter(|event| super::world::is_delete(event));
        let revisions: Vec<i64> = deletions.map(super::transcript::revision_of).collect();
        let above: Vec<i64> = revisions.into_iter().filter(|revision| world.compacted < *revision).collect();
        above.choose(&mut self.random).copied()
    }

    fn change(&mut self, world: &World) -> Step {
        let request = match self.random.random_range(0..20) {
            0..=8 => Request::Put(self.put()),
            9..=11 => Request::Delete(self.delete()),
            12..=14 => Request::Txn(self.many_puts()),
            15 | 16 => Request::Txn(self.put_and_delete()),
            17 => Request::Txn(self.open_delete_and_put()),
            18 => Request::Delete(DeleteRangeRequest { range_end: Bytes::new(), ..self.delete() }),
            _ => Request::Txn(TxnRequest::default()),
        };
        Step::Change { member: self.random.random_range(0..world.members), request }
    }

    fn put(&mut self) -> PutRequest {
        PutRequest {
            key: keys::key(&mut self.random),
            value: keys::value(&mut self.random),
            ..Default::default()
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = loop {
            let (key, range_end) = keys::range(&mut self.random);
            // Everything above a key is deleted rarely, or little would be left to watch.
            if range_end.as_ref() != b"\0" || self.chance(8) {
                break (key, range_end);
            }
        };
        DeleteRangeRequest { key, range_end, prev_kv: false }
    }

    /// Several keys in one revision. Two puts of one key are refused, by both alike.
    fn many_puts(&mut self) -> TxnRequest {
        let count = self.random.random_range(2..7);
        TxnRequest { success: (0..count).map(|_| put_op(self.put())).collect(), ..Default::default() }
    }

    fn put_and_delete(&mut self) -> TxnRequest {
        let mut success = vec![put_op(self.put()), delete_op(self.delete())];
        if self.random.random() {
            success.reverse();
        }
        TxnRequest { success, ..Default::default() }
    }

    /// An open end hides from both that the key is written twice: a deletion and a put of one key
    /// in one revision, in either order.
    fn open_delete_and_put(&mut self) -> TxnRequest {
        let put = self.put();
        let delete = DeleteRangeRequest {
            key: put.key.clone(),
            range_end: Bytes::from_static(b"\0"),
            ..Default::default()
        };
        let mut success = vec![delete_op(delete), put_op(put)];
        if self.chance(3) {
            success.reverse();
        }
        TxnRequest { success, ..Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::StreamState;
    use super::*;

    #[test]
    fn one_seed_gives_the_same_steps_again() {
        let mut world = World::new(3);
        world.streams.push(StreamState::new(0, false));
        (world.revision, world.compacted) = (90, 40);
        let steps = |seed| {
            let mut generator = Generator::new(seed);
            (0..500).map(|_| generator.next(&world)).collect::<Vec<_>>()
        };
        assert!(steps(4) == steps(4));
        assert!(steps(4) != steps(5));
    }
}
