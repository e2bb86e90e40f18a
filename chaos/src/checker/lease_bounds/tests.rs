//! Histories that are known to be good, and histories that are known to be bad.

use super::*;
use crate::record::lease::{Death, KeyRecord, Renewal, Revoke};

const BOUNDS: Bounds = Bounds {
    lateness: Duration::from_secs(1),
    checkpoint: Some(Duration::from_secs(1)),
    election: Duration::from_millis(500),
    straggle: Duration::from_millis(500),
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn span(from: u64, until: u64) -> Span {
    Span { from: ms(from), until: ms(until) }
}

fn renewal(from: u64, until: u64, end: RenewalEnd) -> Renewal {
    Renewal { span: span(from, until), end }
}

fn renewed(from: u64, until: u64) -> Renewal {
    renewal(from, until, RenewalEnd::Renewed(5))
}

/// One key, told gone by each of three members, the first at this time.
fn key(at: u64, revision: i64) -> KeyRecord {
    let death = |member: usize| Death { member, at: ms(at + 10 * member as u64), revision };
    KeyRecord { key: "k".into(), deaths: (0..3).map(death).collect() }
}

/// A lease of five seconds, granted between 0 and 10 ms, with these renewals and one key.
fn lease(renewals: &[Renewal], key: KeyRecord) -> LeaseRecord {
    LeaseRecord {
        id: 1,
        ttl: ms(5_000),
        grant: span(0, 10),
        renewals: renewals.to_vec(),
        keys: vec![key],
        ..LeaseRecord::default()
    }
}

fn history(lease: LeaseRecord) -> LeaseHistory {
    LeaseHistory { leases: vec![lease], members: 3, ended: ms(60_000), ..LeaseHistory::default() }
}

fn findings(history: &LeaseHistory) -> Vec<String> {
    check(history, &BOUNDS)
}

#[track_caller]
fn good(history: &LeaseHistory) {
    assert!(findings(history).is_empty(), "{:?}", findings(history));
}

#[track_caller]
fn bad(history: &LeaseHistory, why: &str) {
    let found = findings(history);
    assert!(found.iter().any(|finding| finding.contains(why)), "{why:?} is not among {found:?}");
}

#[test]
fn a_key_that_dies_between_its_ttl_and_a_second_later_is_fine() {
    for at in [5_000, 5_400, 6_010] {
        good(&history(lease(&[], key(at, 9))));
    }
}

#[test]
fn a_key_that_dies_before_the_ttl_since_the_grant_was_sent_is_found() {
    bad(&history(lease(&[], key(4_999, 9))), "before the end of its TTL");
}

#[test]
fn the_ttl_counts_from_the_sending_of_the_last_acknowledged_renewal() {
    let renewals = [renewed(2_000, 2_050), renewed(4_000, 4_800)];
    good(&history(lease(&renewals, key(9_000, 9))));
    bad(&history(lease(&renewals, key(8_999, 9))), "before the end of its TTL");
}

#[test]
fn a_renewal_acknowledged_after_the_key_died_is_found() {
    bad(&history(lease(&[renewed(6_000, 6_010)], key(5_500, 9))), "before the end of its TTL");
}

#[test]
fn a_renewal_without_an_answer_neither_promises_nor_is_taken_as_nothing() {
    let renewals = [renewed(2_000, 2_010), renewal(4_000, 5_000, RenewalEnd::Unknown)];
    // It may not have counted, and it may have, up to the end.
    for at in [7_000, 8_000, 11_500] {
        good(&history(lease(&renewals, key(at, 9))));
    }
    bad(&history(lease(&renewals, key(6_999, 9))), "before the end of its TTL");
    bad(&history(lease(&renewals, key(11_501, 9))), "later than allowed");
}

#[test]
fn a_renewal_sent_to_a_stopped_member_may_count_when_that_wakes() {
    let renewals = [renewal(4_000, 5_000, RenewalEnd::Unknown)];
    let mut stopped = history(lease(&renewals, key(15_000, 9)));
    bad(&stopped, "later than allowed");
    stopped.pauses.push(span(3_000, 9_000));
    good(&stopped);
}

#[test]
fn an_answer_that_the_lease_is_gone_counts_as_its_death() {
    let renewals = [renewed(2_000, 2_010), renewal(6_000, 6_100, RenewalEnd::Gone)];
    bad(&history(lease(&renewals, key(7_200, 9))), "before the end of its TTL");
    let mut said = lease(&[], key(5_500, 9));
    said.said_gone.push(ms(3_000));
    bad(&history(said), "before the end of its TTL");
}

#[test]
fn only_a_revoke_that_was_sent_before_excuses_an_early_death() {
    let revoked = |from, until, acknowledged, at| {
        let mut lease = lease(&[renewed(1_000, 1_010)], key(at, 9));
        lease.revoke = Some(Revoke { span: span(from, until), acknowledged });
        history(lease)
    };
    good(&revoked(2_000, 2_100, true, 2_050));
    good(&revoked(2_000, 2_100, false, 2_050));
    // Nobody knows whether it happened: then the clock may end the lease.
    good(&revoked(2_000, 2_100, false, 6_500));
    bad(&revoked(2_000, 2_100, true, 1_900), "before the end of its TTL");
    bad(&revoked(2_000, 2_100, true, 3_200), "revoked at");
}

#[test]
fn a_key_that_lives_more_than_a_second_longer_is_found() {
    bad(&history(lease(&[], key(6_011, 9))), "later than allowed");
    bad(&history(lease(&[renewed(4_000, 4_100)], key(10_101, 9))), "later than allowed");
}

#[test]
fn a_key_that_never_dies_is_found_once_it_is_overdue() {
    let immortal = KeyRecord { key: "k".into(), deaths: Vec::new() };
    let mut endless = history(lease(&[], immortal));
    bad(&endless, "still there");
    assert_eq!(undecided(&endless, &BOUNDS), 0);
    endless.ended = ms(6_000);
    good(&endless);
    assert_eq!(undecided(&endless, &BOUNDS), 1);
}

#[test]
fn each_change_of_leader_since_the_renewal_adds_what_is_allowed_and_no_more() {
    // 700 ms without a leader, 500 ms election time-out, one second unrecorded: 2.2 s.
    let changed = |at, changes: &[Span]| {
        let mut history = history(lease(&[renewed(3_000, 3_010)], key(at, 9)));
        history.leader_changes = changes.to_vec();
        history
    };
    let change = span(5_000, 5_700);
    good(&changed(11_210, &[change]));
    bad(&changed(11_211, &[change]), "later than allowed");
    good(&changed(13_410, &[change, span(10_000, 10_700)]));
    bad(&changed(13_411, &[change, span(10_000, 10_700)]), "later than allowed");
    // One before the renewal was sent, one after the death: neither counts.
    bad(&changed(9_100, &[span(1_000, 2_900), span(20_000, 21_000)]), "later than allowed");
}

#[test]
fn a_change_of_leader_excuses_no_early_death() {
    let mut changed = history(lease(&[renewed(3_000, 3_010)], key(7_900, 9)));
    changed.leader_changes.push(span(5_000, 5_700));
    bad(&changed, "before the end of its TTL");
}

#[test]
fn without_checkpoints_a_new_leader_may_begin_the_whole_ttl_again() {
    let changed = |at, changes: &[Span]| {
        let mut history = history(lease(&[], key(at, 9)));
        history.leader_changes = changes.to_vec();
        history
    };
    let found = |history: &LeaseHistory| check(history, &Bounds { checkpoint: None, ..BOUNDS }).len();
    // It leads at 4.5 s, waits 500 ms, and ends the lease 5 s later and a second late.
    let change = span(4_000, 4_500);
    bad(&changed(11_000, &[change]), "later than allowed");
    assert_eq!(found(&changed(11_000, &[change])), 0);
    assert_eq!(found(&changed(11_001, &[change])), 1);
    // Of several the last one counts, however many there were.
    let changes = [span(1_000, 1_200), span(2_000, 2_200), change];
    assert_eq!((found(&changed(11_000, &changes)), found(&changed(11_001, &changes))), (0, 1));
    // One so early that the renewal outlives it adds nothing.
    let mut renewed_later = changed(9_010, &[span(900, 2_100)]);
    renewed_later.leases[0].renewals.push(renewed(3_000, 3_010));
    assert_eq!(found(&renewed_later), 0);
    renewed_later.leases[0].keys = vec![key(9_011, 9)];
    assert_eq!(found(&renewed_later), 1);
}

#[test]
fn what_could_not_be_seen_counts_once_and_only_once_the_lease_was_due() {
    let stalled = |at, stalls: &[Span]| {
        let mut history = history(lease(&[], key(at, 9)));
        history.stalls = stalls.to_vec();
        history
    };
    // Due at 5.01 s, and a second late: of the stall, 1 s is left.
    good(&stalled(7_010, &[span(1_000, 6_010)]));
    bad(&stalled(7_011, &[span(1_000, 6_010)]), "later than allowed");
    // Two at once are as long as one, and what lies between two is not covered.
    bad(&stalled(7_011, &[span(1_000, 6_010), span(2_000, 6_000)]), "later than allowed");
    good(&stalled(8_010, &[span(1_000, 6_010), span(6_500, 7_500)]));
    bad(&stalled(8_011, &[span(1_000, 6_010), span(6_500, 7_500)]), "later than allowed");
    // One that is not over yet excuses all.
    good(&stalled(30_000, &[span(1_000, 40_000)]));
}

#[test]
fn without_checkpoints_an_outage_excuses_what_was_due_in_it() {
    let found = |at| {
        let mut history = history(lease(&[], key(at, 9)));
        history.leader_changes.push(span(4_000, 4_500));
        history.outages.push(span(9_500, 10_700));
        history.stalls.push(span(10_200, 10_700));
        check(&history, &Bounds { checkpoint: None, ..BOUNDS }).len()
    };
    // Due at 10 s: 700 ms of the outage, and a second.
    assert_eq!((found(11_700), found(11_701)), (0, 1));
}

#[test]
fn what_this_program_could_not_see_is_not_held_against_the_server() {
    let mut stalled = history(lease(&[], key(6_500, 9)));
    bad(&stalled, "later than allowed");
    stalled.stalls.push(span(3_000, 4_900));
    bad(&stalled, "later than allowed");
    stalled.stalls.push(span(5_900, 6_450));
    good(&stalled);
}

#[test]
fn an_outage_excuses_what_was_due_in_it_and_what_a_later_leader_could_not_know() {
    let with = |at, outage: Span, changes: &[Span]| {
        let mut history = history(lease(&[], key(at, 9)));
        history.outages.push(outage);
        history.leader_changes = changes.to_vec();
        history
    };
    good(&with(6_500, span(4_800, 5_700), &[]));
    // It was over before the lease was due.
    bad(&with(6_500, span(2_000, 2_900), &[]), "later than allowed");
    // 400 ms without a leader, 500 ms election time-out, one second unrecorded, 900 ms of outage.
    good(&with(8_810, span(2_000, 2_900), &[span(3_000, 3_400)]));
    bad(&with(8_811, span(2_000, 2_900), &[span(3_000, 3_400)]), "later than allowed");
    // Nothing excuses an early death.
    bad(&with(4_900, span(2_000, 2_900), &[]), "before the end of its TTL");
}

#[test]
fn keys_of_one_lease_that_go_at_two_revisions_are_found() {
    let mut two = lease(&[], key(5_500, 9));
    two.keys.push(key(5_500, 10));
    bad(&history(two), "keys went at revisions");
}

#[test]
fn a_member_that_tells_a_death_twice_or_never_is_found() {
    let mut twice = key(5_500, 9);
    twice.deaths.push(Death { member: 1, at: ms(5_600), revision: 9 });
    bad(&history(lease(&[], twice)), "told 2 times");
    let mut never = key(5_500, 9);
    never.deaths.remove(2);
    bad(&history(lease(&[], never)), "told 0 times");
}

#[test]
fn one_key_of_two_that_stays_is_found() {
    let mut two = lease(&[], key(5_500, 9));
    two.keys.push(KeyRecord { key: "l".into(), deaths: Vec::new() });
    bad(&history(two), "still there");
}

#[test]
fn a_renewal_answered_with_another_ttl_is_found() {
    let wrong = renewal(1_000, 1_010, RenewalEnd::Renewed(4));
    bad(&history(lease(&[wrong], key(6_500, 9))), "answered with 4 s");
}

#[test]
fn margins_are_measured_from_what_was_promised_and_what_is_allowed() {
    let margins = margins(&history(lease(&[renewed(2_000, 2_010)], key(7_300, 9))), &BOUNDS);
    let expected = Margins {
        expired: 1,
        expired_after_change: 0,
        beyond_promise_min: ms(300),
        late_max: ms(290),
        late_per_change_max: ms(0),
        below_limit_min: ms(710),
    };
    assert_eq!(margins, expected);
}

#[test]
fn what_a_change_of_leader_adds_is_measured_without_the_time_in_which_nobody_led() {
    let mut changed = history(lease(&[renewed(2_000, 2_010)], key(9_000, 9)));
    changed.leader_changes.push(span(4_000, 4_900));
    let margins = margins(&changed, &BOUNDS);
    assert_eq!((margins.expired_after_change, margins.late_max), (1, ms(0)));
    assert_eq!(margins.late_per_change_max, ms(1_090));
}
