//! Controls: runs on etcd that show that the harness itself is sound.
//!
//! A member of etcd 3.5.0 to 3.5.2 that is killed under load may come back without what it acknowledged
//! (etcd-io/etcd#13766), and the version to compare with is 3.5.1. That is etcd's, and does not happen
//! with every seed; a harness that is not sound fails with each of them.

use crate::Failure;

/// How many seeds are tried.
pub const SEEDS: u64 = 4;

/// Runs a control with one seed after the other, until it passes. What the last one found is told if none
/// does; a run that proved nothing ends it at once.
pub async fn with_some_seed<T>(
    name: &str,
    first: u64,
    run: impl AsyncFn(u64) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let last = first + SEEDS - 1;
    for seed in first..last {
        match run(seed).await {
            Err(Failure::Broken(what) | Failure::Slow(what)) => println!("{name}: seed {seed}: {what}"),
            ended => return ended,
        }
    }
    run(last).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The seeds that were tried of a control which fails so with the first few, and how it ended.
    async fn tried(failing: u64, failure: impl Fn() -> Failure + Copy) -> (Vec<u64>, Result<u64, Failure>) {
        let seeds = RefCell::new(Vec::new());
        let run = async |seed| {
            seeds.borrow_mut().push(seed);
            if seed < 7 + failing { Err(failure()) } else { Ok(seed) }
        };
        let ended = with_some_seed("a test", 7, run).await;
        (seeds.take(), ended)
    }

    #[tokio::test]
    async fn one_seed_that_passes_is_enough_and_none_that_does_is_a_failure() {
        let lost = || Failure::broken("lost");
        assert!(matches!(tried(0, lost).await, (seeds, Ok(7)) if seeds == [7]));
        assert!(matches!(tried(2, lost).await, (seeds, Ok(9)) if seeds == [7, 8, 9]));
        assert!(matches!(tried(9, lost).await, (seeds, Err(Failure::Broken(_))) if seeds == [7, 8, 9, 10]));
    }

    #[tokio::test]
    async fn a_run_that_proved_nothing_is_not_tried_again() {
        let ended = tried(1, || Failure::harness("no room")).await;
        assert!(matches!(ended, (seeds, Err(Failure::Harness(_))) if seeds == [7]));
    }
}
