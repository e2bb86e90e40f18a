//! Which alarms are on, and what each forbids.
//!
//! Always true: the table equals the rows of the database and of the batch being built. What is
//! refused depends on agreed alarms alone, never on the size or the health of this member, so that
//! all members refuse alike.

use crate::error::{StateError, damaged};
use meerkat_engine::{Batch, Column, View};
use meerkat_types::{Alarm, AlarmBy, AlarmKind, Command, MemberId, Refusal};
use std::collections::BTreeMap;
use std::sync::Arc;

const ALARM: &[u8] = b"alarm/";
const ALARM_END: &[u8] = b"alarm0";

/// Each alarm, and who must clear it.
pub(crate) type Alarms = BTreeMap<Alarm, AlarmBy>;

#[derive(Default)]
pub(crate) struct AlarmTable {
    /// Shared with readers, who see it as of the last commit.
    pub alarms: Arc<Alarms>,
}

impl AlarmTable {
    pub(crate) fn load(view: &View) -> Result<AlarmTable, StateError> {
        let mut alarms = Alarms::new();
        let mut rows = view.scan(Column::Meta, ALARM, Some(ALARM_END));
        while let Some((key, row)) = rows.row() {
            let alarm = decode_key(&key[ALARM.len()..]).ok_or(damaged("alarm"))?;
            let by = match row {
                [0] => AlarmBy::Cluster,
                [1] => AlarmBy::Operator,
                _ => return Err(damaged("alarm")),
            };
            alarms.insert(alarm, by);
            rows.step();
        }
        rows.finish()?;
        Ok(AlarmTable { alarms: Arc::new(alarms) })
    }

    /// An operator's alarm stays the operator's.
    pub(crate) fn raise(&mut self, batch: &mut Batch, alarm: Alarm, by: AlarmBy) {
        if self.alarms.get(&alarm) == Some(&AlarmBy::Operator) {
            return;
        }
        batch.put(Column::Meta, &key(alarm), &[u8::from(by == AlarmBy::Operator)]);
        Arc::make_mut(&mut self.alarms).insert(alarm, by);
    }

    /// Whether it was there, and the asker's to clear.
    pub(crate) fn clear(&mut self, batch: &mut Batch, alarm: Alarm, by: AlarmBy) -> bool {
        match (self.alarms.get(&alarm), by) {
            (None, _) | (Some(AlarmBy::Operator), AlarmBy::Cluster) => false,
            (Some(_), _) => {
                batch.delete(Column::Meta, &key(alarm));
                Arc::make_mut(&mut self.alarms).remove(&alarm);
                true
            }
        }
    }

    /// A member that is gone needs no room any more. That its data was another's stays to be looked at.
    pub(crate) fn forget_member(&mut self, batch: &mut Batch, member: MemberId) {
        let alarm = Alarm { kind: AlarmKind::NoSpace, member };
        self.clear(batch, alarm, AlarmBy::Cluster);
    }

    fn is_on(&self, kind: AlarmKind) -> bool {
        self.alarms.keys().any(|alarm| alarm.kind == kind)
    }

    /// Why a command may not be carried out while these alarms are on.
    pub(crate) fn forbids(&self, command: &Command) -> Option<Refusal> {
        if self.alarms.is_empty() {
            return None;
        }
        let (changes, adds) = match command {
            Command::Put(_) | Command::GrantLease(_) => (true, true),
            // A transaction without puts may still delete; one that only reads does not come here.
            Command::Txn(txn) => (!txn.is_read_only(), txn.holds_put()),
            Command::DeleteRange(_)
            | Command::Compact(_)
            | Command::RevokeLease(_)
            | Command::ExpireLease { .. } => (true, false),
            Command::NoteLeases { .. }
            | Command::PublishMember(_)
            | Command::RaiseAlarm { .. }
            | Command::ClearAlarm { .. }
            | Command::SetDowngrade(_)
            | Command::Auth(_) => (false, false),
        };
        if changes && self.is_on(AlarmKind::Corrupt) {
            return Some(Refusal::Corrupt);
        }
        (adds && self.is_on(AlarmKind::NoSpace)).then_some(Refusal::NoSpace)
    }
}

fn key(alarm: Alarm) -> Vec<u8> {
    let kind = match alarm.kind {
        AlarmKind::NoSpace => 1,
        AlarmKind::Corrupt => 2,
    };
    [ALARM, &[kind], &alarm.member.0.to_be_bytes()].concat()
}

fn decode_key(bytes: &[u8]) -> Option<Alarm> {
    let (kind, member) = bytes.split_first()?;
    let kind = match kind {
        1 => AlarmKind::NoSpace,
        2 => AlarmKind::Corrupt,
        _ => return None,
    };
    Some(Alarm { kind, member: MemberId(u64::from_be_bytes(member.try_into().ok()?)) })
}
