//! Records known to be bad, at least one for each property, and good ones that look odd.
//!
//! One history serves all. Each test says what a watcher was sent, reply by reply, and which
//! properties that breaks: exactly those, so that a fault is never reported as another.

use bytes::Bytes;

use super::Property::{
    Atomic, Bookmarkable, Compacted, CreateFlag, Filter, Floor, Lifecycle, Ordered, PreviousValue, Record,
    Reliable, Resumable, Unique,
};
use super::*;
use crate::checker::watch_history::Compaction;
use crate::record::watch::{Kind, Stored, ValuePrint, WatchSpec};

/// | revision | happened |
/// |---|---|
/// | 2 | put a/1 |
/// | 3 | put a/2, put b |
/// | 4 | put a/1 |
/// | 5 | delete a/2 |
/// | 6 | put b |
/// | 7 | put a/2, put a/3 |
fn history() -> WatchHistory {
    let (history, findings) = WatchHistory::replay(vec![
        put("a/1", 2, 2, 1),
        put("a/2", 3, 3, 1),
        put("b", 3, 3, 1),
        put("a/1", 4, 2, 2),
        delete("a/2", 5),
        put("b", 6, 3, 2),
        put("a/2", 7, 7, 1),
        put("a/3", 7, 7, 1),
    ]);
    assert_eq!(findings, Vec::<String>::new());
    history
}

fn put(key: &str, revision: i64, create_revision: i64, version: i64) -> Seen {
    let value = ValuePrint::of(format!("{key}@{revision}").as_bytes());
    let now = Stored { create_revision, mod_revision: revision, version, lease: 0, value };
    Seen { kind: Kind::Put, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
}

fn delete(key: &str, revision: i64) -> Seen {
    let now = Stored { mod_revision: revision, ..Stored::default() };
    Seen { kind: Kind::Delete, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
}

/// The events of some keys at a revision, as a watcher without previous values is sent them.
fn at(revision: i64, keys: &[&str]) -> Vec<Seen> {
    let wanted = |event: &&Seen| keys.iter().any(|key| key.as_bytes() == event.key);
    let history = history();
    let found: Vec<Seen> = history.at(revision).iter().filter(wanted).cloned().collect();
    assert_eq!(found.len(), keys.len(), "no such events at {revision}: {keys:?}");
    found.into_iter().map(|event| Seen { prev: None, ..event }).collect()
}

fn created(revision: i64) -> Reply {
    Reply { created: true, revision, ..Reply::default() }
}

fn sent(events: Vec<Seen>) -> Reply {
    let revision = events.iter().map(Seen::revision).max().unwrap_or(0);
    Reply { revision, events, ..Reply::default() }
}

fn piece(events: Vec<Seen>, revision: i64) -> Reply {
    Reply { fragment: true, revision, ..sent(events) }
}

fn mark(revision: i64) -> Reply {
    Reply { revision, ..Reply::default() }
}

fn stream_mark(revision: i64) -> Reply {
    Reply { watch_id: -1, ..mark(revision) }
}

fn compacted(bound: i64) -> Reply {
    Reply { canceled: true, compact_revision: bound, at: Duration::from_secs(9), ..Reply::default() }
}

fn canceled(reason: &str) -> Reply {
    Reply { canceled: true, cancel_reason: reason.to_owned(), revision: 7, ..Reply::default() }
}

fn session(asked: i64, replies: Vec<Reply>) -> Session {
    Session { asked, replies, ..Session::default() }
}

/// A watcher of `a/` from a revision on.
fn spec(start_revision: i64) -> WatchSpec {
    WatchSpec::of_prefix(b"a/").from(start_revision)
}

/// All that a watcher of `a/` from revision 2 is owed, after its creation.
fn all_of_a() -> Vec<Reply> {
    vec![
        created(7),
        sent(at(2, &["a/1"])),
        sent(at(3, &["a/2"])),
        sent(at(4, &["a/1"])),
        sent(at(5, &["a/2"])),
        sent(at(7, &["a/2", "a/3"])),
    ]
}

fn properties(spec: WatchSpec, sessions: Vec<Session>, demand: Demand) -> Vec<Property> {
    let mut history = history();
    history.compactions.push(Compaction { revision: 4, asked: Duration::from_secs(5) });
    let log = WatchLog { sessions, ..WatchLog::new("w", spec) };
    let mut found: Vec<Property> =
        check(&log, &history, demand).into_iter().map(|finding| finding.property).collect();
    found.dedup();
    found
}

fn found(spec: WatchSpec, sessions: Vec<Session>) -> Vec<Property> {
    properties(spec, sessions, STRICT)
}

/// One connection of a watcher of `a/`.
fn found_in_one(start_revision: i64, replies: Vec<Reply>) -> Vec<Property> {
    found(spec(start_revision), vec![session(start_revision, replies)])
}

#[test]
fn everything_in_order_is_right() {
    assert_eq!(found_in_one(2, all_of_a()), []);
}

#[test]
fn several_revisions_may_share_a_response() {
    let both = [at(2, &["a/1"]), at(3, &["a/2"])].concat();
    let rest = [at(4, &["a/1"]), at(5, &["a/2"]), at(7, &["a/2", "a/3"])].concat();
    assert_eq!(found_in_one(2, vec![created(3), sent(both), sent(rest)]), []);
}

#[test]
fn a_watcher_of_what_comes_next_is_owed_from_its_creation_on() {
    assert_eq!(found_in_one(0, vec![created(5), sent(at(7, &["a/2", "a/3"]))]), []);
    assert_eq!(found_in_one(0, vec![created(7)]), []);
}

/// What became of the past is not known to a record that begins in the middle.
#[test]
fn a_member_behind_the_beginning_of_a_record_may_tell_what_came_before_it() {
    let whole = history();
    let state = whole.at(4).iter().map(|event| (event.key.clone(), event.now)).collect();
    let mut part = WatchHistory::of_part(4, state);
    whole.events().iter().filter(|event| 4 < event.revision()).for_each(|event| {
        part.append(event.clone());
    });
    part.reach(7);
    let judged = |start: i64| {
        let replies =
            vec![created(3), sent(at(4, &["a/1"])), sent(at(5, &["a/2"])), sent(at(7, &["a/2", "a/3"]))];
        let log = WatchLog { sessions: vec![session(start, replies)], ..WatchLog::new("w", spec(start)) };
        check(&log, &part, STRICT).into_iter().map(|finding| finding.property).collect::<Vec<_>>()
    };
    assert_eq!(judged(0), []);
    assert_ne!(judged(5), [], "below what was asked for");
}

#[test]
fn a_watcher_of_the_future_is_owed_nothing_before_it() {
    assert_eq!(found_in_one(9, vec![created(7)]), []);
}

#[test]
fn filters_and_single_keys_shorten_what_is_owed() {
    let no_put = WatchSpec { no_put: true, ..spec(2) };
    assert_eq!(found(no_put, vec![session(2, vec![created(7), sent(at(5, &["a/2"]))])]), []);
    let no_delete = WatchSpec { no_delete: true, ..WatchSpec::of_key(b"a/2") }.from(2);
    let replies = vec![created(7), sent(at(3, &["a/2"])), sent(at(7, &["a/2"]))];
    assert_eq!(found(no_delete, vec![session(2, replies)]), []);
}

#[test]
fn a_connection_resumes_after_the_last_event_or_the_last_mark() {
    let mut first = all_of_a();
    let rest = first.split_off(4);
    let second = [vec![created(7)], rest].concat();
    assert_eq!(found(spec(2), vec![session(2, first.clone()), session(5, second.clone())]), []);

    first.push(stream_mark(4));
    assert_eq!(found(spec(2), vec![session(2, first), session(5, second)]), []);

    let marked = vec![created(5), mark(6)];
    let after = vec![created(6), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found(spec(0), vec![session(0, marked), session(7, after)]), []);
}

#[test]
fn a_connection_that_broke_before_anything_is_asked_for_again() {
    let replies = vec![created(7), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found(spec(0), vec![session(0, vec![]), session(0, vec![created(7)])]), []);
    assert_eq!(found(spec(6), vec![session(6, vec![]), session(6, replies)]), []);
}

#[test]
fn pieces_make_one_response_when_they_were_asked_for() {
    let spec = WatchSpec { fragment: true, ..spec(6) };
    let replies = vec![created(7), piece(at(7, &["a/2"]), 7), sent(at(7, &["a/3"]))];
    assert_eq!(found(spec.clone(), vec![session(6, replies.clone())]), []);
    // The connection broke between the pieces: the revision is asked for again, and comes again.
    let broken = replies[..2].to_vec();
    assert_eq!(found(spec, vec![session(6, broken), session(6, replies)]), []);
}

#[test]
fn marks_that_say_what_is_true_are_right() {
    let mut replies = all_of_a();
    replies.insert(2, mark(2));
    replies.insert(6, stream_mark(6));
    replies.push(stream_mark(7));
    replies.push(stream_mark(7));
    assert_eq!(found_in_one(2, replies), []);
}

#[test]
fn a_watcher_overtaken_by_compaction_starts_again_at_the_bound() {
    let first = vec![created(7), sent(at(2, &["a/1"])), compacted(4)];
    let second = vec![created(7), sent(at(4, &["a/1"])), sent(at(5, &["a/2"])), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found(spec(2), vec![session(2, first), session(4, second)]), []);
}

#[test]
fn a_watcher_that_its_client_cancels_is_owed_nothing_more() {
    let replies = vec![created(7), sent(at(2, &["a/1"])), canceled("")];
    let one = Session { canceled_by_client: true, ..session(2, replies) };
    assert_eq!(properties(spec(2), vec![one], Demand { complete: false, ..STRICT }), []);
}

#[test]
fn a_watcher_that_fell_behind_may_be_told_where_to_resume() {
    let rest = [vec![created(7)], all_of_a()[3..].to_vec()].concat();
    let replies = |resume: &str| {
        vec![
            created(7),
            sent(at(2, &["a/1"])),
            sent(at(3, &["a/2"])),
            canceled(&format!("{FELL_BEHIND}{resume}")),
        ]
    };
    assert_eq!(found(spec(2), vec![session(2, replies("4")), session(4, rest)]), []);
    let told_wrong =
        |resume| properties(spec(2), vec![session(2, replies(resume))], Demand { complete: false, ..STRICT });
    assert_eq!(told_wrong("3"), [Resumable], "it has had that");
    assert_eq!(told_wrong("5"), [Resumable], "that skips one");
    assert_eq!(told_wrong("x"), [Resumable]);
}

#[test]
fn an_event_outside_the_range_or_of_a_filtered_kind_breaks_filter() {
    let mut replies = all_of_a();
    replies.insert(5, sent(at(6, &["b"])));
    assert_eq!(found_in_one(2, replies), [Filter]);
    let no_put = WatchSpec { no_put: true, ..spec(4) };
    let replies = vec![created(7), sent(at(4, &["a/1"])), sent(at(5, &["a/2"]))];
    assert_eq!(found(no_put, vec![session(4, replies)]), [Filter]);
}

#[test]
fn a_revision_after_a_later_one_breaks_ordered() {
    let mut replies = all_of_a();
    replies.swap(2, 3);
    assert_eq!(found_in_one(2, replies), [Ordered]);
}

#[test]
fn events_of_one_revision_in_another_order_break_ordered() {
    let mut swapped = at(7, &["a/2", "a/3"]);
    swapped.reverse();
    assert_eq!(found_in_one(6, vec![created(7), sent(swapped)]), [Ordered]);
}

#[test]
fn an_event_sent_twice_breaks_unique() {
    let mut replies = all_of_a();
    replies.insert(3, replies[2].clone());
    assert_eq!(found_in_one(2, replies), [Unique]);
}

#[test]
fn an_event_sent_again_after_a_reconnect_breaks_unique() {
    let mut first = all_of_a();
    let rest = first.split_off(4);
    let second = [vec![created(7), sent(at(4, &["a/1"]))], rest].concat();
    assert_eq!(found(spec(2), vec![session(2, first), session(5, second)]), [Unique]);
}

#[test]
fn a_revision_split_over_responses_breaks_atomic() {
    let replies = vec![created(7), sent(at(7, &["a/2"])), sent(at(7, &["a/3"]))];
    assert_eq!(found_in_one(6, replies.clone()), [Atomic]);
    // Having asked for pieces allows pieces, not unmarked splits.
    let fragment = WatchSpec { fragment: true, ..spec(6) };
    assert_eq!(found(fragment, vec![session(6, replies)]), [Atomic]);
}

#[test]
fn pieces_that_were_not_asked_for_break_atomic() {
    let replies = vec![created(7), piece(at(7, &["a/2"]), 7), sent(at(7, &["a/3"]))];
    assert_eq!(found_in_one(6, replies), [Atomic]);
}

#[test]
fn a_mark_between_pieces_breaks_atomic() {
    let fragment = WatchSpec { fragment: true, ..spec(6) };
    let replies = vec![created(7), piece(at(7, &["a/2"]), 7), mark(6), sent(at(7, &["a/3"]))];
    assert_eq!(found(fragment, vec![session(6, replies)]), [Atomic]);
}

#[test]
fn an_event_after_a_mark_that_covers_it_breaks_bookmarkable() {
    for early in [mark(4), stream_mark(4)] {
        let mut replies = all_of_a();
        replies.insert(3, early);
        assert_eq!(found_in_one(2, replies), [Bookmarkable]);
    }
}

#[test]
fn a_mark_that_covers_an_event_that_never_comes_breaks_bookmarkable() {
    let first = vec![created(6), stream_mark(7)];
    assert_eq!(found(spec(6), vec![session(6, first), session(8, vec![created(7)])]), [Bookmarkable]);
}

#[test]
fn marks_that_decrease_or_lie_behind_or_ahead_break_bookmarkable() {
    let with = |extra: Vec<Reply>| [all_of_a(), extra].concat();
    assert_eq!(found_in_one(2, with(vec![mark(6)])), [Bookmarkable], "an event at 7 has come");
    assert_eq!(found_in_one(7, vec![created(7), sent(at(7, &["a/2", "a/3"])), mark(8)]), [Bookmarkable]);
    assert_eq!(found_in_one(0, vec![created(4), mark(6), mark(5)])[0], Bookmarkable);
}

#[test]
fn a_header_behind_its_own_events_breaks_bookmarkable() {
    let behind = Reply { revision: 6, ..sent(at(7, &["a/2", "a/3"])) };
    assert_eq!(found_in_one(6, vec![created(7), behind]), [Bookmarkable]);
}

#[test]
fn marks_bind_nobody_where_the_server_is_known_to_get_them_wrong() {
    let mut replies = all_of_a();
    replies.insert(3, mark(7));
    assert_eq!(properties(spec(2), vec![session(2, replies)], Demand { marks: false, ..STRICT }), []);
}

#[test]
fn a_first_event_that_is_not_the_first_match_breaks_resumable() {
    let mut replies = all_of_a();
    replies.remove(1);
    assert_eq!(found_in_one(2, replies), [Resumable]);
}

#[test]
fn a_gap_at_a_reconnect_breaks_resumable() {
    let mut first = all_of_a();
    let mut rest = first.split_off(3);
    rest.remove(0);
    let second = [vec![created(7)], rest].concat();
    assert_eq!(found(spec(2), vec![session(2, first), session(4, second)]), [Resumable]);
}

#[test]
fn a_missing_event_breaks_reliable() {
    let mut replies = all_of_a();
    replies.remove(3);
    assert_eq!(found_in_one(2, replies), [Reliable]);
}

#[test]
fn an_event_missing_from_its_revision_breaks_reliable() {
    let replies = vec![created(7), sent(at(5, &["a/2"])), sent(at(7, &["a/3"]))];
    assert_eq!(found_in_one(5, replies), [Reliable]);
}

#[test]
fn an_end_that_never_came_breaks_reliable_if_completeness_is_demanded() {
    let mut replies = all_of_a();
    replies.pop();
    let sessions = vec![session(2, replies)];
    assert_eq!(properties(spec(2), sessions.clone(), STRICT), [Reliable]);
    assert_eq!(properties(spec(2), sessions, Demand { complete: false, ..STRICT }), []);
}

#[test]
fn an_event_that_never_happened_breaks_reliable() {
    let mut replies = all_of_a();
    replies.insert(5, sent(vec![put("a/9", 6, 6, 1)]));
    assert_eq!(found_in_one(2, replies), [Reliable]);
    let mut changed = all_of_a();
    changed[1].events[0].now.value = ValuePrint::of(b"something else");
    assert_eq!(found_in_one(2, changed), [Reliable]);
}

#[test]
fn a_wrong_create_revision_breaks_create_flag() {
    let mut replies = all_of_a();
    replies[3].events[0].now.create_revision = 4;
    assert_eq!(found_in_one(2, replies), [CreateFlag]);
    let mut replies = all_of_a();
    replies[5].events[0].now.create_revision = 3;
    assert_eq!(found_in_one(2, replies), [CreateFlag]);
}

fn with_prev(mut replies: Vec<Reply>) -> Vec<Reply> {
    let history = history();
    for reply in &mut replies {
        for event in &mut reply.events {
            let truth = history.at(event.revision()).iter().find(|truth| truth.key == event.key);
            event.prev = truth.expect("from this history").prev;
        }
    }
    replies
}

#[test]
fn a_previous_value_that_is_right_or_compacted_away_is_right() {
    let spec = WatchSpec { prev_kv: true, ..spec(2) };
    assert_eq!(found(spec.clone(), vec![session(2, with_prev(all_of_a()))]), []);
    let mut compacted = with_prev(all_of_a());
    compacted[3].events[0].prev = None;
    compacted[3].at = Duration::from_secs(6);
    assert_eq!(found(spec, vec![session(2, compacted)]), []);
}

#[test]
fn a_previous_value_that_is_wrong_missing_or_not_asked_for_breaks_previous_value() {
    let spec_with = WatchSpec { prev_kv: true, ..spec(2) };
    let missing = |index: usize| {
        let mut replies = with_prev(all_of_a());
        replies[index].events[0].prev = None;
        found(spec_with.clone(), vec![session(2, replies)])
    };
    assert_eq!(missing(4), [PreviousValue], "of a deletion, never compacted");
    assert_eq!(missing(3), [PreviousValue], "before the compaction was asked for");
    let mut wrong = with_prev(all_of_a());
    wrong[3].events[0].prev = Some(Stored { version: 7, ..Stored::default() });
    assert_eq!(found(spec_with, vec![session(2, wrong)]), [PreviousValue]);
    assert_eq!(found(spec(2), vec![session(2, with_prev(all_of_a()))]), [PreviousValue], "not asked for");
}

#[test]
fn an_event_or_a_mark_below_the_requested_revision_breaks_floor() {
    let replies = vec![created(7), sent(at(5, &["a/2"])), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found_in_one(6, replies), [Floor]);
    assert_eq!(found_in_one(20, vec![created(7), sent(at(7, &["a/2", "a/3"]))]), [Floor]);
    assert_eq!(found_in_one(20, vec![created(7), mark(7)]), [Floor]);
    assert_eq!(found_in_one(0, vec![created(7), sent(at(7, &["a/2", "a/3"]))]), [Floor]);
}

#[test]
fn a_compaction_that_did_not_happen_or_does_not_concern_the_watcher_breaks_compacted() {
    let after = vec![created(7), sent(at(4, &["a/1"])), sent(at(5, &["a/2"])), sent(at(7, &["a/2", "a/3"]))];
    let invented = vec![created(7), sent(at(2, &["a/1"])), compacted(5)];
    let rest = vec![created(7), sent(at(5, &["a/2"])), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found(spec(2), vec![session(2, invented), session(5, rest)]), [Compacted]);
    assert_eq!(
        found(spec(4), vec![session(4, vec![created(7), compacted(4)]), session(4, after.clone())]),
        [Compacted]
    );
    let early = Reply { at: Duration::from_secs(1), ..compacted(4) };
    assert_eq!(found(spec(2), vec![session(2, vec![created(7), early]), session(4, after)]), [Compacted]);
}

#[test]
fn a_life_out_of_order_breaks_lifecycle() {
    let mut uncreated = all_of_a();
    uncreated.remove(0);
    assert_eq!(found_in_one(2, uncreated), [Lifecycle]);
    let mut twice = all_of_a();
    twice.insert(1, created(7));
    assert_eq!(found_in_one(2, twice), [Lifecycle]);
    let mut unasked = all_of_a();
    unasked.push(canceled(""));
    assert_eq!(found_in_one(2, unasked), [Lifecycle]);
    let mut after_end = all_of_a();
    after_end.insert(5, canceled(""));
    let one = Session { canceled_by_client: true, ..session(2, after_end) };
    assert_eq!(found(spec(2), vec![one]), [Lifecycle]);
    let refused = Reply { canceled: true, ..created(7) };
    assert_eq!(found_in_one(8, vec![refused]), [Lifecycle]);
}

#[test]
fn a_client_that_asks_for_something_else_is_not_taken_for_a_faulty_server() {
    let mut first = all_of_a();
    let rest = [vec![created(7)], first.split_off(4)].concat();
    assert_eq!(found(spec(2), vec![session(2, first), session(6, rest.clone())])[0], Record);
    assert_eq!(found(spec(2), vec![session(5, rest)]), [Record]);
}

fn found_coalescing(replies: Vec<Reply>) -> Vec<Property> {
    found_filtered_and_coalescing(spec(2), replies)
}

fn found_filtered_and_coalescing(spec: WatchSpec, replies: Vec<Reply>) -> Vec<Property> {
    let sessions = vec![session(2, replies)];
    let log = WatchLog { sessions, coalesces: true, ..WatchLog::new("w", spec) };
    check(&log, &history(), STRICT).into_iter().map(|finding| finding.property).collect()
}

#[test]
fn a_watcher_that_agreed_to_it_may_be_sent_the_latest_of_each_key_only() {
    let latest = [at(4, &["a/1"]), at(7, &["a/2", "a/3"])].concat();
    assert_eq!(found_coalescing(vec![created(7), sent(latest.clone())]), []);
    assert_eq!(found_coalescing(vec![created(7), sent(latest.clone()), mark(7)]), []);
    let both = [at(2, &["a/1"]), latest].concat();
    assert_eq!(found_coalescing(vec![created(7), sent(both)]), []);
}

#[test]
fn the_latest_event_of_a_key_is_owed_to_everyone() {
    assert_eq!(found_coalescing(vec![created(7), sent(at(7, &["a/2", "a/3"]))]), [Resumable]);
    assert_eq!(found_coalescing(vec![created(7), sent(at(4, &["a/1"]))]), [Resumable, Reliable]);
    let early = vec![created(7), sent(at(4, &["a/1"])), mark(5), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found_coalescing(early), [Bookmarkable], "it was not true yet when the mark was sent");
}

#[test]
fn an_event_may_be_overtaken_by_one_that_the_watcher_does_not_want() {
    let no_put = WatchSpec { no_put: true, ..spec(2) };
    assert_eq!(found_filtered_and_coalescing(no_put.clone(), vec![created(7)]), []);
    assert_eq!(found_filtered_and_coalescing(no_put.clone(), vec![created(7), mark(7)]), []);
    let early = vec![created(7), mark(6)];
    assert_eq!(found_filtered_and_coalescing(no_put, early), [Bookmarkable], "overtaken only at 7");
    let no_delete = WatchSpec { no_delete: true, ..spec(2) };
    let latest = [at(4, &["a/1"]), at(7, &["a/2", "a/3"])].concat();
    assert_eq!(found_filtered_and_coalescing(no_delete.clone(), vec![created(7), sent(latest)]), []);
    let lost = vec![created(7), sent(at(7, &["a/2", "a/3"]))];
    assert_eq!(found_filtered_and_coalescing(no_delete, lost), [Resumable]);
}
