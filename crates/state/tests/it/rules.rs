//! Single rules that random runs might meet too rarely, each by name.

use crate::answers::{decoded, key_values};
use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_state::{Progress, ReadError, RevisionAtTime};
use meerkat_types::{
    Command, Compact, Consistency, DeleteRange, EventKind, HistoryQuery, Key, KeyRange, NewLease, NewValue,
    Outcome, Put, RangeQuery, Refusal, Revision, RevisionBounds, Sort, Txn, TxnOp,
};

fn key(text: &str) -> Key {
    Key::new(Bytes::copy_from_slice(text.as_bytes())).expect("key")
}

fn put(text: &str, value: &str) -> Put {
    Put {
        key: key(text),
        value: NewValue::Set(Bytes::copy_from_slice(value.as_bytes())),
        lease: NewLease::Set(None),
        want_previous: false,
    }
}

fn delete(keys: KeyRange) -> DeleteRange {
    DeleteRange { keys, want_previous: false }
}

fn get(text: &str, at: i64) -> RangeQuery {
    RangeQuery {
        keys: KeyRange::One(key(text)),
        at: Some(Revision::new(at)),
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

fn whole_revision(revision: i64) -> HistoryQuery {
    let revision = Revision::new(revision);
    HistoryQuery {
        first: revision,
        last: revision,
        events_max: usize::MAX,
        bytes_max: usize::MAX,
        with_previous: true,
        newest_only: false,
    }
}

struct Bench {
    rig: Rig,
    log: Log,
}

impl Bench {
    fn new() -> Bench {
        Bench { rig: Rig::new(), log: Log::default() }
    }

    fn run(&mut self, command: Command) -> Outcome {
        let entry = self.log.command(command);
        let mut applied = self.rig.apply(std::slice::from_ref(&entry));
        applied.remove(0).outcome.expect("a command answers")
    }

    fn value(&self, text: &str, at: i64) -> Option<Bytes> {
        let answer = decoded(self.rig.reader.range(&get(text, at)).expect("live"));
        key_values(&answer.kvs).first().map(|kv| kv.value.clone())
    }

    fn compact(&mut self, revision: i64) -> Outcome {
        self.run(Command::Compact(Compact { revision: Revision::new(revision) }))
    }
}

#[test]
fn a_fresh_store_is_at_revision_one_and_nothing_is_compacted() {
    let bench = Bench::new();
    assert_eq!(bench.rig.reader.current_revision(), Revision::new(1));
    assert_eq!(bench.rig.reader.compacted_revision(), None);
    assert_eq!(bench.value("k", 1), None);
}

#[test]
fn the_first_compaction_may_be_to_zero_and_never_twice_to_the_same_revision() {
    let mut bench = Bench::new();
    let refused = |asked, oldest| {
        Outcome::Refused(Refusal::Compacted { asked: Revision::new(asked), oldest: Revision::new(oldest) })
    };
    assert_eq!(bench.compact(-1), refused(-1, -1));
    assert_eq!(bench.compact(0), Outcome::Compact(Revision::new(1)));
    assert_eq!(bench.compact(0), refused(0, 0));
    assert_eq!(bench.compact(1), Outcome::Compact(Revision::new(1)));
    let future = Refusal::Future { asked: Revision::new(2), current: Revision::new(1) };
    assert_eq!(bench.compact(2), Outcome::Refused(future));
}

#[test]
fn a_deletion_at_the_compacted_revision_is_still_told_to_watchers_that_begin_there() {
    let mut bench = Bench::new();
    bench.run(Command::Put(put("k", "v")));
    bench.run(Command::DeleteRange(delete(KeyRange::One(key("k")))));
    bench.compact(3);
    bench.rig.compact_fully();
    let entry = bench.log.command(Command::Put(put("other", "v")));
    bench.rig.apply(std::slice::from_ref(&entry));
    let history = bench.rig.reader.pin().history(&whole_revision(3)).expect("history");
    let event = &history.batches[0].events[0];
    assert_eq!(event.kind, EventKind::Delete { key: Bytes::from_static(b"k"), modified: Revision::new(3) });
    assert_eq!(event.previous, None, "the state before the compacted revision is gone");
}

#[test]
fn what_is_compacted_is_refused_at_once_and_removed_in_steps() {
    let mut bench = Bench::new();
    for value in ["a", "b", "c", "d"] {
        bench.run(Command::Put(put("k", value)));
    }
    let compactor = bench.rig.compactor();
    assert_eq!(compactor.step(1).expect("step"), Progress::Idle);
    bench.compact(4);
    let refused = bench.rig.reader.range(&get("k", 3));
    assert!(matches!(refused, Err(ReadError::Refused(Refusal::Compacted { .. }))));
    assert_eq!(compactor.finished_revision().expect("read"), None);
    assert_eq!(compactor.step(1).expect("step"), Progress::More);
    assert_eq!(compactor.step(9).expect("step"), Progress::Finished(Revision::new(4)));
    assert_eq!(compactor.step(9).expect("step"), Progress::Idle);
    assert_eq!(compactor.finished_revision().expect("read"), Some(Revision::new(4)));
    assert_eq!(bench.value("k", 4), Some(Bytes::from_static(b"c")));
    assert_eq!(bench.value("k", 5), Some(Bytes::from_static(b"d")));
}

#[test]
fn a_range_deleted_and_a_key_inside_it_put_in_one_transaction_are_two_events_of_one_revision() {
    let mut bench = Bench::new();
    bench.run(Command::Put(put("k", "old")));
    let ops = vec![TxnOp::DeleteRange(delete(KeyRange::everything())), TxnOp::Put(put("k", "new"))];
    bench.run(Command::Txn(Txn { compares: Vec::new(), success: ops, failure: Vec::new() }));
    let one = HistoryQuery { events_max: 1, ..whole_revision(3) };
    let history = bench.rig.reader.pin().history(&one).expect("history");
    let events = &history.batches[0].events;
    assert_eq!(events.len(), 2);
    for event in events.iter() {
        let before = event.previous.as_ref().map(|kv| kv.value.as_ref());
        assert_eq!(before, Some(b"old".as_slice()), "previous is the state before the revision");
    }
    let EventKind::Put(kv) = &events[1].kind else { panic!("a put") };
    assert_eq!((kv.version, kv.created), (1, Revision::new(3)), "a new life of the key");
    assert_eq!(bench.value("k", 2), Some(Bytes::from_static(b"old")));
    assert_eq!(bench.value("k", 3), Some(Bytes::from_static(b"new")));
}

#[test]
fn of_two_events_of_one_key_in_one_revision_the_newest_only_are_the_second() {
    let mut bench = Bench::new();
    bench.run(Command::Put(put("k", "old")));
    bench.run(Command::Put(put("other", "v")));
    let ops = vec![TxnOp::DeleteRange(delete(KeyRange::One(key("k")))), TxnOp::Put(put("k", "new"))];
    bench.run(Command::Txn(Txn { compares: Vec::new(), success: ops, failure: Vec::new() }));
    let query = HistoryQuery { first: Revision::new(2), newest_only: true, ..whole_revision(4) };
    let history = bench.rig.reader.pin().history(&query).expect("history");
    let told: Vec<_> =
        history.batches.iter().map(|batch| (batch.revision.get(), batch.events.len())).collect();
    assert_eq!(told, [(3, 1), (4, 1)], "revision 2 was superseded as a whole");
    assert!(matches!(&history.batches[1].events[0].kind, EventKind::Put(kv) if kv.value == "new"));
    assert_eq!(history.next, Revision::new(5));
    // Only revision 2 is asked for, and nothing of it is the newest as of the pinned point.
    let query = HistoryQuery { newest_only: true, ..whole_revision(2) };
    let history = bench.rig.reader.pin().history(&query).expect("history");
    assert_eq!((history.batches.len(), history.next), (0, Revision::new(3)));
}

#[test]
fn history_ends_with_the_revision_in_which_the_bytes_are_reached() {
    let mut bench = Bench::new();
    for value in ["aaaa", "bbbb", "cccc"] {
        bench.run(Command::Put(put("k", value)));
    }
    let read = |bytes_max, with_previous| {
        let query = HistoryQuery { first: Revision::new(2), bytes_max, with_previous, ..whole_revision(4) };
        bench.rig.reader.pin().history(&query).expect("history").next.get()
    };
    // 5 bytes each, and 5 more for the previous value of the second and third.
    assert_eq!(
        [read(0, false), read(5, false), read(6, false), read(10, false), read(11, false)],
        [3, 3, 4, 4, 5]
    );
    assert_eq!([read(5, true), read(6, true), read(15, true), read(16, true)], [3, 4, 4, 5]);
}

#[test]
fn a_key_keeps_the_time_of_its_creation_until_it_is_deleted() {
    let mut bench = Bench::new();
    let stamps: Vec<_> = (0..4)
        .map(|round| {
            let command = if round == 2 {
                Command::DeleteRange(delete(KeyRange::One(key("k"))))
            } else {
                Command::Put(put("k", "v"))
            };
            let entry = bench.log.command(command);
            bench.rig.apply(std::slice::from_ref(&entry));
            let times = bench.rig.reader.pin().key_times(&KeyRange::One(key("k")), None).expect("times");
            times.times.first().map(|time| (time.created_ms, time.modified_ms))
        })
        .collect();
    // The clock of the rig: it went back after the first command.
    let made = |number: usize| {
        let clocks = (0..=number as u64).map(|index| 1_700_000_000_000 + index * 10 - index % 7 * 15);
        clocks.max().expect("a command")
    };
    assert_eq!(stamps, [Some((made(0), made(0))), Some((made(0), made(1))), None, Some((made(3), made(3)))]);
}

#[test]
fn a_time_before_what_is_kept_gives_the_oldest_revision_and_says_so() {
    let mut bench = Bench::new();
    let at = |bench: &Bench, ms| bench.rig.reader.pin().revision_at_time(ms).expect("a revision");
    let none = RevisionAtTime { revision: Revision::new(2), stamp_ms: None, before_history: false };
    assert_eq!(at(&bench, 0), none, "nothing was ever written");
    for _ in 0..20 {
        bench.run(Command::Put(put("k", "v")));
    }
    let oldest = at(&bench, 0);
    assert_eq!((oldest.revision, oldest.before_history), (Revision::new(2), false));
    bench.compact(2);
    assert!(!at(&bench, 0).before_history, "nothing was written before revision 2");
    bench.compact(15);
    bench.rig.compact_fully();
    bench.run(Command::Put(put("other", "v")));
    let oldest = at(&bench, 0);
    assert_eq!((oldest.revision, oldest.before_history), (Revision::new(15), true));
    let stamp_ms = oldest.stamp_ms.expect("the compacted revision has its time");
    assert!(at(&bench, stamp_ms).before_history, "revision 14 may be of the same moment");
    assert!(!at(&bench, stamp_ms + 1).before_history);
    let after = RevisionAtTime { revision: Revision::new(23), stamp_ms: None, before_history: false };
    assert_eq!(at(&bench, u64::MAX), after);
}

#[test]
fn a_refused_transaction_changes_nothing() {
    let mut bench = Bench::new();
    let keep = Put { value: NewValue::KeepCurrent, ..put("missing", "") };
    let ops = vec![TxnOp::Put(put("k", "v")), TxnOp::Put(keep)];
    let outcome = bench.run(Command::Txn(Txn { compares: Vec::new(), success: ops, failure: Vec::new() }));
    assert_eq!(outcome, Outcome::Refused(Refusal::KeyNotFound));
    assert_eq!(bench.rig.reader.current_revision(), Revision::new(1));
    assert_eq!(bench.value("k", 1), None);
}

#[test]
fn a_reader_keeps_its_point_while_compaction_removes_beneath_it() {
    let mut bench = Bench::new();
    bench.run(Command::Put(put("k", "old")));
    bench.run(Command::Put(put("k", "new")));
    let pinned = bench.rig.reader.pin();
    bench.compact(3);
    bench.rig.compact_fully();
    let answer = decoded(pinned.range(&get("k", 2)).expect("live at that point"));
    assert_eq!(key_values(&answer.kvs)[0].value.as_ref(), b"old");
}
