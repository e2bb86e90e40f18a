//! Rows that this release did not write, in an otherwise sound database: everything that reads, applies or
//! compacts comes to an end, with an answer or with an error that says which row is damaged.
//!
//! The engine has a checksum over every block, so such rows come from a fault in memory or in a program, not
//! from a disk. `crates/state/corpus` has those that were of interest once.

use crate::property::whole_range;
use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_engine::{Batch, Column, Db};
use meerkat_mangle::Fuzz;
use meerkat_state::{LogEntry, Machine, Payload, Progress, ReadError, ReadStrategy, StateReader};
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, AuthCommand, Command, Compact, DeleteRange, GrantLease, HistoryQuery, Key,
    KeyRange, LeaseId, LeaseTtl, LogIndex, MemberAttributes, MemberId, NewLease, NewValue, Password,
    Permission, PermissionKind, Put, RangeQuery, Revision, RoleName, Txn, TxnOp, UserName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const LEASE: i64 = 7;
/// More steps than this and compaction goes in circles.
const STEPS_MAX: usize = 2_000;

/// Column by its place, and key: the value.
type Rows = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn key(number: usize) -> Key {
    let keys: [&[u8]; 5] = [b"a", b"a\0", b"\0", b"key/with/some/length", b"\xff\xff"];
    let bytes = [keys[number % keys.len()], &[number as u8; 3][..number % 3]].concat();
    Key::new(bytes.into()).expect("not empty")
}

fn put(number: usize, lease: Option<LeaseId>) -> Put {
    Put {
        key: key(number),
        value: NewValue::Set(Bytes::from(vec![b'v'; number % 40])),
        lease: NewLease::Set(lease),
        want_previous: false,
    }
}

fn lease() -> LeaseId {
    LeaseId::from_wire(LEASE).expect("not zero")
}

fn delete(keys: KeyRange) -> DeleteRange {
    DeleteRange { keys, want_previous: true }
}

/// A transaction that changes one key twice.
fn twice(number: usize) -> Command {
    let success = vec![TxnOp::DeleteRange(delete(KeyRange::One(key(number)))), TxnOp::Put(put(number, None))];
    Command::Txn(Txn { compares: vec![], success, failure: vec![] })
}

/// Rows of every kind.
fn commands() -> Vec<Command> {
    let (user, role) = (UserName::new("u"), RoleName::new("r"));
    let permission = Permission { kind: PermissionKind::Read, keys: KeyRange::prefix(b"k") };
    let users = [
        AuthCommand::AddRole { role: role.clone() },
        AuthCommand::GrantPermission { role: role.clone(), permission },
        AuthCommand::AddUser { user: user.clone(), password: Password::Hash(Bytes::from_static(b"$2b$")) },
        AuthCommand::GrantRole { user, role },
    ];
    let alarm = Alarm { kind: AlarmKind::NoSpace, member: MemberId(3) };
    let mut commands: Vec<Command> = (0..15).map(|number| Command::Put(put(number, None))).collect();
    commands.push(Command::GrantLease(GrantLease {
        id: lease(),
        ttl: LeaseTtl::from_seconds(60).expect("in range"),
    }));
    commands.extend((3..9).map(|number| Command::Put(put(number, Some(lease())))));
    commands.extend((0..15).step_by(4).map(twice));
    commands.push(Command::DeleteRange(delete(KeyRange::One(key(2)))));
    commands.push(Command::Compact(Compact { revision: Revision::new(9) }));
    commands.extend((0..15).step_by(3).map(|number| Command::Put(put(number, None))));
    commands.push(Command::PublishMember(MemberAttributes {
        member: MemberId(3),
        name: "m3".into(),
        client_urls: vec!["http://127.0.0.1:2379".into()],
        incarnation: 5,
    }));
    commands.extend(users.into_iter().map(Command::Auth));
    commands.push(Command::RaiseAlarm { alarm, by: AlarmBy::Operator });
    commands.push(Command::ClearAlarm { alarm, by: AlarmBy::Operator });
    let corrupt = Alarm { kind: AlarmKind::NoSpace, member: MemberId(4) };
    commands.push(Command::SetDowngrade(Some("3.5.0".into())));
    commands.push(Command::RaiseAlarm { alarm: corrupt, by: AlarmBy::Cluster });
    commands
}

/// What is asked of a store that may be damaged: no put, which the alarm of the store forbids.
fn later(log: &mut Log) -> Vec<LogEntry> {
    let alarm = Alarm { kind: AlarmKind::NoSpace, member: MemberId(4) };
    let mut entries = vec![log.command(Command::ClearAlarm { alarm, by: AlarmBy::Operator })];
    entries.extend((0..15).map(|number| log.command(Command::Put(put(number, Some(lease()))))));
    entries.push(log.command(twice(1)));
    entries.push(log.command(Command::RevokeLease(lease())));
    entries.push(log.command(Command::Compact(Compact { revision: Revision::new(30) })));
    entries.push(log.command(Command::DeleteRange(delete(KeyRange::everything()))));
    entries
}

fn rows_of(db: &Db) -> Rows {
    let mut rows = Rows::new();
    let view = db.view();
    for (place, column) in Column::ALL.into_iter().enumerate() {
        let mut cursor = view.scan(column, &[], None);
        while let Some((key, value)) = cursor.row() {
            rows.insert((place, key.to_vec()), value.to_vec());
            cursor.step();
        }
        cursor.finish().expect("reads");
    }
    rows
}

/// Makes the database hold these rows and no others.
fn restore(db: &Db, rows: &Rows) {
    let mut batch = Batch::new(db);
    let found = rows_of(db);
    for (place, key) in found.keys().filter(|at| !rows.contains_key(*at)) {
        batch.delete(Column::ALL[*place], key);
    }
    for ((place, key), value) in rows.iter().filter(|(at, value)| found.get(*at) != Some(*value)) {
        batch.put(Column::ALL[*place], key, value);
    }
    db.write(batch).expect("writes");
}

/// One row as bytes: column, what to do, length of the key, key, value.
fn sample((place, key): &(usize, Vec<u8>), value: &[u8]) -> Vec<u8> {
    [&[*place as u8, 0, key.len() as u8], key.as_slice(), value].concat()
}

/// Puts the row that the bytes are, or takes it away; nothing if they are none.
fn put_row(db: &Db, bytes: &[u8]) -> Option<()> {
    let [place, act, len, rest @ ..] = bytes else { return None };
    let column = *Column::ALL.get(usize::from(*place))?;
    let (key, value) = rest.split_at_checked(usize::from(*len))?;
    let mut batch = Batch::new(db);
    if act & 1 == 1 {
        batch.delete(column, key);
    } else {
        batch.put(column, key, value);
    }
    db.write(batch).expect("writes");
    Some(())
}

/// Everything that reads. A refusal is an answer.
fn read_all(reader: &StateReader) -> Result<(), ReadError> {
    let refused = |error: ReadError| match error {
        ReadError::Refused(_) => Ok(()),
        error @ ReadError::State(_) => Err(error),
    };
    let pinned = reader.pin();
    let present = RangeQuery { at: None, ..whole_range(0) };
    for query in [present.clone(), whole_range(9), whole_range(12), whole_range(25), whole_range(30)] {
        for way in [ReadStrategy::Cheapest, ReadStrategy::Undo, ReadStrategy::Walk] {
            pinned.range_by(&query, way).map(drop).or_else(refused)?;
        }
    }
    let history = HistoryQuery {
        first: Revision::new(9),
        last: pinned.current_revision(),
        events_max: 1_000,
        bytes_max: 1 << 20,
        with_previous: true,
        newest_only: false,
    };
    pinned.history(&history).map(drop).or_else(refused)?;
    pinned.hash_kv(None).map(drop).or_else(refused)?;
    pinned.stored_hash(pinned.current_revision()).map(drop).or_else(refused)?;
    pinned.leases()?;
    pinned.lease(lease())?;
    pinned.lease_keys(lease())?;
    pinned.key_times(&KeyRange::everything(), Some(100))?;
    pinned.revision_at_time(1_700_000_000_100)?;
    pinned.each_event(|_| ControlFlow::Continue(()))?;
    let mut pages = pinned.pages(&present)?;
    while !pages.is_finished() && pages.next_page(4, 100)?.is_some() {}
    pages.count()?;
    Ok(())
}

/// Opens, reads, applies and compacts. Whether nobody noticed anything.
fn exercise(rig: &Rig, log: &[LogEntry]) -> bool {
    let reader = StateReader::new();
    let Ok(mut machine) = Machine::open(rig.db(), &reader) else { return false };
    let read = read_all(&reader).is_ok();
    // The log goes on from wherever the store says that it is.
    let next = machine.applied().map_or(0, |applied| applied.index.0 + 1);
    let applied = log.iter().zip(next..).all(|(entry, index)| {
        let mut entry = entry.clone();
        entry.position.index = LogIndex(index);
        machine.apply(&[entry]).is_ok()
    });
    let compactor = rig.compactor();
    let mut compacted = compactor.finished_revision().is_ok() && compactor.removed_bytes().is_ok();
    for step in 0.. {
        assert!(step < STEPS_MAX, "compaction does not end");
        match compactor.step(7) {
            Ok(Progress::More) => {}
            Ok(_) => break,
            Err(_) => {
                compacted = false;
                break;
            }
        }
    }
    read && applied && compacted && read_all(&reader).is_ok()
}

#[test]
fn a_mutated_row_is_found_or_harmless_and_never_a_panic() {
    let mut rig = Rig::new();
    let mut log = Log::default();
    let members =
        Payload::Membership { members: BTreeSet::from([MemberId(3)]), bytes: Bytes::from_static(b"members") };
    let mut entries = vec![log.push(members).clone()];
    entries.extend(commands().into_iter().map(|command| log.command(command)));
    rig.apply(&entries);
    // Half done, so that there is a row about how far it got.
    rig.compactor().step(5).expect("a step");
    let rows = rows_of(&rig.db());
    let later = later(&mut log);
    let samples = rows.iter().map(|(at, value)| sample(at, value)).collect();
    let fuzz = Fuzz::new("rows", include_str!("../../corpus/rows.txt"), samples);
    fuzz.run(1_000, |bytes| {
        let put = put_row(&rig.db(), bytes).is_some();
        let sound = put && exercise(&rig, &later);
        restore(&rig.db(), &rows);
        sound
    });
}
