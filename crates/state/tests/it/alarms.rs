//! What alarms forbid and who clears them, and what the store weighs.

use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_engine::{Batch, Column};
use meerkat_state::{Payload, StateReader};
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, Command, Compact, DeleteRange, GrantLease, Key, KeyRange, LeaseId, LeaseTtl,
    LogIndex, MemberId, NewLease, NewValue, Outcome, Put, Refusal, Revision, Txn, TxnOp,
};
use std::collections::BTreeSet;

fn key(name: &str) -> Key {
    Key::new(Bytes::copy_from_slice(name.as_bytes())).expect("key")
}

fn a_put(name: &str, bytes: usize) -> Put {
    Put {
        key: key(name),
        value: NewValue::Set(vec![7; bytes].into()),
        lease: NewLease::Set(None),
        want_previous: false,
    }
}

fn put(name: &str, bytes: usize) -> Command {
    Command::Put(a_put(name, bytes))
}

fn delete(name: &str) -> Command {
    Command::DeleteRange(DeleteRange { keys: KeyRange::One(key(name)), want_previous: false })
}

fn txn(success: Vec<TxnOp>, failure: Vec<TxnOp>) -> Command {
    Command::Txn(Txn { compares: vec![], success, failure })
}

fn grant(id: i64) -> Command {
    let id = LeaseId::from_wire(id).expect("a name");
    Command::GrantLease(GrantLease { id, ttl: LeaseTtl::from_seconds(60).expect("in range") })
}

fn revoke(id: i64) -> Command {
    Command::RevokeLease(LeaseId::from_wire(id).expect("a name"))
}

fn alarm(kind: AlarmKind, member: u64) -> Alarm {
    Alarm { kind, member: MemberId(member) }
}

fn raise(alarm: Alarm, by: AlarmBy) -> Command {
    Command::RaiseAlarm { alarm, by }
}

fn clear(alarm: Alarm, by: AlarmBy) -> Command {
    Command::ClearAlarm { alarm, by }
}

fn apply(rig: &mut Rig, log: &mut Log, command: Command) -> Outcome {
    let entry = log.command(command);
    rig.apply(&[entry]).remove(0).outcome.expect("applied")
}

/// `refusal` for each of these, and something else for each of those.
fn check(rig: &mut Rig, log: &mut Log, refusal: Refusal, refused: Vec<Command>, allowed: Vec<Command>) {
    for command in refused {
        let outcome = apply(rig, log, command.clone());
        assert_eq!(outcome, Outcome::Refused(refusal), "{command:?}");
    }
    for command in allowed {
        let outcome = apply(rig, log, command.clone());
        assert!(!matches!(outcome, Outcome::Refused(_)), "{command:?} came to {outcome:?}");
    }
}

#[test]
fn without_space_nothing_is_added_and_everything_else_goes_on() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    apply(&mut rig, &mut log, put("k", 1));
    apply(&mut rig, &mut log, grant(5));
    let on = alarm(AlarmKind::NoSpace, 1);
    assert_eq!(apply(&mut rig, &mut log, raise(on, AlarmBy::Cluster)), Outcome::AlarmRaised);
    let nested = Txn { compares: vec![], success: vec![], failure: vec![TxnOp::Put(a_put("n", 1))] };
    let deletes = TxnOp::DeleteRange(DeleteRange { keys: KeyRange::One(key("k")), want_previous: false });
    let refused = vec![
        put("k", 1),
        grant(6),
        txn(vec![TxnOp::Put(a_put("k", 1))], vec![]),
        // The branch that is not taken counts too: which one is taken may not matter to who refuses.
        txn(vec![deletes.clone()], vec![TxnOp::Put(a_put("k", 1))]),
        txn(vec![TxnOp::Txn(nested)], vec![]),
    ];
    let allowed = vec![
        txn(vec![deletes], vec![]),
        delete("k"),
        Command::Compact(Compact { revision: Revision::new(2) }),
        revoke(5),
    ];
    check(&mut rig, &mut log, Refusal::NoSpace, refused, allowed);
    assert_eq!(apply(&mut rig, &mut log, clear(on, AlarmBy::Cluster)), Outcome::AlarmCleared(true));
    assert!(matches!(apply(&mut rig, &mut log, put("k", 1)), Outcome::Put(_)));
}

#[test]
fn while_a_member_is_corrupt_nothing_changes() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    apply(&mut rig, &mut log, put("k", 1));
    apply(&mut rig, &mut log, grant(5));
    apply(&mut rig, &mut log, raise(alarm(AlarmKind::NoSpace, 1), AlarmBy::Cluster));
    apply(&mut rig, &mut log, raise(alarm(AlarmKind::Corrupt, 2), AlarmBy::Cluster));
    let expire = Command::ExpireLease {
        lease: LeaseId::from_wire(5).expect("a name"),
        granted: LogIndex(1),
        term: log.term(),
    };
    let refused = vec![
        put("k", 1),
        delete("k"),
        txn(vec![TxnOp::Put(a_put("k", 1))], vec![]),
        Command::Compact(Compact { revision: Revision::new(2) }),
        grant(6),
        revoke(5),
        expire,
    ];
    check(&mut rig, &mut log, Refusal::Corrupt, refused, vec![]);
    assert_eq!(rig.reader.current_revision(), Revision::new(2));
}

#[test]
fn what_an_operator_raised_only_an_operator_clears() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let on = alarm(AlarmKind::NoSpace, 1);
    apply(&mut rig, &mut log, raise(on, AlarmBy::Cluster));
    apply(&mut rig, &mut log, raise(on, AlarmBy::Operator));
    // It stays the operator's, whatever the cluster finds.
    apply(&mut rig, &mut log, raise(on, AlarmBy::Cluster));
    assert_eq!(apply(&mut rig, &mut log, clear(on, AlarmBy::Cluster)), Outcome::AlarmCleared(false));
    assert_eq!(rig.reader.alarms(), [(on, AlarmBy::Operator)]);
    assert_eq!(apply(&mut rig, &mut log, clear(on, AlarmBy::Operator)), Outcome::AlarmCleared(true));
    assert_eq!(apply(&mut rig, &mut log, clear(on, AlarmBy::Operator)), Outcome::AlarmCleared(false));
    assert_eq!(rig.reader.alarms(), []);
}

#[test]
fn alarms_outlive_a_restart_and_a_member_that_is_removed_needs_no_room() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let members = |ids: &[u64]| Payload::Membership {
        members: ids.iter().copied().map(MemberId).collect::<BTreeSet<_>>(),
        bytes: Bytes::from_static(b"voters"),
    };
    let first = log.push(members(&[1, 2])).clone();
    rig.apply(&[first]);
    for on in [alarm(AlarmKind::NoSpace, 2), alarm(AlarmKind::Corrupt, 2), alarm(AlarmKind::NoSpace, 9)] {
        apply(&mut rig, &mut log, raise(on, AlarmBy::Cluster));
    }
    rig.db().flush().expect("flush");
    let before = rig.reader.alarms();
    rig.crash();
    rig.machine().set_roster([MemberId(1), MemberId(2)].into());
    assert_eq!(rig.reader.alarms(), before);
    let second = log.push(members(&[1])).clone();
    rig.apply(&[second]);
    let left: Vec<Alarm> = rig.reader.alarms().into_iter().map(|(alarm, _)| alarm).collect();
    assert_eq!(left, [alarm(AlarmKind::NoSpace, 9), alarm(AlarmKind::Corrupt, 2)]);
}

fn live_bytes(rig: &Rig) -> u64 {
    rig.reader.written_bytes() - rig.compactor().removed_bytes().expect("read")
}

#[test]
fn the_store_weighs_what_is_in_it_and_as_little_as_before_once_that_is_gone() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    assert_eq!(live_bytes(&rig), 0);
    for n in 0..40 {
        apply(&mut rig, &mut log, put(&format!("k{}", n % 10), 1_000));
    }
    let full = live_bytes(&rig);
    assert!((40_000..50_000).contains(&full), "{full}");
    // Twice the same key in one transaction: each event is removed once.
    let every = Command::DeleteRange(DeleteRange { keys: KeyRange::From(key("\0")), want_previous: false });
    let all = DeleteRange { keys: KeyRange::From(key("\0")), want_previous: false };
    apply(&mut rig, &mut log, txn(vec![TxnOp::DeleteRange(all), TxnOp::Put(a_put("k3", 10))], vec![]));
    apply(&mut rig, &mut log, every);
    apply(&mut rig, &mut log, put("last", 10));
    let revision = rig.reader.current_revision();
    apply(&mut rig, &mut log, Command::Compact(Compact { revision }));
    rig.compact_fully();
    let last = live_bytes(&rig);
    assert!(last < 200, "only the last key is left, and it weighs {last}");

    // As after a restart, and as if counted anew.
    rig.db().flush().expect("flush");
    rig.crash();
    assert_eq!(live_bytes(&rig), last);
    let mut forget = Batch::new(&rig.db());
    forget.delete(Column::Meta, b"weight");
    rig.db().write(forget).expect("write");
    rig.db().flush().expect("flush");
    rig.crash();
    assert_eq!(live_bytes(&rig), last, "a directory from before the count is counted");
}

#[test]
fn who_deletes_everything_and_compacts_at_once_has_made_room() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    for n in 0..20 {
        apply(&mut rig, &mut log, put(&format!("k{n}"), 1_000));
    }
    let all = DeleteRange { keys: KeyRange::From(key("\0")), want_previous: false };
    apply(&mut rig, &mut log, Command::DeleteRange(all));
    // At the deletions themselves, which stay for watchers that begin there.
    let revision = rig.reader.current_revision();
    apply(&mut rig, &mut log, Command::Compact(Compact { revision }));
    rig.compact_fully();
    let tombstones = live_bytes(&rig);
    assert!(tombstones < 20 * 150, "{tombstones}");
    // The next compaction removes what is not counted any more, and counts it once.
    for n in 0..20 {
        apply(&mut rig, &mut log, put(&format!("k{n}"), 1_000));
    }
    let revision = rig.reader.current_revision();
    apply(&mut rig, &mut log, Command::Compact(Compact { revision }));
    rig.compact_fully();
    let full = live_bytes(&rig);
    assert!((20_000..25_000).contains(&full), "{full}");
    rig.db().flush().expect("flush");
    let mut forget = Batch::new(&rig.db());
    forget.delete(Column::Meta, b"weight");
    rig.db().write(forget).expect("write");
    rig.db().flush().expect("flush");
    rig.crash();
    assert_eq!(live_bytes(&rig), full, "a count of what is there agrees");
}

#[test]
fn a_lease_weighs_something_while_it_lives() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    apply(&mut rig, &mut log, grant(5));
    assert_eq!(live_bytes(&rig), 64);
    apply(&mut rig, &mut log, revoke(5));
    assert_eq!(live_bytes(&rig), 0);
}

#[test]
fn two_members_keep_their_digests_at_the_same_places_however_their_batches_are_cut() {
    let (mut one, mut two, mut log) = (Rig::new(), Rig::new(), Log::default());
    let entries: Vec<_> = (0..700).map(|n| log.command(put(&format!("k{}", n % 50), 5))).collect();
    one.apply(&entries);
    for part in entries.chunks(9) {
        two.apply(part);
    }
    let marks = |reader: &StateReader| reader.digest_marks();
    assert_eq!(marks(&one.reader), marks(&two.reader));
    let places: Vec<u64> =
        marks(&one.reader).iter().filter_map(|mark| mark.position.map(|at| at.index.0)).collect();
    assert_eq!(places, [0, 128, 256, 384, 512, 640]);
}

#[test]
fn a_changed_row_of_the_present_or_of_history_changes_the_hash_of_what_is_stored() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    for n in 0..20 {
        apply(&mut rig, &mut log, put(&format!("k{n}"), 5));
    }
    let at = rig.reader.current_revision();
    let good = rig.reader.pin().stored_hash(at).expect("readable");
    // Later writes change nothing of what was.
    apply(&mut rig, &mut log, put("k3", 9));
    assert_eq!(rig.reader.pin().stored_hash(at).expect("readable"), good);
    for (column, name) in
        [(Column::Head, b"k5".to_vec()), (Column::Log, [&5_u64.to_be_bytes()[..], &[0; 4]].concat())]
    {
        let (db, mut batch) = (rig.db(), Batch::new(&rig.db()));
        let mut row = db.view().get(column, &name).expect("readable").expect("there").to_vec();
        // The last byte is of the value.
        *row.last_mut().expect("not empty") ^= 1;
        batch.put(column, &name, &row);
        db.write(batch).expect("write");
        apply(&mut rig, &mut log, put("k3", 9));
        let bad = rig.reader.pin().stored_hash(at).expect("readable");
        match column {
            Column::Head => assert_ne!(bad.present, good.present),
            _ => assert_ne!(bad.history, good.history),
        }
    }
}
