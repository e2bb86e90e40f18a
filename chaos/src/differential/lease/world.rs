//! What a run has built up, as etcd answered it: leases, keys that hang on them, streams.
//!
//! Holds nothing of what the other product answered, and decides nothing about who is right: it
//! tells the generator what there is, and coverage what a step was about.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use meerkat_proto::pb::mvcc::Event;
use meerkat_proto::pb::mvcc::event::EventType;

/// Everything known.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// How many members each cluster has.
    pub members: usize,
    /// The store's revision.
    pub revision: i64,
    /// Leases that exist, by name, with the TTL they were granted.
    pub leases: BTreeMap<i64, i64>,
    /// Leases that existed.
    pub gone: BTreeSet<i64>,
    /// The lease of each key that is there; zero for none.
    pub keys: BTreeMap<Bytes, i64>,
    /// The member of each stream, none once it is closed.
    pub streams: Vec<Option<usize>>,
    /// Ids that servers picked so far.
    pub picked: usize,
    /// Events taken in so far.
    pub learned: usize,
    /// Events compared so far.
    pub compared: usize,
    /// Rounds of leases that run out: how many, and after how many steps each.
    pub expiries: usize,
    /// See `expiries`.
    pub expire_every: usize,
    /// How many of them there were.
    pub rounds: usize,
}

impl World {
    /// Empty clusters.
    pub fn new(members: usize) -> Self {
        Self { members, revision: 1, ..Self::default() }
    }

    /// A lease came to be.
    pub fn granted(&mut self, name: i64, ttl: i64) {
        self.leases.insert(name, ttl);
        self.gone.remove(&name);
    }

    /// A lease is no more.
    pub fn ended(&mut self, name: i64) {
        if self.leases.remove(&name).is_some() {
            self.gone.insert(name);
        }
    }

    /// Something happened to a key.
    pub fn happened(&mut self, event: &Event) {
        let Some(kv) = &event.kv else { return };
        self.revision = self.revision.max(kv.mod_revision);
        if event.r#type == EventType::Delete as i32 {
            self.keys.remove(&kv.key);
        } else {
            self.keys.insert(kv.key.clone(), kv.lease);
        }
    }

    /// The keys that hang on a lease.
    pub fn keys_of(&self, name: i64) -> Vec<Bytes> {
        self.keys.iter().filter(|(_, lease)| **lease == name).map(|(key, _)| key.clone()).collect()
    }

    /// Streams on which something can be asked.
    pub fn open_streams(&self) -> Vec<usize> {
        (0..self.streams.len()).filter(|index| self.streams[*index].is_some()).collect()
    }
}
