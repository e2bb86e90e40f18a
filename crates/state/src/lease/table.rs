//! The leases there are, as apply knows them: in memory, since every put with a lease asks.

use super::row;
use crate::error::StateError;
use meerkat_engine::{Batch, View};
use meerkat_types::{Lease, LeaseId, LeaseNote, LogIndex};
use std::collections::BTreeMap;

/// Equal to the rows of the database and the batch being built.
#[derive(Default)]
pub(crate) struct LeaseTable {
    leases: BTreeMap<LeaseId, Lease>,
}

impl LeaseTable {
    pub(crate) fn load(view: &View) -> Result<LeaseTable, StateError> {
        let leases = row::read_all(view)?.into_iter().map(|lease| (lease.id, lease)).collect();
        Ok(LeaseTable { leases })
    }

    /// The grant of the lease of this name.
    pub(crate) fn granted(&self, lease: LeaseId) -> Option<LogIndex> {
        self.leases.get(&lease).map(|lease| lease.granted)
    }

    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn contains(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    pub(crate) fn insert(&mut self, batch: &mut Batch, lease: Lease) {
        row::put(batch, &lease);
        self.leases.insert(lease.id, lease);
    }

    pub(crate) fn remove(&mut self, batch: &mut Batch, lease: LeaseId) {
        row::delete(batch, lease);
        self.leases.remove(&lease);
    }

    /// Whether there was such a lease.
    pub(crate) fn note(&mut self, batch: &mut Batch, note: &LeaseNote) -> bool {
        let same = |lease: &&mut Lease| lease.granted == note.granted;
        let Some(lease) = self.leases.get_mut(&note.id).filter(same) else { return false };
        lease.remaining = note.remaining;
        row::put(batch, lease);
        true
    }
}
