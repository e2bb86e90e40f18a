//! The source's leases at the destination: of the same name and the same time to live.
//!
//! Until the cut over nobody renews them at the destination, and whoever holds them at the source must
//! not lose them for that: the migration keeps them alive there. One that ends at the source ends at
//! the destination when everything that the source did before is carried.

use std::collections::{BTreeMap, BTreeSet};

use meerkat_client::{Client, EtcdError, KeepAlive, LeaseId};

use super::revision_of;
use crate::failure::Failure;

pub struct CarriedLeases {
    from: Client,
    to: Client,
    kept: BTreeMap<LeaseId, KeepAlive>,
    /// Gone at the source, and the source's revision when that was seen.
    ended: Vec<(LeaseId, i64)>,
}

impl CarriedLeases {
    pub fn new(from: Client, to: Client) -> CarriedLeases {
        CarriedLeases { from, to, kept: BTreeMap::new(), ended: Vec::new() }
    }

    /// Takes up the leases that an earlier run of this migration left at the destination: those which
    /// ended at the source meanwhile are to end there too.
    pub async fn take_up(&mut self) -> Result<(), Failure> {
        let left = self.to.leases().list().await.map_err(|error| failure("--to", &error))?;
        let leases = self.to.leases();
        self.kept.extend(left.into_iter().map(|lease| (lease, leases.keep_alive(lease))));
        Ok(())
    }

    /// Makes sure that the lease is there. False if the source does not have it any more.
    pub async fn ensure(&mut self, lease: LeaseId) -> Result<bool, Failure> {
        if self.kept.contains_key(&lease) {
            return Ok(true);
        }
        let known =
            self.from.leases().time_to_live(lease).await.map_err(|error| failure("--from", &error))?;
        if known.left.is_none() {
            return Ok(false);
        }
        match self.to.leases().grant(known.granted).id(lease).await {
            Ok(_) => {}
            Err(error) if error.etcd() == Some(EtcdError::LeaseExist) => {}
            Err(error) => return Err(failure("--to", &error)),
        }
        self.kept.insert(lease, self.to.leases().keep_alive(lease));
        Ok(true)
    }

    /// The destination has lost these: a put with one of them was refused.
    pub fn forget(&mut self, leases: impl IntoIterator<Item = LeaseId>) {
        for lease in leases {
            self.kept.remove(&lease);
        }
    }

    /// Takes over new leases, and notes those that have ended.
    pub async fn refresh(&mut self) -> Result<usize, Failure> {
        let listed = self.from.leases().list().await.map_err(|error| failure("--from", &error))?;
        let there: BTreeSet<LeaseId> = listed.into_iter().collect();
        for lease in &there {
            self.ensure(*lease).await?;
        }
        let gone: Vec<LeaseId> = self.kept.keys().filter(|lease| !there.contains(lease)).copied().collect();
        if !gone.is_empty() {
            let revision = revision_of(&self.from).await?;
            self.forget(gone.iter().copied());
            self.ended.extend(gone.into_iter().map(|lease| (lease, revision)));
        }
        Ok(there.len())
    }

    /// Ends what has ended at the source before `next`, which is the first revision not carried yet.
    pub async fn end_before(&mut self, next: i64) -> Result<(), Failure> {
        let due = self.ended.extract_if(.., |(_, seen)| *seen < next).collect::<Vec<_>>();
        for (lease, _) in due {
            match self.to.leases().revoke(lease).await {
                Ok(()) => {}
                Err(error) if error.etcd() == Some(EtcdError::LeaseNotFound) => {}
                Err(error) => return Err(failure("--to", &error)),
            }
        }
        Ok(())
    }
}

fn failure(flag: &str, error: &meerkat_client::Error) -> Failure {
    Failure::error(format!("{flag}: {error}"))
}
