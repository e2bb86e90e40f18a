//! What a crash, a checkpoint and a replay leave.

use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_engine::{Batch, Column, Db, DbOptions};
use meerkat_state::{
    FORMAT_VERSION, Machine, Payload, StateError, StateReader, local_get, local_put, persisted_applied,
    snapshot_info, snapshot_info_at,
};
use meerkat_types::{
    Command, Compact, HistoryQuery, Key, MemberAttributes, MemberId, NewLease, NewValue, Outcome, Put,
    Refusal, Revision,
};
use std::sync::atomic::{AtomicBool, Ordering};

fn put(key: &str, value: &str) -> Command {
    Command::Put(Put {
        key: Key::new(Bytes::copy_from_slice(key.as_bytes())).expect("key"),
        value: NewValue::Set(Bytes::copy_from_slice(value.as_bytes())),
        lease: NewLease::Set(None),
        want_previous: false,
    })
}

#[test]
fn a_crash_leaves_the_flushed_prefix_and_replay_restores_the_rest() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let first: Vec<_> = (0..20).map(|n| log.command(put(&format!("k{n}"), "one"))).collect();
    rig.apply(&first);
    rig.db().flush().expect("flush");
    assert_eq!(persisted_applied(&rig.db()).expect("read"), Some(first[19].position));
    let second: Vec<_> = (0..20).map(|n| log.command(put(&format!("k{n}"), "two"))).collect();
    rig.apply(&second);
    let digest = rig.reader.digest();
    assert_eq!(persisted_applied(&rig.db()).expect("read"), Some(first[19].position), "not flushed yet");

    rig.crash();
    assert_eq!(rig.reader.applied(), Some(first[19].position));
    assert_eq!(rig.reader.current_revision(), Revision::new(21));
    let replayed = rig.apply(&log.entries);
    assert!(replayed[..20].iter().all(|applied| applied.outcome.is_none()), "applied before");
    assert!(replayed[20..].iter().all(|applied| applied.outcome.is_some()));
    assert_eq!(rig.reader.digest(), digest);
}

#[test]
fn a_checkpoint_holds_what_was_never_flushed_and_says_where_it_stands() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let membership = log
        .push(Payload::Membership {
            members: [MemberId(7), MemberId(8)].into(),
            bytes: Bytes::from_static(b"voters"),
        })
        .clone();
    let entry = log.command(put("k", "v"));
    rig.apply(&[membership.clone(), entry.clone()]);
    let target = tempfile::tempdir().expect("a directory");
    let path = target.path().join("checkpoint");
    rig.db().checkpoint(&path).expect("checkpoint");

    let info = snapshot_info_at(&path).expect("info");
    assert_eq!(info, snapshot_info(&rig.db()).expect("info"));
    assert_eq!(info.applied, Some(entry.position));
    assert_eq!(info.membership, Some((membership.position, Bytes::from_static(b"voters"))));
    assert_eq!(info.revision, Revision::new(2));

    // A reader follows from the old machine to the one that takes over the checkpoint.
    let later = log.command(put("k", "w"));
    rig.apply(std::slice::from_ref(&later));
    let pinned = rig.reader.pin();
    let copy = Db::open(&path, &DbOptions::default()).expect("open");
    let reader = rig.reader.clone();
    let machine = Machine::open(copy, &reader).expect("recover");
    assert_eq!(machine.applied(), Some(entry.position));
    assert_eq!(machine.membership(), info.membership);
    assert_eq!(reader.current_revision(), Revision::new(2));
    assert_eq!(reader.membership_bytes(), Some(Bytes::from_static(b"voters")));
    assert_eq!(pinned.current_revision(), Revision::new(3), "a pinned point does not move");
}

#[test]
fn a_member_is_pinned_to_the_first_directory_it_published() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let member = |name: &str, incarnation| MemberAttributes {
        member: MemberId(7),
        name: name.to_owned(),
        client_urls: vec!["http://127.0.0.1:2379".to_owned()],
        incarnation,
    };
    let entries = [member("a", 1), member("b", 1), member("c", 2)]
        .map(|member| log.command(Command::PublishMember(member)));
    let outcomes: Vec<_> = rig.apply(&entries).into_iter().map(|applied| applied.outcome).collect();
    let refused = Outcome::Refused(Refusal::OtherIncarnation { member: MemberId(7) });
    assert_eq!(outcomes, [Some(Outcome::MemberPublished), Some(Outcome::MemberPublished), Some(refused)]);
    rig.db().flush().expect("flush");
    rig.crash();
    assert_eq!(rig.reader.members(), [member("b", 1)]);
}

#[test]
fn a_member_that_was_removed_is_gone_for_ever_and_may_not_publish_again() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let member = |id| MemberAttributes {
        member: MemberId(id),
        name: format!("m{id}"),
        client_urls: Vec::new(),
        incarnation: id,
    };
    let membership = |members: &[u64]| Payload::Membership {
        members: members.iter().copied().map(MemberId).collect(),
        bytes: Bytes::from_static(b"voters"),
    };
    let entries = [
        log.push(membership(&[1, 2])).clone(),
        log.command(Command::PublishMember(member(1))),
        log.command(Command::PublishMember(member(2))),
        log.push(membership(&[1])).clone(),
        log.command(Command::PublishMember(member(2))),
        log.push(membership(&[1, 3])).clone(),
    ];
    let outcomes: Vec<_> = rig.apply(&entries).into_iter().map(|applied| applied.outcome).collect();
    let refused = Outcome::Refused(Refusal::MemberRemoved { member: MemberId(2) });
    assert_eq!(outcomes[4], Some(refused));
    for _ in 0..2 {
        assert_eq!(rig.reader.members(), [member(1)]);
        let removed = [1, 2, 3].map(|id| rig.reader.is_removed(MemberId(id)));
        assert_eq!(removed, [false, true, false]);
        rig.db().flush().expect("flush");
        rig.crash();
    }
}

#[test]
fn a_directory_of_a_newer_format_is_refused_by_name() {
    let (error, path) = opened_with_format(99);
    assert!(matches!(error, StateError::NewerFormat { found: 99, known: FORMAT_VERSION, .. }), "{error}");
    assert!(error.to_string().contains(&path), "{error}");
}

#[test]
fn a_directory_of_an_older_format_is_refused_by_name_and_says_what_to_do() {
    let (error, path) = opened_with_format(1);
    assert!(matches!(error, StateError::OlderFormat { known: FORMAT_VERSION, .. }), "{error}");
    assert!(error.to_string().contains(&path), "{error}");
    assert!(error.to_string().contains("empty data directory"), "{error}");
}

#[test]
fn a_directory_from_before_leases_is_taken_over() {
    check_taken_over(2);
}

#[test]
fn a_directory_from_before_users_and_alarms_is_taken_over() {
    check_taken_over(3);
}

fn check_taken_over(format: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &DbOptions::default()).expect("open");
    let mut batch = Batch::new(&db);
    batch.put(Column::Meta, b"format", &format.to_be_bytes());
    db.write(batch).expect("write");
    snapshot_info(&db).expect("a member of the release before can send its state");
    Machine::open(db.clone(), &StateReader::new()).expect("taken over");
    let marked = db.view().get(Column::Meta, b"format").expect("read").map(|row| row.to_vec());
    assert_eq!(marked, Some(FORMAT_VERSION.to_be_bytes().to_vec()));
}

/// What opening a database of that format says, and where it is.
fn opened_with_format(format: u64) -> (StateError, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &DbOptions::default()).expect("open");
    let mut batch = Batch::new(&db);
    batch.put(Column::Meta, b"format", &format.to_be_bytes());
    db.write(batch).expect("write");
    let refused = snapshot_info(&db).expect_err("refused").to_string();
    let error = Machine::open(db, &StateReader::new()).err().expect("refused");
    assert_eq!(error.to_string(), refused, "a snapshot is refused in the same words");
    (error, directory.path().display().to_string())
}

#[test]
fn local_rows_are_kept_beside_the_state() {
    let mut rig = Rig::new();
    assert_eq!(local_get(&rig.db(), "identity").expect("read"), None);
    local_put(&rig.db(), "identity", b"me").expect("write");
    rig.db().flush().expect("flush");
    rig.crash();
    assert_eq!(local_get(&rig.db(), "identity").expect("read"), Some(Bytes::from_static(b"me")));
}

#[test]
fn compaction_on_another_thread_beside_apply_changes_no_answer() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let mut entries = Vec::new();
    for n in 0..4_000u32 {
        entries.push(log.command(put(&format!("k{}", n % 37), &format!("v{n}"))));
        if n % 50 == 49 {
            // The revision a little behind the newest, as an operator would compact.
            let revision = Revision::new(i64::from(n) - 20);
            entries.push(log.command(Command::Compact(Compact { revision })));
        }
    }
    let (compactor, stop) = (rig.compactor(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                compactor.step(10).expect("step");
            }
        });
        for batch in entries.chunks(13) {
            rig.apply(batch);
            rig.reader.hash_kv(None).expect("hash");
        }
        stop.store(true, Ordering::Relaxed);
    });
    rig.compact_fully();
    let mut twin = Rig::new();
    twin.apply(&entries);
    assert_eq!(rig.reader.digest(), twin.reader.digest());
    assert_eq!(rig.reader.hash_kv(None).expect("hash"), twin.reader.hash_kv(None).expect("hash"));
    let query = HistoryQuery {
        first: rig.reader.compacted_revision().expect("a compaction"),
        last: rig.reader.current_revision(),
        events_max: 9_999,
        bytes_max: usize::MAX,
        with_previous: true,
        newest_only: false,
    };
    let history = rig.reader.pin().history(&query);
    assert_eq!(history.expect("history").batches.len(), 23, "each revision from the bound on has its event");
}
