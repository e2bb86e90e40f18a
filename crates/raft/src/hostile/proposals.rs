//! Proposals as they stand in log entries, and as a peer hands them over.

use crate::entry;
use bytes::Bytes;
use meerkat_engine::{Db, DbOptions};
use meerkat_mangle::Fuzz;
use meerkat_state::{LogEntry, Machine, Payload, StateReader};
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, Asker, AuthCommand, AuthRevision, Command, Compact, Compare, CompareOperator,
    CompareTarget, Consistency, DeleteRange, GrantLease, Key, KeyRange, LeaseId, LeaseNote, LeaseTtl,
    LogIndex, LogPosition, MemberAttributes, MemberId, NewLease, NewValue, Password, Permission,
    PermissionKind, Proposal, Put, RangeQuery, RequestId, Revision, RevisionBounds, RoleName, Sort, Term,
    TokenDigest, Txn, TxnOp, UserName, Way,
};
use std::time::Duration;

fn keys(first: &'static [u8], end: &'static [u8]) -> KeyRange {
    let first = Key::new(Bytes::from_static(first)).expect("not empty");
    KeyRange::from_wire(first, Bytes::from_static(end))
}

fn put(key: &'static [u8]) -> Put {
    Put {
        key: Key::new(Bytes::from_static(key)).expect("not empty"),
        value: NewValue::Set(Bytes::from_static(b"value")),
        lease: NewLease::Set(None),
        want_previous: true,
    }
}

fn query() -> RangeQuery {
    RangeQuery {
        keys: keys(b"a", b"\0"),
        at: Some(Revision::new(3)),
        limit: Some(2),
        sort: Sort::BY_KEY,
        consistency: Consistency::Linearizable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds { modified_first: Some(Revision::new(2)), ..RevisionBounds::default() },
    }
}

fn txn() -> Txn {
    let compare = |target| Compare { keys: keys(b"a", b""), target, operator: CompareOperator::Equal };
    let inner = Txn { compares: vec![], success: vec![TxnOp::Put(put(b"b"))], failure: vec![] };
    let delete = DeleteRange { keys: keys(b"c", b"d"), want_previous: true };
    Txn {
        compares: vec![
            compare(CompareTarget::Version(1)),
            compare(CompareTarget::Value(Bytes::from_static(b"value"))),
        ],
        success: vec![TxnOp::Put(put(b"a")), TxnOp::Range(query()), TxnOp::Txn(inner)],
        failure: vec![TxnOp::DeleteRange(delete)],
    }
}

fn of_leases() -> Vec<Command> {
    let id = LeaseId::from_wire(7).expect("not zero");
    let ttl = LeaseTtl::from_seconds(60).expect("in range");
    let remaining = Some(Duration::from_millis(5));
    vec![
        Command::GrantLease(GrantLease { id, ttl }),
        Command::Put(Put { lease: NewLease::Set(Some(id)), ..put(b"leased") }),
        Command::NoteLeases { term: Term(1), notes: vec![LeaseNote { id, granted: LogIndex(1), remaining }] },
        Command::ExpireLease { lease: id, granted: LogIndex(1), term: Term(1) },
        Command::RevokeLease(id),
    ]
}

fn of_users() -> Vec<Command> {
    let (user, role) = (UserName::new("u"), RoleName::new("r"));
    let permission = Permission { kind: PermissionKind::ReadWrite, keys: keys(b"a", b"c") };
    let commands = [
        AuthCommand::AddRole { role: role.clone() },
        AuthCommand::GrantPermission { role: role.clone(), permission },
        AuthCommand::AddUser { user: user.clone(), password: Password::Hash(Bytes::from_static(b"$2b$")) },
        AuthCommand::GrantRole { user: user.clone(), role },
        AuthCommand::AssignToken {
            user: user.expect("a name"),
            token: TokenDigest([7; 32]),
            checked: AuthRevision(3),
        },
        AuthCommand::Enable,
    ];
    commands.into_iter().map(Command::Auth).collect()
}

fn samples() -> Vec<Vec<u8>> {
    let alarm = Alarm { kind: AlarmKind::NoSpace, member: MemberId(1) };
    let mut commands = vec![
        Command::Put(put(b"a")),
        Command::Put(Put { value: NewValue::KeepCurrent, lease: NewLease::KeepCurrent, ..put(b"a") }),
        Command::Txn(txn()),
        Command::DeleteRange(DeleteRange { keys: keys(b"a", b"b"), want_previous: true }),
        Command::Compact(Compact { revision: Revision::new(2) }),
        Command::PublishMember(MemberAttributes {
            member: MemberId(1),
            name: "m1".into(),
            client_urls: vec!["http://127.0.0.1:2379".into()],
            incarnation: 42,
        }),
        Command::RaiseAlarm { alarm, by: AlarmBy::Operator },
        Command::ClearAlarm { alarm, by: AlarmBy::Operator },
        Command::SetDowngrade(Some("3.5.0".into())),
    ];
    commands.extend(of_leases());
    commands.extend(of_users());
    let asker = |number: usize| {
        number.is_multiple_of(3).then_some(Asker {
            user: UserName::new("u"),
            revision: AuthRevision(9),
            way: if number.is_multiple_of(2) { Way::Door } else { Way::Direct },
        })
    };
    let proposal = |(number, command)| Proposal {
        id: RequestId(number as u64),
        stamp_ms: 1_700_000_000_000,
        asker: asker(number),
        command,
    };
    commands.into_iter().enumerate().map(proposal).map(|proposal| entry::encode(&proposal).to_vec()).collect()
}

/// What can be read means the same when it is written again. And it can be applied: the leader takes from a
/// peer whatever it can read, and what is in the log is applied by everybody.
#[test]
fn a_mutated_proposal_is_refused_or_applied_and_never_a_panic() {
    let dir = tempfile::tempdir().expect("temp dir");
    let small = DbOptions {
        block_cache_bytes: 4 << 20,
        write_buffer_bytes: 4 << 20,
        flush_on_close: false,
        ..DbOptions::default()
    };
    let db = Db::open(dir.path().join("state"), &small).expect("opens");
    let mut machine = Machine::open(db, &StateReader::new()).expect("opens");
    let mut index = 0;
    let fuzz = Fuzz::new("proposals", include_str!("../../corpus/proposals.txt"), samples());
    fuzz.run(6_000, |bytes| {
        let Ok(proposal) = entry::decode(Bytes::copy_from_slice(bytes)) else { return false };
        let again = entry::decode(entry::encode(&proposal)).expect("reads what it wrote");
        assert_eq!(again, proposal);
        index += 1;
        let position = LogPosition { term: Term(1), node: MemberId(1), index: LogIndex(index) };
        let applied = machine.apply(&[LogEntry { position, payload: Payload::Command(proposal) }]);
        applied.expect("a sound database takes every command");
        true
    });
}
