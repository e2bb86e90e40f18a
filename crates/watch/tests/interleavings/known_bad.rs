//! What the follower must not let pass: one way to be wrong in each test.

use crate::follower::Follower;
use crate::store::{Store, Write};
use meerkat_types::{EventBatch, KeyRange, Revision};
use meerkat_watch::{Encoded, Filter, Form, SlowPolicy, WatchRequest, WatchStart};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn revision(number: i64) -> Revision {
    Revision::new(number)
}

/// Revisions 2 to 5, all of the same key; 4 has two events.
fn store() -> Store {
    let mut store = Store::new();
    let put = Write::Put { key: "a", size: 1 };
    store.commit(&[put]);
    store.commit(&[put]);
    store.commit(&[put, Write::Put { key: "b", size: 1 }]);
    store.commit(&[Write::Delete { key: "a" }]);
    store
}

fn follower(policy: SlowPolicy) -> Follower {
    let request = WatchRequest {
        id: None,
        range: KeyRange::everything(),
        start: WatchStart::At(revision(2)),
        filter: Filter::default(),
        previous: true,
        fragment: false,
        progress: true,
    };
    Follower::new(request, policy, revision(5))
}

fn encoded(batch: EventBatch) -> Arc<Encoded> {
    Encoded::new(batch, &Arc::default())
}

fn tell(follower: &mut Follower, store: &Store, number: i64) {
    let batch = encoded(store.at(revision(number)).expect("it happened").clone());
    follower.deliver(store, Form::WithPrevious, &batch);
}

/// Fine up to revision 3; what `wrong` does then must be noticed, with these words.
fn check(policy: SlowPolicy, words: &str, wrong: impl FnOnce(&mut Follower, &mut Store)) {
    let (mut store, mut follower) = (store(), follower(policy));
    tell(&mut follower, &store, 2);
    tell(&mut follower, &store, 3);
    let caught = catch_unwind(AssertUnwindSafe(|| wrong(&mut follower, &mut store)));
    let panic = caught.expect_err("this must not pass");
    let text = panic.downcast_ref::<String>().expect("assertions say what is wrong");
    assert!(text.contains(words), "{text}");
}

#[test]
fn an_event_that_is_missing() {
    check(SlowPolicy::Wait, "is missing", |follower, store| tell(follower, store, 5));
}

#[test]
fn an_event_that_comes_again() {
    check(SlowPolicy::Wait, "came again", |follower, store| tell(follower, store, 3));
}

#[test]
fn an_event_that_was_not_the_last_of_its_key_may_be_left_out_and_no_other() {
    let (store, mut follower) = (store(), follower(SlowPolicy::Coalesce));
    let whole = store.at(revision(4)).expect("it happened");
    let of_b = EventBatch { events: whole.events[1..].into(), ..whole.clone() };
    follower.deliver(&store, Form::WithPrevious, &encoded(of_b));
    tell(&mut follower, &store, 5);
    assert_eq!(follower.missing_below(&store, revision(6)), None);
    check(SlowPolicy::Coalesce, "is missing", |follower, store| tell(follower, store, 5));
}

#[test]
fn a_revision_in_part() {
    check(SlowPolicy::Wait, "in part", |follower, store| {
        let whole = store.at(revision(4)).expect("it happened");
        let part = EventBatch { events: whole.events[..1].into(), ..whole.clone() };
        follower.deliver(store, Form::WithPrevious, &encoded(part));
    });
}

#[test]
fn a_revision_that_never_was() {
    check(SlowPolicy::Wait, "in part", |follower, store| {
        let mut other = Store::new();
        for _ in 0..3 {
            other.commit(&[Write::Put { key: "x", size: 1 }]);
        }
        let wrong = other.at(revision(4)).expect("it happened there").clone();
        follower.deliver(store, Form::WithPrevious, &encoded(wrong));
    });
}

#[test]
fn a_previous_value_that_is_gone_without_reason() {
    check(SlowPolicy::Wait, "no previous value", |follower, store| {
        let batch = encoded(store.at(revision(4)).expect("it happened").clone());
        follower.deliver(store, Form::Plain, &batch);
    });
}

#[test]
fn a_mark_ahead_of_the_stream() {
    check(SlowPolicy::Wait, "is missing", |follower, store| follower.progress(store, revision(4)));
}

#[test]
fn a_mark_below_the_last() {
    check(SlowPolicy::Wait, "marks never fall", |follower, store| {
        follower.progress(store, revision(3));
        follower.progress(store, revision(2));
    });
}

#[test]
fn a_mark_below_the_start() {
    check(SlowPolicy::Wait, "below the start", |follower, store| follower.progress(store, revision(1)));
}

#[test]
fn a_compaction_that_was_not() {
    check(SlowPolicy::Wait, "never compacted", |follower, store| follower.compacted(store, revision(5)));
}

#[test]
fn a_compaction_that_does_not_concern_it() {
    check(SlowPolicy::Wait, "nothing below it is owed", |follower, store| {
        store.compact(revision(4));
        follower.compacted(store, revision(4));
    });
}

#[test]
fn an_event_after_the_last_word() {
    check(SlowPolicy::Wait, "after the last word", |follower, store| {
        store.compact(revision(5));
        follower.compacted(store, revision(5));
        tell(follower, store, 5);
    });
}

#[test]
fn going_on_too_late_and_going_on_too_early() {
    check(SlowPolicy::Cancel, "is missing", |follower, store| follower.fell_behind(store, revision(5)));
    check(SlowPolicy::Cancel, "repeats", |follower, store| follower.fell_behind(store, revision(3)));
}
