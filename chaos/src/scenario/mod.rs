//! Whole runs, written once: the tests run them at suite size, the command at any size.
//!
//! A scenario starts its own cluster, tells its `account`, and fails by returning why: an account ends in
//! the story, the verdicts and the judgement of a composed run. `stage` is a cluster under the load that
//! most of them share. Each has a hard deadline, so that nothing hangs.

pub mod account;
pub mod big_store;
pub mod client_failover;
pub mod client_fate;
pub mod client_moves;
pub mod clocks;
pub mod control;
pub mod crash;
pub mod disks;
pub mod failover_time;
pub mod fault_points;
pub mod growth;
pub mod inject;
pub mod lease_precision;
pub mod listwatch_failover;
pub mod listwatch_index;
pub mod listwatch_many;
pub mod listwatch_trouble;
pub mod membership;
pub mod partition;
pub mod pause;
pub mod settle;
pub mod snapshot;
pub mod stage;
pub mod watch_crash;
pub mod watch_many;
pub mod watch_stalled;

use std::time::{Duration, Instant};

use crate::patience::LONGER;
use crate::{Failure, binary};

/// Runs a scenario under a hard deadline and prints how long it took.
pub async fn timed<T>(
    name: &str,
    budget: Duration,
    scenario: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let began = Instant::now();
    // What waits beyond the budget still says itself what never came, and what else was found.
    let result = match tokio::time::timeout(budget + 2 * LONGER, scenario).await {
        Ok(Ok(_)) if budget < began.elapsed() => {
            Err(Failure::slow(format!("{name} took longer than its budget of {budget:?}")))
        }
        Ok(result) => result,
        Err(_) => Err(Failure::harness(format!("{name} has not ended long after its budget of {budget:?}"))),
    };
    println!("{name}: {:.1} s of {} s", began.elapsed().as_secs_f64(), budget.as_secs());
    result
}

/// Runs a scenario to its end on a runtime of its own, for tests. Panics with the reason when it
/// fails; prints a line when a program is missing, which in CI is a failure too.
pub fn run_test<T>(
    name: &str,
    budget: Duration,
    scenario: impl Future<Output = Result<T, Failure>>,
) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    match runtime.block_on(timed(name, budget, scenario)) {
        Ok(value) => Some(value),
        Err(Failure::Missing(what)) if !binary::skips_are_failures() => {
            println!("SKIPPED {name}: {what}");
            None
        }
        Err(failure) => panic!("{name}: {failure}"),
    }
}
