//! Deadlines, notes and take-over, by table and by time handed in.

use super::*;

const INTERVAL: Duration = Duration::from_secs(60);
const GRANTED: LogIndex = LogIndex(77);
const GRACE: Duration = Duration::from_secs(1);

fn id(number: i64) -> LeaseId {
    LeaseId::from_wire(number).expect("not zero")
}

fn ttl(seconds: i64) -> LeaseTtl {
    LeaseTtl::from_seconds(seconds).expect("in range")
}

fn lease(number: i64, seconds: i64) -> Lease {
    Lease { id: id(number), granted: GRANTED, ttl: ttl(seconds), remaining: None }
}

fn expired(number: i64) -> Expired {
    Expired { lease: id(number), granted: GRANTED }
}

/// The note that stands in the way of a renewal.
fn noted(renewed: Renewed) -> NoteId {
    match renewed {
        Renewed::Noted { granted: GRANTED, note } => note,
        other => panic!("{other:?}"),
    }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn leading(leases: Vec<Lease>, now: Instant) -> Book {
    let mut book = Book::new(INTERVAL);
    book.take_over(Term(7));
    book.lead(Term(7), leases, now, GRACE);
    assert_eq!(book.term(), Some(Term(7)));
    book
}

#[test]
fn a_lease_expires_once_at_its_deadline_and_a_renewal_moves_it() {
    let start = Instant::now();
    let mut book = leading(vec![], start);
    book.changed(LeaseChange::Granted(lease(1, 5)), start);
    assert_eq!(book.expire(start + s(4), 10), []);
    assert_eq!(book.renew(id(1), start + s(4)), Renewed::For(ttl(5)));
    assert_eq!(book.expire(start + s(8), 10), [], "the old deadline no longer counts");
    assert_eq!(book.rest(id(1), start + s(8)), Some((ttl(5), 1_000)));
    assert_eq!(book.renew(id(1), start + s(9)), Renewed::Expiring, "at the deadline it is over");
    assert_eq!(book.expire(start + s(9), 10), [expired(1)]);
    assert_eq!(book.expire(start + s(20), 10), [], "its end is on the way");
    assert_eq!(book.renew(id(1), start + s(10)), Renewed::Expiring);
    assert_eq!(book.rest(id(1), start + s(10)), Some((ttl(5), -1_000)));
    book.end_failed(expired(1), start + s(20), s(1));
    assert_eq!(book.expire(start + s(20), 10), []);
    assert_eq!(book.expire(start + s(21), 10), [expired(1)], "tried again after a pause");
    book.changed(LeaseChange::Ended(id(1)), start + s(22));
    assert_eq!(book.renew(id(1), start + s(22)), Renewed::Unknown);
    assert_eq!(book.rest(id(1), start), None);
    assert_eq!(book.len(), 0);
}

#[test]
fn no_more_expire_at_once_than_are_asked_for_and_none_is_forgotten() {
    let start = Instant::now();
    let mut book = leading((1..=10).map(|number| lease(number, 2)).collect(), start);
    let mut all = Vec::new();
    for _ in 0..4 {
        let some = book.expire(start + s(3), 3);
        assert!(some.len() <= 3);
        all.extend(some);
    }
    all.sort();
    assert_eq!(all, (1..=10).map(expired).collect::<Vec<_>>());
}

#[test]
fn a_lease_ended_and_granted_again_has_one_deadline() {
    let start = Instant::now();
    let mut book = leading(vec![], start);
    book.changed(LeaseChange::Granted(lease(1, 5)), start);
    book.changed(LeaseChange::Ended(id(1)), start + s(1));
    book.changed(LeaseChange::Granted(lease(1, 5)), start + s(1));
    assert_eq!(book.expire(start + s(5), 10), []);
    assert_eq!(book.expire(start + s(6), 10), [expired(1)]);
    assert_eq!(book.expire(start + s(60), 10), []);
}

#[test]
fn taking_over_gives_each_what_it_is_owed_and_sees_what_changed_meanwhile() {
    let start = Instant::now();
    let mut book = Book::new(INTERVAL);
    book.changed(LeaseChange::Granted(lease(9, 5)), start);
    assert_eq!(book.len(), 0, "a follower keeps none");
    book.take_over(Term(3));
    assert_eq!(book.term(), None);
    book.changed(LeaseChange::Ended(id(1)), start);
    book.changed(LeaseChange::Granted(lease(4, 30)), start);
    book.changed(LeaseChange::Granted(lease(5, 30)), start);
    book.changed(LeaseChange::Granted(lease(6, 30)), start);
    // Ended and granted again after the state was read, which has the old one.
    book.changed(LeaseChange::Ended(id(7)), start);
    book.changed(LeaseChange::Granted(lease(7, 30)), start);
    let noted_before = Lease { remaining: Some(s(100)), ..lease(3, 500) };
    let noted_meanwhile = Lease { remaining: Some(s(12)), ..lease(6, 30) };
    let state = vec![lease(1, 10), lease(2, 10), noted_before, lease(4, 30), noted_meanwhile, lease(7, 900)];
    book.lead(Term(2), state.clone(), start, GRACE);
    assert_eq!(book.term(), None, "of an earlier term");
    book.lead(Term(3), state, start + s(1), GRACE);
    let rest = |number| book.rest(id(number), start + s(1)).map(|(_, rest)| rest);
    assert_eq!(rest(1), None, "ended after the state was read");
    assert_eq!(rest(2), Some(11_000), "in full, and the grace");
    assert_eq!(rest(3), Some(101_000), "what was noted, and the grace");
    assert_eq!(rest(4), Some(31_000), "the state has the last word");
    assert_eq!(rest(5), Some(29_000), "granted after the state was read");
    assert_eq!(rest(6), Some(13_000), "granted and noted while taking over");
    assert_eq!(rest(7), Some(29_000), "the name of one that ended stands for another");
    let mut deadlines = book.deadlines();
    deadlines.sort();
    let leases: Vec<LeaseId> = deadlines.into_iter().map(|(_, lease)| lease).collect();
    assert_eq!(leases, [id(2), id(6), id(5), id(7), id(4), id(3)]);
    noted(book.renew(id(6), start + s(1)));
    book.follow();
    assert_eq!((book.term(), book.len()), (None, 0));
}

#[test]
fn a_lease_that_is_not_renewed_is_noted_at_intervals_and_renewed_only_after_the_note_is_gone() {
    let start = Instant::now();
    let mut book = leading(vec![], start);
    book.changed(LeaseChange::Granted(lease(1, 300)), start);
    book.changed(LeaseChange::Granted(lease(2, 60)), start);
    book.changed(LeaseChange::Granted(lease(3, 300)), start);
    assert_eq!(book.renew(id(3), start + s(30)), Renewed::For(ttl(300)));
    let note = |number, seconds| LeaseNote { id: id(number), granted: GRANTED, remaining: Some(s(seconds)) };
    assert_eq!(book.take_notes(start + s(60), 10), [note(1, 240)], "2 is too short, 3 was renewed");
    assert_eq!(book.take_notes(start + s(61), 10), []);
    assert_eq!(book.take_notes(start + s(90), 10), [note(3, 240)]);
    let first = noted(book.renew(id(3), start + s(100)));
    assert_eq!(book.rest(id(3), start + s(100)), Some((ttl(300), 230_000)), "not renewed yet");
    book.unnoted(id(3), first);
    book.unnoted(id(78), first);
    assert_eq!(book.renew(id(3), start + s(101)), Renewed::For(ttl(300)));
    assert_eq!(book.take_notes(start + s(120), 10), [note(1, 180)]);
    assert_eq!(book.take_notes(start + s(160), 10), [], "3 was renewed at 101");
    assert_eq!(book.take_notes(start + s(161), 10), [note(3, 240)]);
}

#[test]
fn a_lease_taken_over_with_a_note_is_not_renewed_before_the_note_is_gone() {
    let start = Instant::now();
    let mut book = leading(vec![Lease { remaining: Some(s(3)), ..lease(1, 500) }], start);
    noted(book.renew(id(1), start));
}

#[test]
fn a_lease_that_never_ends_has_a_deadline_all_the_same() {
    let start = Instant::now();
    let mut book = leading(vec![lease(1, limits::LEASE_TTL_SECONDS_MAX)], start);
    assert_eq!(book.renew(id(1), start), Renewed::For(ttl(limits::LEASE_TTL_SECONDS_MAX)));
    assert_eq!(book.expire(start + s(1_000_000), 1), []);
    let rest = limits::LEASE_TTL_SECONDS_MAX * 1_000;
    assert_eq!(book.rest(id(1), start), Some((ttl(limits::LEASE_TTL_SECONDS_MAX), rest)));
}

#[test]
fn many_leases_taken_over_do_not_end_in_one_second_and_none_ends_early() {
    let few = vec![s(10); limits::LEASE_EXPIRIES_PER_SECOND as usize];
    assert_eq!(spread(&few), few);
    let mut lives = vec![s(10); 3_000];
    lives.extend(vec![s(500); 10]);
    let given = spread(&lives);
    assert!(given.iter().zip(&lives).all(|(given, owed)| owed <= given));
    for second in 10..20 {
        let ends = given.iter().filter(|life| life.as_secs() == second).count();
        assert!(ends <= DEADLINES_PER_SECOND as usize + 1, "{ends} in second {second}");
    }
    assert_eq!(given[3_000], s(500), "where there is room nothing is put off");
}

#[test]
fn the_end_of_an_old_note_is_not_the_end_of_a_new_one() {
    let start = Instant::now();
    let mut book = leading(vec![lease(1, 900)], start);
    assert_eq!(book.take_notes(start + s(60), 10).len(), 1);
    let first = noted(book.renew(id(1), start + s(61)));
    assert_eq!(book.take_notes(start + s(121), 10).len(), 1, "not renewed: the note was not taken back yet");
    let second = noted(book.renew(id(1), start + s(122)));
    book.unnoted(id(1), first);
    assert_eq!(noted(book.renew(id(1), start + s(123))), second);
    book.unnoted(id(1), second);
    assert_eq!(book.renew(id(1), start + s(124)), Renewed::For(ttl(900)));
}

#[test]
fn a_renewal_that_was_confirmed_too_late_does_not_stand() {
    let start = Instant::now();
    let mut book = leading(vec![], start);
    book.changed(LeaseChange::Granted(lease(1, 2)), start);
    assert_eq!(book.renew(id(1), start + s(1)), Renewed::For(ttl(2)));
    assert!(book.stands(id(1), start + s(2)));
    assert!(!book.stands(id(1), start + s(3)));
    assert_eq!(book.expire(start + s(3), 10), [expired(1)]);
    assert!(!book.stands(id(1), start + s(2)), "its end is decided");
    assert!(!book.stands(id(2), start));
}

#[test]
fn leases_that_came_and_went_leave_nothing_behind() {
    let start = Instant::now();
    let mut book = leading(vec![lease(1_000_000, 900)], start);
    for number in 1..=20_000 {
        book.changed(LeaseChange::Granted(lease(number, 86_400)), start);
        book.changed(LeaseChange::Ended(id(number)), start);
    }
    assert!(book.deadlines.len() <= QUEUE_SLACK + 8, "{}", book.deadlines.len());
    assert!(book.notes.len() <= QUEUE_SLACK + 8, "{}", book.notes.len());
    assert_eq!(book.expire(start + s(901), 10), [expired(1_000_000)], "what is there keeps its place");
}

#[test]
fn leases_renewed_behind_one_moment_are_looked_at_in_turns() {
    let start = Instant::now();
    let leases = (1..=1_000).map(|number| lease(number, 5)).collect();
    let mut book = leading(leases, start);
    for number in 2..=1_000 {
        assert_eq!(book.renew(id(number), start + s(4)), Renewed::For(ttl(5)));
    }
    let found: Vec<Expired> = (0..20).flat_map(|_| book.expire(start + s(6), 1)).collect();
    assert_eq!(found, [expired(1)]);
}
