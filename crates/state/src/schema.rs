//! The rows of `meta`: what is known about the whole, and where.
//!
//! | row | holds | replicated |
//! |---|---|---|
//! | `format` | the version of everything in this directory | no |
//! | `registers` | applied position, revisions, time, digest | yes |
//! | `membership` | position and bytes of the newest membership entry | yes |
//! | `member/` id | what a member published about itself | yes |
//! | `removed/` id | that a member was in the cluster once and never may be again | yes |
//! | `alarm/` kind, id | that an alarm is on, and who must clear it | yes |
//! | `auth`, `auth-user/` name, `auth-role/` name | who may do what | yes |
//! | `downgrade` | the version that an operator means to go back to | yes |
//! | `weight` | everything ever written, as the quota counts it | no |
//! | `compaction` | how far this member has removed what is compacted, and how much that was | no |
//! | `local/` name | whatever the layer above keeps here | no |
//!
//! A checkpoint carries all of them, the local ones too: they describe the data beside them, and so
//! must stay true wherever that data goes.

use crate::error::{StateError, damaged};
use crate::member_row;
use crate::mvcc::event_id::EventId;
use crate::mvcc::weight::BYTES_END;
use crate::mvcc::wire::take;
use bytes::Bytes;
use meerkat_engine::{Batch, Column, Db, DbOptions, View};
use meerkat_types::{LogIndex, LogPosition, MemberAttributes, MemberId, Revision, Term};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Raised when an older release could misread a row of any column. 2: rows of `head` have times. 3:
/// leases. 4: users, roles and alarms.
pub const FORMAT_VERSION: u64 = 4;

/// Directories of these formats are such of the current one that lack what came later: leases; users,
/// roles and alarms.
const FORMATS_TAKEN_OVER: [u64; 2] = [2, 3];

pub(crate) const FORMAT: &[u8] = b"format";
pub(crate) const REGISTERS: &[u8] = b"registers";
pub(crate) const MEMBERSHIP: &[u8] = b"membership";
const MEMBER: &[u8] = b"member/";
const MEMBER_END: &[u8] = b"member0";
const REMOVED: &[u8] = b"removed/";
const REMOVED_END: &[u8] = b"removed0";
const COMPACTION: &[u8] = b"compaction";
const DOWNGRADE: &[u8] = b"downgrade";
const LOCAL: &[u8] = b"local/";

const REGISTERS_BYTES: usize = 66;

/// Nobody counts this far.
const REVISION_END: Revision = Revision::new(1 << 62);
const INDEX_END: LogIndex = LogIndex(1 << 63);

/// The small numbers that every batch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub revision: Revision,
    /// Below this nothing is readable. -1 on the disk before the first compaction.
    pub compacted: Option<Revision>,
    /// The agreed time of the newest command.
    pub stamp_ms: u64,
    pub applied: Option<LogPosition>,
    pub digest: u128,
}

impl Registers {
    pub(crate) const EMPTY: Registers =
        Registers { revision: Revision::EMPTY_STORE, compacted: None, stamp_ms: 0, applied: None, digest: 0 };

    pub(crate) fn encode(&self) -> [u8; REGISTERS_BYTES] {
        let mut row = [0; REGISTERS_BYTES];
        row[0] = crate::digest::DIGEST_VERSION;
        row[1] = u8::from(self.applied.is_some());
        let applied = self.applied.unwrap_or(position([0; 3]));
        let numbers = [
            self.revision.get() as u64,
            Revision::compacted_to_wire(self.compacted) as u64,
            self.stamp_ms,
            applied.term.0,
            applied.node.0,
            applied.index.0,
        ];
        for (slot, number) in row[2..50].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_be_bytes());
        }
        row[50..].copy_from_slice(&self.digest.to_be_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Registers> {
        let row: &[u8; REGISTERS_BYTES] = row.try_into().ok()?;
        if row[0] != crate::digest::DIGEST_VERSION {
            return None;
        }
        let number = |at: usize| row[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let position = position([number(26)?, number(34)?, number(42)?]);
        let applied = match row[1] {
            0 => None,
            1 => Some(position),
            _ => return None,
        };
        let registers = Registers {
            revision: Revision::new(number(2)? as i64),
            compacted: Revision::compacted_from_wire(number(10)? as i64),
            stamp_ms: number(18)?,
            applied,
            digest: u128::from_be_bytes(row[50..].try_into().ok()?),
        };
        registers.is_possible().then_some(registers)
    }

    /// Whether a store can have got there, and can go on from there.
    fn is_possible(&self) -> bool {
        let revisions = Revision::EMPTY_STORE..REVISION_END;
        let below = Revision::new(0)..=self.revision;
        revisions.contains(&self.revision)
            && self.compacted.is_none_or(|compacted| below.contains(&compacted))
            && self.applied.is_none_or(|applied| applied.index < INDEX_END)
    }

    pub(crate) fn load(view: &View) -> Result<Registers, StateError> {
        match view.get(Column::Meta, REGISTERS)? {
            None => Ok(Registers::EMPTY),
            Some(row) => Registers::decode(&row).ok_or(damaged("registers")),
        }
    }
}

/// Refuses a directory that this release would misread; marks a fresh one.
pub(crate) fn check_format(db: &Db) -> Result<(), StateError> {
    match read_format(db)? {
        Some(found) if !FORMATS_TAKEN_OVER.contains(&found) => refuse_other_format(db, found),
        Some(_) | None => {
            let mut batch = Batch::new(db);
            batch.put(Column::Meta, FORMAT, &FORMAT_VERSION.to_be_bytes());
            Ok(db.write(batch)?)
        }
    }
}

fn refuse_other_format(db: &Db, found: u64) -> Result<(), StateError> {
    let path = db.path().to_owned();
    match found.cmp(&FORMAT_VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StateError::NewerFormat { path, found, known: FORMAT_VERSION }),
        Ordering::Less => Err(StateError::OlderFormat { path, found, known: FORMAT_VERSION }),
    }
}

fn read_format(db: &Db) -> Result<Option<u64>, StateError> {
    let view = db.view();
    match view.get(Column::Meta, FORMAT)? {
        None => Ok(None),
        Some(row) => row
            .as_ref()
            .try_into()
            .map(|bytes| Some(u64::from_be_bytes(bytes)))
            .map_err(|_| damaged("format")),
    }
}

pub(crate) type Membership = (LogPosition, Bytes);

fn position([term, node, index]: [u64; 3]) -> LogPosition {
    LogPosition { term: Term(term), node: MemberId(node), index: LogIndex(index) }
}

pub(crate) fn put_membership(batch: &mut Batch, (position, bytes): &Membership) {
    let mut row = Vec::with_capacity(24 + bytes.len());
    for number in [position.term.0, position.node.0, position.index.0] {
        row.extend_from_slice(&number.to_be_bytes());
    }
    row.extend_from_slice(bytes);
    batch.put(Column::Meta, MEMBERSHIP, &row);
}

pub(crate) fn load_membership(view: &View) -> Result<Option<Membership>, StateError> {
    match view.get(Column::Meta, MEMBERSHIP)? {
        None => Ok(None),
        Some(row) => decode_membership(&row).map(Some),
    }
}

fn decode_membership(row: &[u8]) -> Result<Membership, StateError> {
    let mut rest: &[u8] = row;
    let mut number = || {
        let bytes = take(&mut rest, 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_be_bytes).ok_or(damaged("membership"))
    };
    let position = position([number()?, number()?, number()?]);
    Ok((position, Bytes::copy_from_slice(rest)))
}

pub(crate) type Members = BTreeMap<MemberId, MemberAttributes>;

pub(crate) fn put_member(batch: &mut Batch, member: &MemberAttributes) {
    let key = [MEMBER, &member.member.0.to_be_bytes()].concat();
    batch.put(Column::Meta, &key, &member_row::encode(member));
}

pub(crate) fn load_members(view: &View) -> Result<Members, StateError> {
    let mut members = Members::new();
    let mut rows = view.scan(Column::Meta, MEMBER, Some(MEMBER_END));
    while let Some((key, row)) = rows.row() {
        let id = key[MEMBER.len()..].try_into().map(u64::from_be_bytes).map_err(|_| damaged("member"))?;
        members.insert(MemberId(id), member_row::decode(MemberId(id), row).ok_or(damaged("member"))?);
        rows.step();
    }
    rows.finish()?;
    Ok(members)
}

/// Notes that a member is gone for good, with all it published.
pub(crate) fn put_removed(batch: &mut Batch, member: MemberId) {
    let id = member.0.to_be_bytes();
    batch.put(Column::Meta, &[REMOVED, &id].concat(), &[]);
    batch.delete(Column::Meta, &[MEMBER, &id].concat());
}

pub(crate) fn load_removed(view: &View) -> Result<BTreeSet<MemberId>, StateError> {
    let mut removed = BTreeSet::new();
    let mut rows = view.scan(Column::Meta, REMOVED, Some(REMOVED_END));
    while let Some((key, _)) = rows.row() {
        let id = key[REMOVED.len()..].try_into().map_err(|_| damaged("removed"))?;
        removed.insert(MemberId(u64::from_be_bytes(id)));
        rows.step();
    }
    rows.finish()?;
    Ok(removed)
}

pub(crate) fn put_downgrade(batch: &mut Batch, target: Option<&str>) {
    match target {
        Some(target) => batch.put(Column::Meta, DOWNGRADE, target.as_bytes()),
        None => batch.delete(Column::Meta, DOWNGRADE),
    }
}

pub(crate) fn load_downgrade(view: &View) -> Result<Option<Arc<str>>, StateError> {
    match view.get(Column::Meta, DOWNGRADE)? {
        None => Ok(None),
        Some(row) => {
            std::str::from_utf8(&row).map(|text| Some(text.into())).map_err(|_| damaged("downgrade"))
        }
    }
}

/// How far this member has got with removing what is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The first event not walked yet.
    pub next: EventId,
    /// The newest compacted revision for which everything removable is gone.
    pub finished: Option<Revision>,
    /// What all of it weighed.
    pub bytes: u64,
    /// What the events at exactly `finished` replaced weighs: no reader is owed it, and the next
    /// compaction removes it.
    pub held_bytes: u64,
}

impl Removed {
    pub(crate) fn load(view: &View) -> Result<Removed, StateError> {
        let Some(row) = view.get(Column::Meta, COMPACTION)? else {
            return Ok(Removed {
                next: EventId::first_of(Revision::new(0)),
                finished: None,
                bytes: 0,
                held_bytes: 0,
            });
        };
        Removed::decode(&row).ok_or(damaged("compaction"))
    }

    fn decode(mut row: &[u8]) -> Option<Removed> {
        let next = EventId::from_bytes(take(&mut row, 12)?)?;
        let mut number = || take(&mut row, 8).and_then(|bytes| bytes.try_into().ok());
        let finished = Revision::compacted_from_wire(number().map(i64::from_be_bytes)?);
        // Before format 4 nobody counted.
        let bytes = number().map_or(0, u64::from_be_bytes);
        let held_bytes = number().map_or(0, u64::from_be_bytes);
        let revisions = Revision::new(0)..REVISION_END;
        let possible = revisions.contains(&next.revision)
            && finished.is_none_or(|finished| revisions.contains(&finished))
            && bytes.max(held_bytes) < BYTES_END;
        (row.is_empty() && possible).then_some(Removed { next, finished, bytes, held_bytes })
    }

    pub(crate) fn put(&self, batch: &mut Batch) {
        let mut row = self.next.to_bytes().to_vec();
        row.extend_from_slice(&Revision::compacted_to_wire(self.finished).to_be_bytes());
        row.extend_from_slice(&self.bytes.to_be_bytes());
        row.extend_from_slice(&self.held_bytes.to_be_bytes());
        batch.put(Column::Meta, COMPACTION, &row);
    }
}

/// The applied position that a crash at this moment would leave: the log may be purged up to it.
pub fn persisted_applied(db: &Db) -> Result<Option<LogPosition>, StateError> {
    match db.persisted_get(Column::Meta, REGISTERS)? {
        None => Ok(None),
        Some(row) => Ok(Registers::decode(&row).ok_or(damaged("registers"))?.applied),
    }
}

/// What a crash at this moment would leave, as a snapshot would describe itself.
pub fn persisted_info(db: &Db) -> Result<SnapshotInfo, StateError> {
    loop {
        let before = db.persisted_get(Column::Meta, REGISTERS)?;
        let membership = db.persisted_get(Column::Meta, MEMBERSHIP)?;
        // A flush between the two reads would pair rows of two states.
        if before != db.persisted_get(Column::Meta, REGISTERS)? {
            continue;
        }
        let registers = before.map(|row| Registers::decode(&row).ok_or(damaged("registers"))).transpose()?;
        return Ok(SnapshotInfo {
            applied: registers.as_ref().and_then(|registers| registers.applied),
            membership: membership.map(|row| decode_membership(&row)).transpose()?,
            revision: registers.map_or(Revision::EMPTY_STORE, |registers| registers.revision),
        });
    }
}

/// What a snapshot must say about itself, read from its own rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub applied: Option<LogPosition>,
    pub membership: Option<(LogPosition, Bytes)>,
    pub revision: Revision,
}

pub fn snapshot_info(db: &Db) -> Result<SnapshotInfo, StateError> {
    if let Some(found) = read_format(db)?.filter(|found| !FORMATS_TAKEN_OVER.contains(found)) {
        refuse_other_format(db, found)?;
    }
    let view = db.view();
    let registers = Registers::load(&view)?;
    Ok(SnapshotInfo {
        applied: registers.applied,
        membership: load_membership(&view)?,
        revision: registers.revision,
    })
}

/// As [`snapshot_info`], of a checkpoint that nobody has open.
pub fn snapshot_info_at(path: &Path) -> Result<SnapshotInfo, StateError> {
    let small = DbOptions { block_cache_bytes: 1 << 20, ..DbOptions::default() };
    snapshot_info(&Db::open_read_only(path, &small)?)
}

/// A row that the layer above keeps beside the state, for example whose directory this is.
pub fn local_get(db: &Db, name: &str) -> Result<Option<Bytes>, StateError> {
    let view = db.view();
    let row = view.get(Column::Meta, &[LOCAL, name.as_bytes()].concat())?;
    Ok(row.map(|row| Bytes::copy_from_slice(&row)))
}

/// Durable only after the next flush.
pub fn local_put(db: &Db, name: &str, value: &[u8]) -> Result<(), StateError> {
    let mut batch = Batch::new(db);
    batch.put(Column::Meta, &[LOCAL, name.as_bytes()].concat(), value);
    Ok(db.write(batch)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: i64) -> Revision {
        Revision::new(revision)
    }

    #[test]
    fn registers_read_back_before_and_after_the_first_entry() {
        let applied = Some(position([3, u64::MAX, 9]));
        let full = Registers {
            revision: at(7),
            compacted: Some(at(2)),
            stamp_ms: 5,
            applied,
            digest: u128::MAX - 3,
        };
        for registers in [Registers::EMPTY, full] {
            assert_eq!(Registers::decode(&registers.encode()), Some(registers));
        }
        assert_eq!(Registers::decode(&full.encode()[1..]), None);
    }

    #[test]
    fn registers_that_no_store_can_have_are_damaged() {
        let possible = Registers { revision: at(7), compacted: Some(at(7)), ..Registers::EMPTY };
        assert_eq!(Registers::decode(&possible.encode()), Some(possible));
        let far = position([1, 1, u64::MAX]);
        for impossible in [
            Registers { revision: at(0), ..possible },
            Registers { revision: at(i64::MAX), ..possible },
            Registers { compacted: Some(at(8)), ..possible },
            Registers { compacted: Some(at(-2)), ..possible },
            Registers { applied: Some(far), ..possible },
        ] {
            assert_eq!(Registers::decode(&impossible.encode()), None, "{impossible:?}");
        }
        let mut row = possible.encode();
        row[1] = 2;
        assert_eq!(Registers::decode(&row), None);
    }

    #[test]
    fn how_far_compaction_got_reads_back_also_as_older_releases_wrote_it() {
        let next = EventId { revision: at(5), sub: 1 };
        let older = [next.to_bytes().as_slice(), &4_i64.to_be_bytes()].concat();
        let removed = Removed { next, finished: Some(at(4)), bytes: 0, held_bytes: 0 };
        assert_eq!(Removed::decode(&older), Some(removed));
        let newer = [older.as_slice(), &7_u64.to_be_bytes(), &8_u64.to_be_bytes()].concat();
        assert_eq!(Removed::decode(&newer), Some(Removed { bytes: 7, held_bytes: 8, ..removed }));
        for wrong in [&newer[..19], &[newer.as_slice(), &[0]].concat(), &[u8::MAX; 36]] {
            assert_eq!(Removed::decode(wrong), None);
        }
    }
}
