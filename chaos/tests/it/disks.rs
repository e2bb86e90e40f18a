//! A disk that fills up, a sync that fails, a log whose end is torn: the member stops loudly, the
//! others go on, after repair it is back, and nothing acknowledged is lost.

use std::time::Duration;

use meerkat_chaos::driver::power_loss::Loss;
use meerkat_chaos::scenario::disks::{self, Repair};
use meerkat_chaos::scenario::run_test;

use crate::seed;

#[test]
fn a_member_whose_disk_fills_up_stops_loudly_and_is_back_when_there_is_room() {
    run_test("full disk", Duration::from_secs(90), disks::full());
}

#[test]
fn a_member_whose_sync_fails_stops_loudly_and_is_back_on_a_disk_that_works() {
    run_test("failing sync", Duration::from_secs(90), disks::failing_sync());
}

#[test]
fn members_whose_writes_are_torn_by_a_loss_of_power_lose_nothing_acknowledged() {
    let lost = run_test("torn writes", Duration::from_secs(180), disks::power_cuts(Loss::Torn, 2, seed(1)));
    assert!(lost.is_none_or(|lost| 0 < lost.bytes), "nothing was torn: {lost:?}");
}

#[test]
fn members_that_forget_all_they_had_not_synced_lose_nothing_acknowledged() {
    let lost = run_test("lost writes", Duration::from_secs(180), disks::power_cuts(Loss::All, 2, seed(1)));
    assert!(lost.is_none_or(|lost| 0 < lost.bytes), "nothing was lost: {lost:?}");
}

/// The proof that the two above can fail.
#[test]
fn disks_that_lie_about_syncs_are_found_out() {
    let found = run_test("lying disks", Duration::from_secs(180), disks::power_cut_on_lying_disks(seed(1)));
    if let Some(why) = found {
        println!("  found: {}", why.lines().take(3).collect::<Vec<_>>().join(" "));
        assert!(why.contains("and is gone"), "{why}");
    }
}

#[test]
fn a_log_damaged_where_it_was_synced_is_refused_and_a_restored_one_is_not() {
    run_test("damaged log", Duration::from_secs(90), disks::damaged_middle(Repair::Restore, seed(1)));
}

#[test]
fn a_member_whose_log_is_damaged_is_replaced_and_nothing_is_lost() {
    run_test("damaged member", Duration::from_secs(90), disks::damaged_middle(Repair::Replace, seed(1)));
}
