//! A member's directory from a backup, whoever wrote it: `snapshot restore`.
//!
//! A store that goes back in time breaks every client that has seen the future: a cached revision is
//! then one that has not happened, or worse, one that happens again with other content. So a restored
//! store begins, unless its operator says otherwise, far above anything the lost one can have reached,
//! with all before it compacted: whoever comes back with an older revision is told to list again.

use crate::config::{Config, ConfigError};
use crate::saved_rules;
use meerkat_backup::snapshot::{
    Change, Events, HashCheck, LeaseRow, SnapshotError, SnapshotFile, StoredEvent,
};
use meerkat_engine::DbOptions;
use meerkat_raft::{NewMember, Restore};
use meerkat_state::{Import, ImportedEvent, ImportedVersion};
use meerkat_types::{Alarm, AlarmBy, ClusterId, Lease, LeaseId, LeaseTtl, LogIndex, MemberId, Revision};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far a restored store is moved up: above what a busy cluster writes in a week at ten thousand
/// changes a day times a hundred, and the number that Kubernetes' own guide uses.
pub const REVISION_BUMP: u64 = 1_000_000_000;

/// Which revision the restored store begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredRevision {
    /// That of the backup, with its history.
    AsSaved,
    /// That of the backup and this much more, all before it compacted.
    Bumped(u64),
}

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    pub cluster: ClusterId,
    pub member: MemberId,
    /// Of the newest event in the backup.
    pub saved_revision: i64,
    /// Of the restored store.
    pub revision: i64,
    pub compacted: i64,
    pub events: u64,
    pub leases: usize,
    pub users: usize,
    pub roles: usize,
    /// Whether clients must say who they are.
    pub auth_enabled: bool,
    /// The alarms that the new cluster begins with.
    pub alarms: Vec<Alarm>,
    /// Alarms of the backup about the room of members that are not of the new cluster.
    pub alarms_left: Vec<Alarm>,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Member(#[from] meerkat_raft::RestoreError),
    #[error("{path} is damaged: {what}")]
    Row { path: PathBuf, what: String },
    #[error("--bump-revision {0} leads beyond the last revision there is")]
    TooFar(u64),
}

/// Makes the directory that `config` names. The whole file is checked before anything is made.
pub fn restore(
    config: &Config,
    path: &Path,
    check: HashCheck,
    target: RestoredRevision,
) -> Result<Restored, RestoreError> {
    config.verify_bootstrap()?;
    let file = SnapshotFile::open(path, check)?;
    // Every page is walked once before a directory is begun that would have to be removed again.
    file.status()?;
    let (leases, other, compacted) = (file.leases()?, file.other_rows()?, file.compacted()?);
    let bad = |what| RestoreError::Row { path: path.to_owned(), what };
    let book = saved_rules::to_book(&other).map_err(bad)?;
    let mut initial_cluster: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, url) in &config.initial_cluster {
        initial_cluster.entry(name.clone()).or_default().push(url.to_string());
    }
    let mut restore = Restore::begin(NewMember {
        name: config.name.clone(),
        data_dir: config.data_dir.clone(),
        wal_dir: config.wal_dir.clone(),
        initial_cluster,
        cluster_token: config.initial_cluster_token.clone(),
        db: DbOptions::default(),
    })?;
    let (alarms, alarms_left) = saved_rules::alarms(&other, |member| restore.is_member(member));
    let import = restore.import();
    import.auth(&book);
    // CORRUPT is a person's to clear; NOSPACE the member's that has room again.
    alarms.iter().for_each(|alarm| import.alarm(*alarm, AlarmBy::Cluster));
    let mut filling = Filling { path, import: restore.import(), newest: 0, events: 0 };
    filling.leases(&leases)?;
    filling.events(file.events()?)?;
    let Filling { newest, events, .. } = filling;
    let saved_revision = newest.max(compacted.unwrap_or(0)).max(Revision::EMPTY_STORE.get());
    let (revision, compacted) = revisions(saved_revision, compacted, target)?;
    let identity = restore.finish(Revision::new(revision), Revision::compacted_from_wire(compacted))?;
    Ok(Restored {
        cluster: identity.cluster,
        member: identity.member,
        saved_revision,
        revision,
        compacted,
        events,
        leases: leases.len(),
        users: other.users.len(),
        roles: other.roles.len(),
        auth_enabled: other.auth_enabled,
        alarms,
        alarms_left,
    })
}

/// The revision and the compacted revision (-1 for none) to begin with.
fn revisions(
    saved: i64,
    compacted: Option<i64>,
    target: RestoredRevision,
) -> Result<(i64, i64), RestoreError> {
    match target {
        RestoredRevision::AsSaved => Ok((saved, compacted.unwrap_or(-1))),
        RestoredRevision::Bumped(by) => {
            let bumped = i64::try_from(by).ok().and_then(|by| saved.checked_add(by));
            // The last one cannot be written past.
            let bumped = bumped.filter(|bumped| *bumped < i64::MAX).ok_or(RestoreError::TooFar(by))?;
            Ok((bumped, bumped))
        }
    }
}

struct Filling<'a> {
    path: &'a Path,
    import: &'a mut Import,
    newest: i64,
    events: u64,
}

impl Filling<'_> {
    fn bad(&self, what: String) -> RestoreError {
        RestoreError::Row { path: self.path.to_owned(), what }
    }

    fn leases(&mut self, rows: &[LeaseRow]) -> Result<(), RestoreError> {
        for row in rows {
            let lease = lease_of(row).ok_or_else(|| {
                self.bad(format!("lease {:016x} has {} seconds to live", row.id, row.ttl_seconds))
            })?;
            self.import.lease(lease).map_err(|error| self.bad(error.to_string()))?;
        }
        Ok(())
    }

    fn events(&mut self, mut events: Events<'_>) -> Result<(), RestoreError> {
        while let Some(event) = events.next_event()? {
            self.newest = self.newest.max(event.revision);
            let Some(imported) = imported(&event).map_err(|what| self.bad(what))? else { continue };
            self.import.event(&imported).map_err(|error| self.bad(error.to_string()))?;
            self.events += 1;
        }
        Ok(())
    }
}

fn lease_of(row: &LeaseRow) -> Option<Lease> {
    let remaining = u64::try_from(row.remaining_seconds).ok().filter(|seconds| 0 < *seconds);
    Some(Lease {
        id: LeaseId::from_wire(row.id)?,
        // Before any entry of the new log.
        granted: LogIndex(0),
        ttl: LeaseTtl::from_seconds(row.ttl_seconds)?,
        remaining: remaining.map(Duration::from_secs),
    })
}

/// An event of the file as the state takes it; `None` if nothing happened in it.
fn imported<'a>(event: &StoredEvent<'a>) -> Result<Option<ImportedEvent<'a>>, String> {
    let StoredEvent { revision, sub, change } = *event;
    let sub = u32::try_from(sub).map_err(|_| format!("revision {revision} has an event of number {sub}"))?;
    Ok(match change {
        Change::Nothing => None,
        Change::Delete { key } => {
            Some(ImportedEvent { revision: Revision::new(revision), sub, key, version: None })
        }
        Change::Put(kv) if kv.modified != revision => {
            let modified = kv.modified;
            return Err(format!("the version written in revision {revision} says revision {modified}"));
        }
        Change::Put(kv) => {
            let version = ImportedVersion {
                created: Revision::new(kv.created),
                version: kv.version,
                value: kv.value,
                lease: LeaseId::from_wire(kv.lease),
            };
            Some(ImportedEvent {
                revision: Revision::new(revision),
                sub,
                key: kv.key,
                version: Some(version),
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(saved: i64, compacted: Option<i64>, target: RestoredRevision, expected: Option<(i64, i64)>) {
        assert_eq!(revisions(saved, compacted, target).ok(), expected);
    }

    #[test]
    fn a_bumped_store_begins_compacted_and_an_exact_one_as_it_was() {
        check(9, Some(4), RestoredRevision::AsSaved, Some((9, 4)));
        check(9, None, RestoredRevision::AsSaved, Some((9, -1)));
        check(9, Some(4), RestoredRevision::Bumped(100), Some((109, 109)));
        check(i64::MAX - 1, None, RestoredRevision::Bumped(1), None);
        check(9, None, RestoredRevision::Bumped(u64::MAX), None);
    }
}
