//! The rules one by one.

use super::*;
use bytes::Bytes;

fn deletes(revisions: &[i64]) -> Vec<Event> {
    let event = |revision: &i64| Event {
        kind: EventKind::Delete { key: Bytes::from_static(b"k"), modified: Revision::new(*revision) },
        previous: None,
    };
    revisions.iter().map(event).collect()
}

/// Revision and number of events of what came out.
fn take(resume: &mut Resume, revisions: &[i64], more: bool) -> Vec<(i64, usize)> {
    let mut whole = Vec::new();
    resume.response(deletes(revisions), more, &mut whole);
    whole.iter().map(|changes| (changes.revision.get(), changes.events.len())).collect()
}

fn at(revision: i64) -> WatchStart {
    WatchStart::At(Revision::new(revision))
}

fn from(revision: i64) -> Resume {
    Resume::new(at(revision))
}

#[test]
fn a_response_is_cut_into_whole_revisions() {
    let mut resume = from(5);
    assert_eq!(take(&mut resume, &[5, 5, 6, 8, 8, 8], false), [(5, 2), (6, 1), (8, 3)]);
    assert_eq!(resume.start(), at(9));
}

#[test]
fn what_is_below_the_owed_revision_is_dropped() {
    let mut resume = from(5);
    assert_eq!(take(&mut resume, &[3, 4, 5], false), [(5, 1)]);
    assert_eq!(take(&mut resume, &[4, 5], false), []);
    assert_eq!(take(&mut resume, &[5, 6], false), [(6, 1)]);
    assert_eq!(resume.start(), at(7));
}

#[test]
fn an_older_revision_after_a_newer_one_is_dropped() {
    let mut resume = from(1);
    assert_eq!(take(&mut resume, &[4, 3, 5], false), [(4, 1), (5, 1)]);
}

#[test]
fn the_last_revision_of_a_piece_waits_for_the_next_piece() {
    let mut resume = from(1);
    assert_eq!(take(&mut resume, &[2, 3], true), [(2, 1)]);
    assert_eq!(resume.start(), at(3));
    assert_eq!(take(&mut resume, &[3, 3], true), []);
    assert_eq!(take(&mut resume, &[3, 4], false), [(3, 4), (4, 1)]);
}

#[test]
fn a_revision_lost_between_its_pieces_is_asked_for_again() {
    let mut resume = from(1);
    assert_eq!(take(&mut resume, &[2, 3], true), [(2, 1)]);
    resume.lost();
    assert_eq!(resume.start(), at(3));
    assert_eq!(take(&mut resume, &[3, 3], false), [(3, 2)]);
}

#[test]
fn a_watch_from_now_is_owed_all_after_its_creation() {
    let mut resume = Resume::new(WatchStart::Live);
    assert_eq!(resume.start(), WatchStart::Live);
    resume.created(Revision::new(7));
    resume.lost();
    assert_eq!(resume.start(), at(8));
    assert_eq!(take(&mut resume, &[7, 8], false), [(8, 1)]);
}

#[test]
fn before_its_creation_is_known_a_watch_from_now_still_starts_now() {
    let mut resume = Resume::new(WatchStart::Live);
    resume.lost();
    assert_eq!(resume.start(), WatchStart::Live);
}

#[test]
fn a_revision_between_registration_and_answer_is_taken_and_nothing_after_it_is_missed() {
    let mut resume = Resume::new(WatchStart::Live);
    resume.created(Revision::new(7));
    assert_eq!(take(&mut resume, &[5], false), [(5, 1)]);
    resume.lost();
    // 6 and 7 may have been on their way.
    assert_eq!(resume.start(), at(6));
}

#[test]
fn a_later_creation_moves_nothing() {
    let mut resume = from(5);
    resume.created(Revision::new(90));
    assert_eq!(resume.start(), at(5));
}

#[test]
fn an_answer_without_a_revision_is_not_a_place_to_resume_from() {
    let mut resume = Resume::new(WatchStart::Live);
    resume.created(Revision::new(0));
    assert_eq!(resume.start(), WatchStart::Live);
}

#[test]
fn a_mark_moves_forward_only() {
    let mut resume = from(5);
    assert!(!resume.mark(Revision::new(4)));
    assert!(resume.mark(Revision::new(9)));
    assert!(!resume.mark(Revision::new(8)));
    assert!(!resume.mark(Revision::new(9)));
    assert_eq!(resume.start(), at(10));
    assert_eq!(take(&mut resume, &[9], false), []);
}

#[test]
fn a_mark_between_the_pieces_of_a_revision_is_not_believed() {
    let mut resume = from(1);
    assert_eq!(take(&mut resume, &[2], true), []);
    assert!(!resume.mark(Revision::new(9)));
    assert_eq!(take(&mut resume, &[2], false), [(2, 2)]);
}

#[test]
fn a_start_in_the_future_takes_nothing_older() {
    let mut resume = from(100);
    resume.created(Revision::new(50));
    assert_eq!(take(&mut resume, &[51, 99, 100], false), [(100, 1)]);
}
