//! A proposal to and from the log's own bytes.
//!
//! Always true: `decode(encode(p)) == p`. The encoding is a promise to disks already written (see
//! `proto/meerkat/entry.proto`); an entry that cannot be read stops the member, since skipping it
//! would make this member differ from the others.

mod auth;

use bytes::Bytes;
use meerkat_proto::pb::entry as pb;
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, Command, Compact, Compare, CompareOperator, CompareTarget, Consistency,
    DeleteRange, GrantLease, Key, KeyRange, LeaseId, LeaseNote, LeaseTtl, LogIndex, MemberAttributes,
    MemberId, NewLease, NewValue, Proposal, Put, RangeQuery, RequestId, Revision, RevisionBounds, Sort,
    SortOrder, SortTarget, Term, Txn, TxnOp,
};
use prost::Message;
use std::time::Duration;

/// The entry was written by a newer version, or is not an entry at all.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("log entry is not a proposal: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("log entry has {what}; it was written by a newer version: upgrade this member")]
    Unknown { what: &'static str },
}

pub fn encode(proposal: &Proposal) -> Bytes {
    to_wire(proposal).encode_to_vec().into()
}

pub fn decode(bytes: Bytes) -> Result<Proposal, EntryError> {
    from_wire(pb::Proposal::decode(bytes)?)
}

fn to_wire(proposal: &Proposal) -> pb::Proposal {
    use pb::proposal::Command as Wire;
    let command = match &proposal.command {
        Command::Put(put) => Wire::Put(put_to_wire(put)),
        Command::DeleteRange(delete) => Wire::DeleteRange(delete_to_wire(delete)),
        Command::Txn(txn) => Wire::Txn(txn_to_wire(txn)),
        Command::Compact(compact) => Wire::Compact(pb::Compact { revision: compact.revision.get() }),
        Command::PublishMember(member) => Wire::PublishMember(pb::PublishMember {
            member: member.member.0,
            name: member.name.clone(),
            client_urls: member.client_urls.clone(),
            incarnation: member.incarnation,
        }),
        Command::GrantLease(grant) => {
            Wire::GrantLease(pb::GrantLease { lease: grant.id.get(), ttl_seconds: grant.ttl.seconds() })
        }
        Command::RevokeLease(lease) => Wire::RevokeLease(pb::RevokeLease { lease: lease.get() }),
        Command::ExpireLease { lease, granted, term } => {
            Wire::ExpireLease(pb::ExpireLease { lease: lease.get(), granted: granted.0, term: term.0 })
        }
        Command::RaiseAlarm { alarm, by } => Wire::RaiseAlarm(pb::RaiseAlarm {
            alarm: Some(alarm_to_wire(*alarm)),
            by_operator: is_person(*by),
        }),
        Command::ClearAlarm { alarm, by } => Wire::ClearAlarm(pb::ClearAlarm {
            alarm: Some(alarm_to_wire(*alarm)),
            by_operator: is_person(*by),
        }),
        Command::SetDowngrade(target) => {
            Wire::SetDowngrade(pb::SetDowngrade { target: target.clone().unwrap_or_default() })
        }
        Command::NoteLeases { term, notes } => {
            Wire::NoteLeases(pb::NoteLeases { term: term.0, notes: notes.iter().map(note_to_wire).collect() })
        }
        Command::Auth(command) => auth::to_wire(command),
    };
    pb::Proposal {
        id: proposal.id.0,
        stamp_ms: proposal.stamp_ms,
        asker: proposal.asker.as_ref().map(auth::asker_to_wire),
        command: Some(command),
    }
}

fn from_wire(wire: pb::Proposal) -> Result<Proposal, EntryError> {
    use pb::proposal::Command as Wire;
    let command =
        match wire.command.ok_or(EntryError::Unknown { what: "a command this version does not know" })? {
            Wire::Put(put) => Command::Put(put_from_wire(put)?),
            Wire::DeleteRange(delete) => Command::DeleteRange(delete_from_wire(delete)?),
            Wire::Txn(txn) => Command::Txn(txn_from_wire(txn)?),
            Wire::Compact(compact) => Command::Compact(Compact { revision: Revision::new(compact.revision) }),
            Wire::PublishMember(member) => Command::PublishMember(MemberAttributes {
                member: MemberId(member.member),
                name: member.name,
                client_urls: member.client_urls,
                incarnation: member.incarnation,
            }),
            Wire::GrantLease(grant) => Command::GrantLease(GrantLease {
                id: lease(grant.lease)?,
                ttl: LeaseTtl::from_seconds(grant.ttl_seconds)
                    .ok_or(EntryError::Unknown { what: "a time to live out of bounds" })?,
            }),
            Wire::RevokeLease(revoke) => Command::RevokeLease(lease(revoke.lease)?),
            Wire::ExpireLease(expire) => Command::ExpireLease {
                lease: lease(expire.lease)?,
                granted: LogIndex(expire.granted),
                term: Term(expire.term),
            },
            Wire::RaiseAlarm(raise) => {
                Command::RaiseAlarm { alarm: alarm_from_wire(raise.alarm)?, by: who(raise.by_operator) }
            }
            Wire::ClearAlarm(clear) => {
                Command::ClearAlarm { alarm: alarm_from_wire(clear.alarm)?, by: who(clear.by_operator) }
            }
            Wire::SetDowngrade(set) => Command::SetDowngrade(Some(set.target).filter(|to| !to.is_empty())),
            Wire::NoteLeases(notes) => Command::NoteLeases {
                term: Term(notes.term),
                notes: notes.notes.iter().map(note_from_wire).collect::<Result<_, _>>()?,
            },
            command => Command::Auth(auth::from_wire(command)?),
        };
    let asker = wire.asker.map(auth::asker_from_wire);
    Ok(Proposal { id: RequestId(wire.id), stamp_ms: wire.stamp_ms, asker, command })
}

fn lease(number: i64) -> Result<LeaseId, EntryError> {
    LeaseId::from_wire(number).ok_or(EntryError::Unknown { what: "a lease without a name" })
}

fn is_person(by: AlarmBy) -> bool {
    by == AlarmBy::Operator
}

fn who(by_operator: bool) -> AlarmBy {
    if by_operator { AlarmBy::Operator } else { AlarmBy::Cluster }
}

fn alarm_to_wire(alarm: Alarm) -> pb::Alarm {
    let kind = match alarm.kind {
        AlarmKind::NoSpace => pb::AlarmKind::NoSpace,
        AlarmKind::Corrupt => pb::AlarmKind::Corrupt,
    };
    pb::Alarm { member: alarm.member.0, kind: kind.into() }
}

fn alarm_from_wire(wire: Option<pb::Alarm>) -> Result<Alarm, EntryError> {
    let unknown = EntryError::Unknown { what: "an alarm that this version does not know" };
    let Some(wire) = wire else { return Err(unknown) };
    let kind = match pb::AlarmKind::try_from(wire.kind) {
        Ok(pb::AlarmKind::NoSpace) => AlarmKind::NoSpace,
        Ok(pb::AlarmKind::Corrupt) => AlarmKind::Corrupt,
        Ok(pb::AlarmKind::Unspecified) | Err(_) => return Err(unknown),
    };
    Ok(Alarm { kind, member: MemberId(wire.member) })
}

fn note_to_wire(note: &LeaseNote) -> pb::LeaseNote {
    let millis = |rest: Duration| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
    pb::LeaseNote { lease: note.id.get(), granted: note.granted.0, remaining_ms: note.remaining.map(millis) }
}

fn note_from_wire(wire: &pb::LeaseNote) -> Result<LeaseNote, EntryError> {
    let remaining = wire.remaining_ms.map(Duration::from_millis);
    Ok(LeaseNote { id: lease(wire.lease)?, granted: LogIndex(wire.granted), remaining })
}

fn put_to_wire(put: &Put) -> pb::Put {
    let (value, keep_value) = match &put.value {
        NewValue::Set(value) => (value.clone(), false),
        NewValue::KeepCurrent => (Bytes::new(), true),
    };
    let (lease, keep_lease) = match put.lease {
        NewLease::Set(lease) => (lease.map_or(0, LeaseId::get), false),
        NewLease::KeepCurrent => (0, true),
    };
    pb::Put {
        key: put.key.bytes().clone(),
        value,
        lease,
        keep_value,
        keep_lease,
        want_previous: put.want_previous,
    }
}

fn put_from_wire(wire: pb::Put) -> Result<Put, EntryError> {
    Ok(Put {
        key: key(wire.key)?,
        value: if wire.keep_value { NewValue::KeepCurrent } else { NewValue::Set(wire.value) },
        lease: if wire.keep_lease {
            NewLease::KeepCurrent
        } else {
            NewLease::Set(LeaseId::from_wire(wire.lease))
        },
        want_previous: wire.want_previous,
    })
}

fn delete_to_wire(delete: &DeleteRange) -> pb::DeleteRange {
    pb::DeleteRange { keys: Some(keys_to_wire(&delete.keys)), want_previous: delete.want_previous }
}

fn delete_from_wire(wire: pb::DeleteRange) -> Result<DeleteRange, EntryError> {
    Ok(DeleteRange { keys: keys_from_wire(wire.keys)?, want_previous: wire.want_previous })
}

fn key(bytes: Bytes) -> Result<Key, EntryError> {
    Key::new(bytes).ok_or(EntryError::Unknown { what: "an empty key" })
}

fn keys_to_wire(keys: &KeyRange) -> pb::KeyRange {
    pb::KeyRange { key: keys.first().bytes().clone(), range_end: keys.range_end() }
}

fn keys_from_wire(wire: Option<pb::KeyRange>) -> Result<KeyRange, EntryError> {
    let wire = wire.ok_or(EntryError::Unknown { what: "an operation without keys" })?;
    Ok(KeyRange::from_wire(key(wire.key)?, wire.range_end))
}

fn txn_to_wire(txn: &Txn) -> pb::Txn {
    pb::Txn {
        compares: txn.compares.iter().map(compare_to_wire).collect(),
        success: txn.success.iter().map(operation_to_wire).collect(),
        failure: txn.failure.iter().map(operation_to_wire).collect(),
    }
}

fn txn_from_wire(wire: pb::Txn) -> Result<Txn, EntryError> {
    Ok(Txn {
        compares: wire.compares.into_iter().map(compare_from_wire).collect::<Result<_, _>>()?,
        success: wire.success.into_iter().map(operation_from_wire).collect::<Result<_, _>>()?,
        failure: wire.failure.into_iter().map(operation_from_wire).collect::<Result<_, _>>()?,
    })
}

fn operation_to_wire(op: &TxnOp) -> pb::Operation {
    use pb::operation::Operation as Wire;
    let operation = match op {
        TxnOp::Range(query) => Wire::Range(range_to_wire(query)),
        TxnOp::Put(put) => Wire::Put(put_to_wire(put)),
        TxnOp::DeleteRange(delete) => Wire::DeleteRange(delete_to_wire(delete)),
        TxnOp::Txn(txn) => Wire::Txn(txn_to_wire(txn)),
    };
    pb::Operation { operation: Some(operation) }
}

fn operation_from_wire(wire: pb::Operation) -> Result<TxnOp, EntryError> {
    use pb::operation::Operation as Wire;
    Ok(
        match wire.operation.ok_or(EntryError::Unknown { what: "an operation this version does not know" })? {
            Wire::Range(range) => TxnOp::Range(range_from_wire(range)?),
            Wire::Put(put) => TxnOp::Put(put_from_wire(put)?),
            Wire::DeleteRange(delete) => TxnOp::DeleteRange(delete_from_wire(delete)?),
            Wire::Txn(txn) => TxnOp::Txn(txn_from_wire(txn)?),
        },
    )
}

/// The position of each value in these tables is its number in the log.
const SORT_ORDERS: [SortOrder; 3] = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend];
const SORT_TARGETS: [SortTarget; 5] =
    [SortTarget::Key, SortTarget::Version, SortTarget::Created, SortTarget::Modified, SortTarget::Value];
const OPERATORS: [CompareOperator; 4] =
    [CompareOperator::Equal, CompareOperator::Greater, CompareOperator::Less, CompareOperator::NotEqual];

fn number_of<T: PartialEq>(table: &[T], value: &T) -> u32 {
    let position = table.iter().position(|entry| entry == value);
    u32::try_from(position.expect("every value is in its table")).expect("tables are short")
}

fn value_of<T: Copy>(table: &[T], number: u32, what: &'static str) -> Result<T, EntryError> {
    usize::try_from(number).ok().and_then(|n| table.get(n).copied()).ok_or(EntryError::Unknown { what })
}

fn range_to_wire(query: &RangeQuery) -> pb::Range {
    let number = |revision: Option<Revision>| revision.map_or(0, Revision::get);
    pb::Range {
        keys: Some(keys_to_wire(&query.keys)),
        at: number(query.at),
        limit: query.limit.map_or(0, |limit| limit as u64),
        sort_order: number_of(&SORT_ORDERS, &query.sort.order),
        sort_target: number_of(&SORT_TARGETS, &query.sort.target),
        serializable: query.consistency == Consistency::Serializable,
        keys_only: query.keys_only,
        count_only: query.count_only,
        modified_first: number(query.bounds.modified_first),
        modified_last: number(query.bounds.modified_last),
        created_first: number(query.bounds.created_first),
        created_last: number(query.bounds.created_last),
    }
}

fn range_from_wire(wire: pb::Range) -> Result<RangeQuery, EntryError> {
    let revision = |number: i64| if number == 0 { None } else { Some(Revision::new(number)) };
    Ok(RangeQuery {
        keys: keys_from_wire(wire.keys)?,
        at: revision(wire.at),
        limit: if wire.limit == 0 { None } else { Some(usize::try_from(wire.limit).unwrap_or(usize::MAX)) },
        sort: Sort {
            order: value_of(&SORT_ORDERS, wire.sort_order, "an unknown sort order")?,
            target: value_of(&SORT_TARGETS, wire.sort_target, "an unknown sort target")?,
        },
        consistency: if wire.serializable { Consistency::Serializable } else { Consistency::Linearizable },
        keys_only: wire.keys_only,
        count_only: wire.count_only,
        bounds: RevisionBounds {
            modified_first: revision(wire.modified_first),
            modified_last: revision(wire.modified_last),
            created_first: revision(wire.created_first),
            created_last: revision(wire.created_last),
        },
    })
}

fn compare_to_wire(compare: &Compare) -> pb::Compare {
    use pb::compare::Target as Wire;
    let target = match &compare.target {
        CompareTarget::Version(version) => Wire::Version(*version),
        CompareTarget::Created(revision) => Wire::Created(revision.get()),
        CompareTarget::Modified(revision) => Wire::Modified(revision.get()),
        CompareTarget::Value(value) => Wire::Value(value.clone()),
        CompareTarget::Lease(lease) => Wire::Lease(lease.map_or(0, LeaseId::get)),
    };
    pb::Compare {
        keys: Some(keys_to_wire(&compare.keys)),
        operator: number_of(&OPERATORS, &compare.operator),
        target: Some(target),
    }
}

fn compare_from_wire(wire: pb::Compare) -> Result<Compare, EntryError> {
    use pb::compare::Target as Wire;
    let target = match wire.target.ok_or(EntryError::Unknown { what: "an unknown compare target" })? {
        Wire::Version(version) => CompareTarget::Version(version),
        Wire::Created(revision) => CompareTarget::Created(Revision::new(revision)),
        Wire::Modified(revision) => CompareTarget::Modified(Revision::new(revision)),
        Wire::Value(value) => CompareTarget::Value(value),
        Wire::Lease(lease) => CompareTarget::Lease(LeaseId::from_wire(lease)),
    };
    Ok(Compare {
        keys: keys_from_wire(wire.keys)?,
        operator: value_of(&OPERATORS, wire.operator, "an unknown compare operator")?,
        target,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{Asker, AuthRevision, UserName, Way};

    fn keys(first: &'static [u8], end: &'static [u8]) -> KeyRange {
        KeyRange::from_wire(Key::new(Bytes::from_static(first)).expect("key"), Bytes::from_static(end))
    }

    pub(super) fn check(command: Command) {
        let somebody = |way| Some(Asker { user: UserName::new("u"), revision: AuthRevision(9), way });
        for asker in [None, Some(Asker::NOBODY), somebody(Way::Direct), somebody(Way::Door)] {
            let proposal = Proposal { id: RequestId(u64::MAX), stamp_ms: 7, asker, command: command.clone() };
            assert_eq!(decode(encode(&proposal)).expect("decodes"), proposal);
        }
    }

    fn put(value: NewValue, lease: NewLease) -> Put {
        Put { key: Key::new(Bytes::from_static(b"k\0\xff")).expect("key"), value, lease, want_previous: true }
    }

    fn query(order: SortOrder, target: SortTarget) -> RangeQuery {
        RangeQuery {
            keys: keys(b"a", b"\0"),
            at: Some(Revision::new(9)),
            limit: Some(3),
            sort: Sort { order, target },
            consistency: Consistency::Serializable,
            keys_only: true,
            count_only: false,
            bounds: RevisionBounds {
                modified_first: Some(Revision::new(1)),
                modified_last: None,
                created_first: Some(Revision::new(2)),
                created_last: Some(Revision::new(3)),
            },
        }
    }

    #[test]
    fn every_command_survives_the_log() {
        check(Command::Put(put(
            NewValue::Set(Bytes::from_static(b"v")),
            NewLease::Set(LeaseId::from_wire(-5)),
        )));
        check(Command::Put(put(NewValue::KeepCurrent, NewLease::KeepCurrent)));
        check(Command::DeleteRange(DeleteRange { keys: keys(b"a", b"b"), want_previous: true }));
        check(Command::Compact(Compact { revision: Revision::new(-1) }));
        check(Command::PublishMember(MemberAttributes {
            member: MemberId(1),
            name: "m1".into(),
            client_urls: vec!["http://127.0.0.1:2379".into()],
            incarnation: 42,
        }));
        let id = LeaseId::from_wire(i64::MIN).expect("not zero");
        let ttl = LeaseTtl::from_seconds(9_000_000_000).expect("in range");
        check(Command::GrantLease(GrantLease { id, ttl }));
        check(Command::RevokeLease(id));
        check(Command::ExpireLease { lease: id, granted: LogIndex(5), term: Term(u64::MAX) });
        let notes = [None, Some(Duration::ZERO), Some(Duration::from_millis(1))];
        let notes = notes.map(|remaining| LeaseNote { id, granted: LogIndex(8), remaining }).to_vec();
        check(Command::NoteLeases { term: Term(3), notes });
        check(Command::SetDowngrade(None));
        check(Command::SetDowngrade(Some("3.5.0".into())));
        for (kind, by) in [(AlarmKind::NoSpace, AlarmBy::Cluster), (AlarmKind::Corrupt, AlarmBy::Operator)] {
            let alarm = Alarm { kind, member: MemberId(u64::MAX) };
            check(Command::RaiseAlarm { alarm, by });
            check(Command::ClearAlarm { alarm, by });
        }
    }

    #[test]
    fn every_part_of_a_txn_survives_the_log() {
        for order in SORT_ORDERS {
            for target in SORT_TARGETS {
                let inner = Txn {
                    compares: vec![],
                    success: vec![TxnOp::Range(query(order, target))],
                    failure: vec![],
                };
                check(Command::Txn(Txn {
                    compares: vec![],
                    success: vec![],
                    failure: vec![TxnOp::Txn(inner)],
                }));
            }
        }
        let targets = [
            CompareTarget::Version(3),
            CompareTarget::Created(Revision::new(4)),
            CompareTarget::Modified(Revision::new(5)),
            CompareTarget::Value(Bytes::from_static(b"x")),
            CompareTarget::Lease(None),
        ];
        for target in targets {
            for operator in OPERATORS {
                let compares = vec![Compare { keys: keys(b"k", b""), target: target.clone(), operator }];
                check(Command::Txn(Txn { compares, success: vec![], failure: vec![] }));
            }
        }
    }

    #[test]
    fn an_entry_of_a_newer_version_is_refused() {
        let empty = pb::Proposal { id: 1, stamp_ms: 1, asker: None, command: None }.encode_to_vec();
        assert!(matches!(decode(empty.into()), Err(EntryError::Unknown { .. })));
        assert!(matches!(decode(Bytes::from_static(b"\xff\xff\xff")), Err(EntryError::Malformed(_))));
    }
}
