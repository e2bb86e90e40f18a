//! The wait for those who had no room, on one timer for all of them.
//!
//! No lock is held, and no other revision is dispatched meanwhile. Who has no room when the time is over
//! is parked.

use super::hub::Blocked;
use super::seat::Wakers;
use super::shared::Shared;
use crate::cacher::time_budget::TimeBudget;
use std::time::Duration;
use tokio::time::Instant;

/// The longest of one wait, whatever is in the budget: all the others wait as long, and whoever needs more
/// is better off parked, which costs nobody anything.
const WAIT_MAX: Duration = Duration::from_millis(5);

pub(super) async fn wait(shared: &Shared, mut blocked: Vec<Blocked>, budget: &mut TimeBudget) {
    let taken = Duration::from_micros(budget.take(shared.now_ms()));
    let begun = Instant::now();
    let end = begun + taken.min(WAIT_MAX);
    loop {
        let mut wakers = Wakers::default();
        blocked.retain_mut(|each| !each.seat.retry(&mut each.lines, &mut wakers));
        wakers.wake();
        if blocked.is_empty() {
            break;
        }
        if tokio::time::timeout_at(end, shared.room.notified()).await.is_err() {
            shared.locked(|hub, wakers| hub.park(blocked, shared.now_ms(), wakers));
            break;
        }
    }
    let unused = taken.saturating_sub(begun.elapsed());
    budget.hand_back(u64::try_from(unused.as_micros()).unwrap_or(u64::MAX));
}
