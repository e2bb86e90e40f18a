//! Compaction every 100 ms, to a revision a random distance behind the present, until healed.
//!
//! Watchers that fall behind must be told so, reads of what is gone must be refused, and members
//! must agree on what is gone. Runs beside other faults; refusals are answers. If all are refused
//! though somebody leads, nothing was compacted, and the fault was none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use meerkat_proto::pb::etcdserver::CompactionRequest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::{Blow, Nemesis};
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::ground::{self, Done, Ground};

const EVERY: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How far behind the present it compacts at most.
const BEHIND_MAX: i64 = 2_000;
/// So many requests in a row are not refused by chance.
const ASKED_MIN: u64 = 20;

/// Where to compact to, if there is anything behind the present.
pub fn target(revision: i64, dice: &mut StdRng) -> Option<i64> {
    // Mostly close behind, where those who read and watch are.
    let behind = BEHIND_MAX >> dice.random_range(0..=10);
    let target = revision - dice.random_range(0..=behind);
    (0 < target).then_some(target)
}

/// Compacts in a task of its own.
#[derive(Debug, Default)]
pub struct Compaction {
    at_work: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
}

/// How often it was asked for while somebody led, and how often it was done.
#[derive(Debug, Default)]
struct Tally {
    asked: AtomicU64,
    done: AtomicU64,
}

impl Tally {
    fn check(&self) -> Result<(), Failure> {
        let (asked, done) = (self.asked.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
        if ASKED_MIN <= asked && done == 0 {
            return Err(Failure::harness(format!("asked to compact {asked} times, and nobody ever did")));
        }
        Ok(())
    }
}

impl Compaction {
    fn end(&mut self) {
        if let Some(task) = self.at_work.take() {
            task.abort();
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.end();
    }
}

impl Nemesis for Compaction {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let members = ground::enlisted(ground);
            let endpoints: Vec<Endpoint> = members.iter().map(|member| ground.endpoint(*member)).collect();
            self.end();
            self.at_work = Some(tokio::spawn(compact(
                endpoints,
                StdRng::seed_from_u64(dice.random()),
                self.tally.clone(),
            )));
            Ok(Blow::made(format!("compacted every {EVERY:?}"), vec![]))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, _ground: &'a mut dyn Ground) -> Done<'a> {
        self.end();
        let checked = self.tally.check();
        async { checked }.boxed()
    }
}

async fn compact(endpoints: Vec<Endpoint>, mut dice: StdRng, tally: Arc<Tally>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let endpoint = &endpoints[dice.random_range(0..endpoints.len())];
        let Ok(revision) = endpoint.linearizable_probe(ANSWER_WITHIN).await else { continue };
        if let Some(revision) = target(revision, &mut dice) {
            let request = CompactionRequest { revision, physical: dice.random_bool(0.1) };
            // Refused if it lies below the last one, or nobody leads: both are fine.
            let done = endpoint.compact(request, ANSWER_WITHIN).await.is_ok();
            tally.asked.fetch_add(1, Ordering::Relaxed);
            tally.done.fetch_add(u64::from(done), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_that_never_happens_is_no_fault() {
        let check = |asked: u64, done: u64| Tally { asked: asked.into(), done: done.into() }.check();
        assert!(check(0, 0).is_ok(), "nobody led");
        assert!(check(3, 0).is_ok() && check(200, 1).is_ok());
        assert!(matches!(check(200, 0), Err(Failure::Harness(_))));
    }

    #[test]
    fn a_target_is_behind_the_present_and_never_too_far() {
        for seed in 0..500 {
            let dice = &mut StdRng::seed_from_u64(seed);
            let far = target(10_000, dice).expect("there is something behind");
            assert!((10_000 - BEHIND_MAX..=10_000).contains(&far), "{far}");
            assert!(target(3, dice).is_none_or(|near| (1..=3).contains(&near)));
        }
    }
}
