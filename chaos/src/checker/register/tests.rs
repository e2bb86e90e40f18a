//! Histories of a register that are known to be good, and some that are known to be bad.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn op(invoked: u64, returned: u64, step: Step) -> Op {
    let time = Duration::from_millis;
    Op { client: 0, member: 0, invoked: time(invoked), returned: Some(time(returned)), step }
}

fn lost(invoked: u64, step: Step) -> Op {
    Op { returned: None, ..op(invoked, 0, step) }
}

fn read(invoked: u64, returned: u64, value: u64) -> Op {
    op(invoked, returned, Step::Read(Some(value)))
}

fn write(invoked: u64, returned: u64, value: u64) -> Op {
    op(invoked, returned, Step::Write(value))
}

fn swap(from: u64, to: u64) -> Step {
    Step::Swap { from: Some(from), to }
}

fn good(ops: &[Op]) -> bool {
    let judgement = check(ops, TRIES_MAX);
    assert_eq!(judgement.undecided, 0);
    judgement.findings.is_empty()
}

#[test]
fn one_after_the_other_is_fine() {
    assert!(good(&[]));
    assert!(good(&[
        op(0, 1, Step::Read(None)),
        write(2, 3, 1),
        read(4, 5, 1),
        op(6, 7, swap(1, 2)),
        read(8, 9, 2)
    ]));
}

#[test]
fn a_stale_read_is_found() {
    assert!(!good(&[write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)]));
    assert!(!good(&[write(0, 1, 1), op(2, 3, Step::Read(None))]), "the first write is missed");
}

#[test]
fn a_read_during_a_write_may_show_either() {
    assert!(good(&[write(0, 1, 1), write(2, 10, 2), read(3, 4, 1), read(5, 6, 2)]));
    assert!(!good(&[write(0, 1, 1), write(2, 10, 2), read(3, 4, 2), read(5, 6, 1)]), "back again");
}

#[test]
fn a_read_of_what_nobody_wrote_is_found() {
    assert!(!good(&[write(0, 1, 1), read(2, 3, 7)]));
    assert!(!good(&[read(0, 1, 1), write(2, 3, 1)]), "seen before it was sent");
}

#[test]
fn overlapping_writes_may_take_either_order_but_one() {
    let writes = [write(0, 10, 1), write(0, 10, 2)];
    assert!(good(&[writes[0], writes[1], read(11, 12, 1)]));
    assert!(good(&[writes[0], writes[1], read(11, 12, 2)]));
    assert!(!good(&[writes[0], writes[1], read(11, 12, 2), read(13, 14, 1)]));
}

#[test]
fn two_swaps_from_one_value_are_found() {
    let first = write(0, 1, 1);
    assert!(good(&[first, op(2, 9, swap(1, 2)), op(2, 9, Step::Refused { from: Some(1), saw: Some(2) })]));
    assert!(!good(&[first, op(2, 9, swap(1, 2)), op(2, 9, swap(1, 3))]));
}

#[test]
fn a_swap_refused_although_its_value_was_there_is_found() {
    let first = write(0, 1, 1);
    assert!(!good(&[first, op(2, 3, Step::Refused { from: Some(1), saw: Some(1) })]));
    assert!(!good(&[first, op(2, 3, Step::Refused { from: Some(2), saw: None })]), "saw what was not there");
}

#[test]
fn a_lost_write_may_happen_much_later_or_never() {
    let before = [write(0, 1, 1), lost(2, Step::Write(2))];
    assert!(good(&[before[0], before[1], read(50, 51, 1)]), "never");
    assert!(good(&[before[0], before[1], read(50, 51, 1), read(90, 91, 2)]), "late");
    assert!(!good(&[before[0], before[1], read(50, 51, 2), read(90, 91, 1)]), "and is not undone");
}

#[test]
fn a_lost_write_cannot_happen_before_it_was_sent_nor_twice() {
    assert!(!good(&[write(0, 1, 1), read(2, 3, 2), lost(4, Step::Write(2))]));
    assert!(!good(&[lost(0, Step::Write(1)), read(2, 3, 1), write(4, 5, 2), read(6, 7, 2), read(8, 9, 1)]));
}

#[test]
fn a_lost_swap_that_was_seen_proves_that_the_value_before_it_was_there() {
    let ops = [lost(0, Step::Write(1)), lost(1, swap(1, 2)), read(20, 21, 2)];
    assert!(good(&ops));
    assert!(!good(&[lost(1, swap(1, 2)), read(20, 21, 2)]), "nobody wrote what it swapped");
}

#[test]
fn after_a_bad_piece_the_rest_is_judged_on_its_own() {
    let ops = [write(0, 1, 1), write(2, 3, 2), read(4, 5, 1), write(6, 7, 3), read(8, 9, 3), read(10, 11, 1)];
    assert_eq!(check(&ops, TRIES_MAX).findings.len(), 2);
}

#[test]
fn giving_up_is_not_a_finding_and_not_a_pass() {
    let ops: Vec<Op> = (1..=12).map(|value| write(0, 10, value)).chain([read(11, 12, 99)]).collect();
    let judgement = check(&ops, 100);
    assert_eq!((judgement.findings.len(), judgement.undecided), (1, 12));
    assert!(judgement.findings[0].contains("99"), "the read by itself is wrong from any value");
}

/// A history made by carrying calls out at one instant each is always good, and swapping what two
/// reads of different values saw in the middle of quiet times is always found.
#[test]
fn random_histories_that_happened_are_good_and_tampered_ones_are_not() {
    for seed in 0..200 {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut value: Value = None;
        let mut ops = Vec::new();
        let mut instant = 100;
        for number in 1..120 {
            instant += dice.random_range(1..10);
            let step = match dice.random_range(0..3) {
                0 => Step::Read(value),
                1 => Step::Write(number),
                _ if dice.random_bool(0.5) => Step::Swap { from: value, to: number },
                _ => Step::Refused { from: Some(1_000 + number), saw: value },
            };
            value = after(step, value).expect("it was made to fit");
            let mut one = op(instant - dice.random_range(0..25), instant + dice.random_range(0..25), step);
            if dice.random_bool(0.1) && shown(step).is_none() {
                one.returned = None;
            }
            ops.push(one);
        }
        assert!(good(&ops), "seed {seed}");
        let never = ops.len() / 2;
        if let Step::Read(_) = ops[never].step {
            ops[never].step = Step::Read(Some(77_777));
            assert!(!good(&ops), "seed {seed}");
        }
    }
}
