//! The machine, row by row: what happened in, what is shown and asked next out.

use super::*;
use crate::{Event, EventKind};

fn kv(key: &str, modified: i64) -> KeyValue {
    let modified = Revision::new(modified);
    KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::new(),
        created: modified,
        modified,
        version: 1,
        lease: None,
    }
}

fn page(revision: i64, keys: &[&str], more: bool) -> Input {
    let kvs = keys.iter().map(|key| kv(key, 1)).collect();
    Input::Listed(Page { revision: Revision::new(revision), kvs, more })
}

fn change(revision: i64, keys: &[&str]) -> Input {
    let event = |key: &&str| Event { kind: EventKind::Put(kv(key, revision)), previous: None };
    Input::Changed(Changes { revision: Revision::new(revision), events: keys.iter().map(event).collect() })
}

/// One short line for a step, so that tests read as scripts.
fn told(step: Step) -> String {
    let show = match step.show {
        None => String::new(),
        Some(Show::Replace { revision, kvs }) => format!("replace@{revision}={} ", kvs.len()),
        Some(Show::Apply(changes)) => format!("apply@{}={} ", changes.revision, changes.events.len()),
    };
    show + &asked(step.next)
}

fn asked(next: Next) -> String {
    match next {
        Next::List(PageRequest { at, after, limit }) => {
            let at = at.map_or("newest".to_owned(), |at| at.to_string());
            let after = after.map_or(String::new(), |key| format!(">{}", key.escape_ascii()));
            format!("list@{at}{after}/{limit}")
        }
        Next::Watch { from } => format!("watch@{from}"),
        Next::Listen => "listen".to_owned(),
        Next::Wait(wait) => format!("wait {}ms", wait.as_millis()),
    }
}

/// Runs a script from a fresh machine with pages of 2, all at one instant and without luck.
fn check(script: Vec<(Input, &str)>) {
    let (mut machine, first) = Machine::start(2);
    assert_eq!(asked(first), "list@newest/2");
    let now = Instant::now();
    for (number, (input, expected)) in script.into_iter().enumerate() {
        let shown = format!("{input:?}");
        assert_eq!(told(machine.step(input, now, 1.0)), expected, "step {number}: {shown}");
    }
}

#[test]
fn pages_are_pinned_to_the_first_and_shown_only_when_all_are_there() {
    check(vec![
        (page(7, &["a", "b"], true), "list@7>b/2"),
        (page(7, &["c", "d"], true), "list@7>d/2"),
        (page(7, &["e"], false), "replace@7=5 watch@8"),
        (change(9, &["a"]), "apply@9=1 listen"),
    ]);
}

#[test]
fn an_empty_range_is_a_list_too() {
    check(vec![(page(1, &[], false), "replace@1=0 watch@2")]);
}

#[test]
fn a_failure_in_the_middle_of_a_list_starts_it_again() {
    check(vec![
        (page(7, &["a", "b"], true), "list@7>b/2"),
        (Input::ListFailed(Loss::Failed), "wait 800ms"),
        (Input::Waited, "list@newest/2"),
        (page(9, &["a"], false), "replace@9=1 watch@10"),
    ]);
}

#[test]
fn compaction_in_the_middle_of_a_list_starts_it_again_at_once_with_larger_pages() {
    check(vec![
        (page(7, &["a", "b"], true), "list@7>b/2"),
        (Input::ListFailed(Loss::Compacted), "list@newest/8"),
        (page(8, &["a", "b"], true), "list@8>b/8"),
        (Input::ListFailed(Loss::Compacted), "wait 800ms"),
        (Input::Waited, "list@newest/32"),
        (page(9, &["a", "b", "c"], false), "replace@9=3 watch@10"),
        (Input::WatchFailed(Loss::Compacted), "wait 1600ms"),
        // The list succeeded, so the pages are small again.
        (Input::Waited, "list@newest/2"),
    ]);
}

#[test]
fn a_lost_watch_goes_on_after_what_was_shown() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (change(12, &["b"]), "apply@12=1 listen"),
        (Input::WatchFailed(Loss::Failed), "wait 800ms"),
        (Input::Waited, "watch@13"),
    ]);
}

#[test]
fn compaction_under_a_watch_lists_again_at_once_but_only_the_first_time() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (Input::WatchFailed(Loss::Compacted), "list@newest/2"),
        (page(20, &["a"], false), "replace@20=1 watch@21"),
        (Input::WatchFailed(Loss::Compacted), "wait 800ms"),
        (Input::Waited, "list@newest/2"),
        (page(30, &["a"], false), "replace@30=1 watch@31"),
        (change(31, &[]), "apply@31=0 listen"),
        (Input::WatchFailed(Loss::Compacted), "list@newest/2"),
    ]);
}

#[test]
fn a_mark_moves_the_revision_and_an_old_mark_nothing() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (change(9, &[]), "apply@9=0 listen"),
        (change(9, &[]), "listen"),
        (change(4, &[]), "listen"),
        (change(10, &["a"]), "apply@10=1 listen"),
    ]);
}

#[test]
fn events_from_before_what_was_shown_mean_a_fresh_list() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (change(6, &["a"]), "wait 800ms"),
        (Input::Waited, "list@newest/2"),
    ]);
}

#[test]
fn the_newest_revision_may_come_again_or_in_pieces_but_is_no_progress() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (change(7, &["a", "b"]), "apply@7=2 listen"),
        (Input::WatchFailed(Loss::Ended), "wait 800ms"),
        (Input::Waited, "watch@8"),
        (change(9, &["a"]), "apply@9=1 listen"),
        (change(9, &["b"]), "apply@9=1 listen"),
        (Input::WatchFailed(Loss::Ended), "watch@10"),
    ]);
}

#[test]
fn a_watch_that_ends_at_once_with_nothing_new_has_failed() {
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (Input::WatchFailed(Loss::Ended), "wait 800ms"),
        (Input::Waited, "watch@8"),
        (change(7, &[]), "listen"),
        (Input::WatchFailed(Loss::Ended), "wait 1600ms"),
        (Input::Waited, "watch@8"),
        (change(8, &["a"]), "apply@8=1 listen"),
        (Input::WatchFailed(Loss::Ended), "watch@9"),
    ]);
}

#[test]
fn a_watch_that_ends_after_a_quiet_second_is_opened_again_at_once() {
    let (mut machine, _) = Machine::start(2);
    let start = Instant::now();
    machine.step(page(7, &["a"], false), start, 1.0);
    let ended = machine.step(Input::WatchFailed(Loss::Ended), start + SHORT_WATCH, 1.0);
    assert_eq!(told(ended), "watch@8");
}

#[test]
fn pages_that_do_not_fit_are_refused() {
    // Another revision, a key again, keys that fall, and a page without progress.
    let bad = [
        page(8, &["c"], false),
        page(7, &["b", "c"], false),
        page(7, &["d", "c"], false),
        page(7, &[], true),
    ];
    for second in bad {
        check(vec![(page(7, &["a", "b"], true), "list@7>b/2"), (second, "wait 800ms")]);
    }
    check(vec![(page(7, &["b", "a"], false), "wait 800ms")]);
}

#[test]
fn answers_nobody_asked_for_cost_a_list_and_nothing_else() {
    check(vec![(change(3, &["a"]), "wait 800ms"), (Input::Waited, "list@newest/2")]);
    check(vec![
        (page(7, &["a"], false), "replace@7=1 watch@8"),
        (page(7, &["a"], false), "wait 800ms"),
        (Input::Waited, "list@newest/2"),
    ]);
    check(vec![(Input::WatchFailed(Loss::Failed), "wait 800ms"), (Input::Waited, "list@newest/2")]);
}

#[test]
fn a_cluster_restored_to_an_older_revision_is_shown_as_it_is() {
    check(vec![
        (page(70, &["a"], false), "replace@70=1 watch@71"),
        (Input::WatchFailed(Loss::Compacted), "list@newest/2"),
        (page(7, &["a"], false), "replace@7=1 watch@8"),
    ]);
}
