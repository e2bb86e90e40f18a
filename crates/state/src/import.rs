//! A state made from a backup instead of from a log.
//!
//! Events are handed in as they happened, with the revisions, versions and leases that they had; from
//! them come the same rows that applying the original commands would have left. Times are not in a
//! backup: what is imported was written at time 0.
//!
//! Always true: equal input gives equal rows, and an equal digest, on every member. The state says of
//! itself that it was applied up to a position which no log reaches, so the consensus layer must purge
//! its log up to there: what was imported can be had as a snapshot only.

use crate::alarm::AlarmTable;
use crate::auth::{self, AuthBook};
use crate::digest::{Digest, Summary, fold_entry, fold_event};
use crate::error::StateError;
use crate::lease::LeaseTable;
use crate::mvcc::event_id::EventId;
use crate::mvcc::head_row::{HeadRow, Mark};
use crate::mvcc::log_row::LogRowHeader;
use crate::mvcc::store::Store;
use crate::mvcc::version_row;
use crate::mvcc::wire::Tail;
use crate::schema::{self, Registers};
use bytes::Bytes;
use meerkat_engine::{Column, Db};
use meerkat_types::{Alarm, AlarmBy, Lease, LeaseId, LogPosition, Revision};
use std::collections::BTreeMap;

/// A batch of this size is written, so that memory does not grow with the backup.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// One event of a backup.
#[derive(Clone, Copy, Debug)]
pub struct ImportedEvent<'a> {
    pub revision: Revision,
    pub sub: u32,
    pub key: &'a [u8],
    /// `None` of a deletion.
    pub version: Option<ImportedVersion<'a>>,
}

/// What a put left.
#[derive(Clone, Copy, Debug)]
pub struct ImportedVersion<'a> {
    pub created: Revision,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: Option<LeaseId>,
}

/// What the whole is to be, besides its events.
#[derive(Clone, Debug)]
pub struct ImportEnd {
    /// At least that of the newest event.
    pub revision: Revision,
    /// Nothing below is readable.
    pub compacted: Option<Revision>,
    /// The entry of the log that the state counts as.
    pub position: LogPosition,
    /// The membership, as the consensus layer encodes it.
    pub membership: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("event {sub} of revision {revision} comes after event {last_sub} of revision {last_revision}")]
    OutOfOrder { revision: Revision, sub: u32, last_revision: Revision, last_sub: u32 },
    #[error("revision {revision} is none that a store has")]
    NoRevision { revision: Revision },
    #[error(
        "the version written in revision {revision} says that its key was created in revision {created} and is version {version}"
    )]
    Impossible { revision: Revision, created: Revision, version: i64 },
    #[error("lease {0} is there twice")]
    LeaseTwice(LeaseId),
    #[error("a backup is restored only into an empty database")]
    NotEmpty,
}

/// Takes leases, users, roles and alarms first, then events in ascending order.
pub struct Import {
    store: Store,
    leases: LeaseTable,
    alarms: AlarmTable,
    /// All that is not an event, for the digest.
    other_rows: Vec<u8>,
    last: Option<EventId>,
    /// What the revision under way did to each key: the newest sub, and the key before the revision.
    touched: BTreeMap<Bytes, (u32, Option<EventId>)>,
    events_digest: u128,
    row: Vec<u8>,
    version_key: Vec<u8>,
}

impl Import {
    pub fn begin(db: Db) -> Result<Import, ImportError> {
        schema::check_format(&db)?;
        if Registers::load(&db.view())? != Registers::EMPTY {
            return Err(ImportError::NotEmpty);
        }
        Ok(Import {
            store: Store::open(db, Revision::EMPTY_STORE, None, 0)?,
            leases: LeaseTable::default(),
            alarms: AlarmTable::default(),
            other_rows: Vec::new(),
            last: None,
            touched: BTreeMap::new(),
            events_digest: 0,
            row: Vec::new(),
            version_key: Vec::new(),
        })
    }

    pub fn lease(&mut self, lease: Lease) -> Result<(), ImportError> {
        if self.leases.contains(lease.id) {
            return Err(ImportError::LeaseTwice(lease.id));
        }
        self.other_rows.extend_from_slice(text_of(&lease).as_bytes());
        self.leases.insert(&mut self.store.batch, lease);
        Ok(())
    }

    /// Users, roles and permissions, and whether clients must say who they are.
    pub fn auth(&mut self, book: &AuthBook) {
        for (key, row) in auth::rows(book) {
            for bytes in [&key, &row] {
                self.other_rows.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
                self.other_rows.extend_from_slice(bytes);
            }
            self.store.batch.put(Column::Meta, &key, &row);
        }
    }

    pub fn alarm(&mut self, alarm: Alarm, by: AlarmBy) {
        self.other_rows.extend_from_slice(format!("{alarm:?}{by:?}").as_bytes());
        self.alarms.raise(&mut self.store.batch, alarm, by);
    }

    pub fn event(&mut self, event: &ImportedEvent<'_>) -> Result<(), ImportError> {
        let id = EventId { revision: event.revision, sub: event.sub };
        self.check(id, event)?;
        let opens = self.last.is_none_or(|last| last.revision != id.revision);
        if opens {
            self.touched.clear();
        }
        let key = Bytes::copy_from_slice(event.key);
        let standing = self.store.standing(&key, false)?;
        let before = standing.as_ref().map(|standing| standing.id);
        let (shadows, link) = match self.touched.get_mut(&key) {
            Some((newest_sub, link)) => (Some(std::mem::replace(newest_sub, id.sub)), *link),
            None => {
                self.touched.insert(key.clone(), (id.sub, before));
                (None, before)
            }
        };
        let header = LogRowHeader { stamp_ms: opens.then_some(0), link, shadows };
        let lease_before = standing.as_ref().and_then(|standing| standing.lease);
        match &event.version {
            Some(version) => {
                if standing.is_none() {
                    self.store.note_born(&key);
                }
                self.move_lease(&key, lease_before, version.lease);
                self.put(id, key, &header, version);
            }
            None => {
                self.move_lease(&key, lease_before, None);
                self.delete(id, key, &header, standing.is_some())?;
            }
        }
        self.last = Some(id);
        if BATCH_BYTES_MAX <= self.store.batch.bytes() {
            self.write()?;
        }
        Ok(())
    }

    fn check(&self, id: EventId, event: &ImportedEvent<'_>) -> Result<(), ImportError> {
        let EventId { revision, sub } = id;
        // The last one is left to whoever writes next.
        if revision <= Revision::EMPTY_STORE || revision.get() == i64::MAX {
            return Err(ImportError::NoRevision { revision });
        }
        if let Some(last) = self.last.filter(|last| id <= *last) {
            let (last_revision, last_sub) = (last.revision, last.sub);
            return Err(ImportError::OutOfOrder { revision, sub, last_revision, last_sub });
        }
        match event.version {
            Some(ImportedVersion { created, version, .. })
                if created.get() <= 0 || revision < created || version <= 0 =>
            {
                Err(ImportError::Impossible { revision, created, version })
            }
            _ => Ok(()),
        }
    }

    /// A lease that the backup does not have holds no key.
    fn move_lease(&mut self, key: &[u8], from: Option<LeaseId>, to: Option<LeaseId>) {
        let known = |lease: Option<LeaseId>| lease.filter(|lease| self.leases.contains(*lease));
        let (from, to) = (known(from), known(to));
        self.store.move_lease(key, from, to);
    }

    fn put(&mut self, id: EventId, key: Bytes, header: &LogRowHeader, version: &ImportedVersion<'_>) {
        let tail = Tail {
            created: version.created,
            modified: id.revision,
            version: version.version,
            value: version.value,
            lease: version.lease,
        };
        let mark = Mark { sub: id.sub, created_ms: 0, modified_ms: 0 };
        let head = Bytes::from(HeadRow::encode(&mark, &tail));
        let mut tail_bytes = Vec::with_capacity(tail.value.len() + 40);
        tail.encode(&mut tail_bytes);
        self.row.clear();
        header.encode_put(&mut self.row, &key, &tail_bytes);
        self.write_log_row(id);
        self.row.clear();
        version_row::encode_live(&tail_bytes, &mut self.row).expect("a tail that was just encoded");
        version_row::row_key(&key, id, &mut self.version_key);
        self.store.batch.put(Column::Versions, &self.version_key, &self.row);
        self.store.batch.put(Column::Head, &key, &head);
        self.store.overlay.insert(key, Some(head));
    }

    fn delete(
        &mut self,
        id: EventId,
        key: Bytes,
        header: &LogRowHeader,
        lived: bool,
    ) -> Result<(), StateError> {
        self.row.clear();
        header.encode_tombstone(&mut self.row, &key, id.revision);
        self.write_log_row(id);
        version_row::row_key(&key, id, &mut self.version_key);
        self.store.batch.put(Column::Versions, &self.version_key, &version_row::TOMBSTONE_ROW);
        // What it deleted may have been compacted away before the backup.
        if lived {
            self.store.batch.delete(Column::Head, &key);
            self.store.note_died(&key)?;
            self.store.overlay.insert(key, None);
        }
        Ok(())
    }

    fn write_log_row(&mut self, id: EventId) {
        self.store.batch.put(Column::Log, &id.to_bytes(), &self.row);
        self.events_digest = fold_event(self.events_digest, id, &self.row);
    }

    fn write(&mut self) -> Result<(), StateError> {
        let counts_changed = self.store.settle_counts()?;
        self.store.write(counts_changed)
    }

    /// Makes it a state: durable, and applied at the given position.
    pub fn finish(mut self, end: &ImportEnd) -> Result<Digest, ImportError> {
        let newest = self.last.map_or(Revision::EMPTY_STORE, |last| last.revision);
        if end.revision < newest || Some(end.revision) < end.compacted || end.revision.get() == i64::MAX {
            return Err(ImportError::NoRevision { revision: end.revision });
        }
        let whole =
            [self.other_rows.as_slice(), &Revision::compacted_to_wire(end.compacted).to_be_bytes()].concat();
        let last = EventId { revision: end.revision, sub: u32::MAX };
        let events = fold_event(self.events_digest, last, &whole);
        let digest = fold_entry(0, end.position, &Summary::membership(&end.membership), events);
        let registers = Registers {
            revision: end.revision,
            compacted: end.compacted,
            stamp_ms: 0,
            applied: Some(end.position),
            digest,
        };
        self.store.batch.put(Column::Meta, schema::REGISTERS, &registers.encode());
        schema::put_membership(&mut self.store.batch, &(end.position, end.membership.clone()));
        self.write()?;
        self.store.db().flush().map_err(StateError::from)?;
        Ok(Digest { position: Some(end.position), revision: end.revision, bytes: digest.to_be_bytes() })
    }
}

/// A lease as the digest takes it in: every release must spell it alike.
fn text_of(lease: &Lease) -> String {
    let Lease { id, granted, ttl, remaining } = lease;
    format!("Lease {{ id: {id:?}, granted: {granted}, ttl: {ttl:?}, remaining: {remaining:?} }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{LeaseTtl, LogIndex};
    use std::time::Duration;

    #[test]
    fn lease_in_the_digest_is_spelled_as_ever() {
        let (id, ttl) = (LeaseId::from_wire(-7), LeaseTtl::from_seconds(60));
        let (id, ttl) = (id.expect("not zero"), ttl.expect("in range"));
        let lease = Lease { id, granted: LogIndex(5), ttl, remaining: Some(Duration::from_secs(2)) };
        let expected = "Lease { id: LeaseId(-7), granted: 5, ttl: LeaseTtl(60), remaining: Some(2s) }";
        assert_eq!(text_of(&lease), expected);
    }
}
