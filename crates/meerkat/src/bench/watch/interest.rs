//! What the watchers watch, what the writers write, and which of the one concerns which of the other.
//!
//! The keys of a run begin with a prefix of its own, so that neither an earlier run nor anything else
//! in the cluster can be taken for its events. Values begin with the moment from which their latency
//! counts, so that an event tells by itself how old it is.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

use crate::bench::workload::{KEY_PREFIX, Random};

/// A value's first bytes: nanoseconds from the run's epoch to the put's intended moment.
pub const STAMP_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every watcher watches all keys of the run.
    WholePrefix,
    /// Every watcher watches one key, which is no other watcher's.
    OwnKey,
}

/// The keys of one run.
#[derive(Clone, Debug)]
pub struct Interest {
    prefix: String,
    target: Target,
}

impl Interest {
    /// `run` tells this run from all others.
    pub fn new(target: Target, run: u64) -> Interest {
        Interest { prefix: format!("{KEY_PREFIX}watch/{run:016x}/"), target }
    }

    /// The message that creates a watcher. Revision 0 is from now on.
    pub fn create_request(&self, watcher: usize, start_revision: i64) -> Vec<u8> {
        let (key, range_end) = match self.target {
            Target::WholePrefix => (self.prefix.clone().into(), end_of(&self.prefix)),
            Target::OwnKey => (self.key(watcher as u64), Bytes::new()),
        };
        let create = pb::WatchCreateRequest { key, range_end, start_revision, ..Default::default() };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        pb::WatchRequest { request_union: Some(union) }.encode_to_vec()
    }

    pub fn key(&self, number: u64) -> Bytes {
        format!("{}{number:08}", self.prefix).into()
    }

    /// A key that no watcher of the run watches.
    pub fn unrelated_key(&self, number: u64) -> Bytes {
        format!("{}-unrelated/{number:08}", self.prefix.trim_end_matches('/')).into()
    }

    /// Watchers of one group are owed the same events.
    pub fn group_of_watcher(&self, watcher: usize) -> usize {
        match self.target {
            Target::WholePrefix => 0,
            Target::OwnKey => watcher,
        }
    }

    /// The group that is owed the writes of that key.
    pub fn group_of_key(&self, number: u64) -> usize {
        match self.target {
            Target::WholePrefix => 0,
            Target::OwnKey => number as usize,
        }
    }

    pub fn groups(&self, watchers: usize) -> usize {
        match self.target {
            Target::WholePrefix => 1,
            Target::OwnKey => watchers,
        }
    }
}

/// The first key after all that begin with `prefix`, which ends in `/`.
fn end_of(prefix: &str) -> Bytes {
    let end = prefix.strip_suffix('/').expect("prefixes end in a slash");
    format!("{end}0").into()
}

/// Values of one size, each with its stamp.
pub struct Values {
    epoch: Instant,
    filling: Vec<u8>,
}

impl Values {
    pub fn new(epoch: Instant, bytes: usize) -> Result<Values, String> {
        let Some(rest) = bytes.checked_sub(STAMP_BYTES) else {
            return Err(format!("--val-size {bytes} is too short: a watched value needs {STAMP_BYTES}"));
        };
        let mut random = Random::new(0x6d65_6572_6b61_7421);
        let filling = (0..rest.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(rest).collect();
        Ok(Values { epoch, filling })
    }

    pub fn stamped(&self, intended: Instant) -> Bytes {
        let mut value = BytesMut::with_capacity(STAMP_BYTES + self.filling.len());
        value.put_u64_le(nanoseconds(intended.saturating_duration_since(self.epoch)));
        value.put_slice(&self.filling);
        value.freeze()
    }
}

/// How old a value is `now`, where both are counted in nanoseconds from the run's epoch.
pub fn age_ns(value: &[u8], now_ns: u64) -> Option<u64> {
    let stamp = value.first_chunk::<STAMP_BYTES>()?;
    Some(now_ns.saturating_sub(u64::from_le_bytes(*stamp)))
}

/// Five centuries of them fit.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(interest: &Interest, watcher: usize) -> pb::WatchCreateRequest {
        let bytes = interest.create_request(watcher, 5);
        match pb::WatchRequest::decode(&bytes[..]).expect("our own").request_union {
            Some(pb::watch_request::RequestUnion::CreateRequest(create)) => create,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_watched_prefix_holds_every_key_and_nothing_unrelated() {
        let interest = Interest::new(Target::WholePrefix, 7);
        let create = created(&interest, 3);
        let holds = |key: Bytes| create.key <= key && key < create.range_end;
        assert!(holds(interest.key(0)) && holds(interest.key(99_999_999)));
        assert!(!holds(interest.unrelated_key(0)));
        assert!(!holds(Interest::new(Target::WholePrefix, 8).key(0)));
        assert_eq!(create.start_revision, 5);
    }

    #[test]
    fn watchers_of_own_keys_watch_different_ones_and_no_unrelated_one() {
        let interest = Interest::new(Target::OwnKey, 7);
        assert_eq!(created(&interest, 3).key, interest.key(3));
        assert!(created(&interest, 3).range_end.is_empty());
        assert_ne!(interest.key(3), interest.key(4));
        assert_ne!(interest.key(3), interest.unrelated_key(3));
        assert_eq!((interest.group_of_watcher(3), interest.group_of_key(3)), (3, 3));
    }

    #[test]
    fn a_value_tells_its_age_and_has_its_size() {
        let epoch = Instant::now();
        let value = Values::new(epoch, 20).expect("long enough").stamped(epoch + Duration::from_nanos(300));
        assert_eq!(value.len(), 20);
        assert_eq!(age_ns(&value, 1_000), Some(700));
        assert_eq!(age_ns(&value, 100), Some(0), "a clock never runs backwards");
        assert_eq!(age_ns(b"short", 100), None);
        assert!(Values::new(epoch, 7).is_err());
    }
}
