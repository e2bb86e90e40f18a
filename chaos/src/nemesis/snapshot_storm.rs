//! Members that sleep until the others have purged what they lack, one after the other: each comes
//! back by snapshot while the load goes on.
//!
//! How much a log keeps is the cluster's affair: this is a storm only where its flags are those of
//! `scenario::snapshot::short_log_flags`. The writes that push the log on are its own, under keys
//! that no workload reads.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use meerkat_proto::pb::etcdserver::PutRequest;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::{Blow, Nemesis, sight};
use crate::endpoint::Endpoint;
use crate::ground::{self, Done, Ground};

/// More entries than a short log keeps.
const GAP: u64 = 4_000;
const CLIENTS: u64 = 64;
const KEYS: u64 = 50;
const VALUE_BYTES: usize = 256;
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long one member sleeps at most, though the log has not moved on so far.
const ASLEEP_MAX: Duration = Duration::from_secs(15);
const SERVES_WITHIN: Duration = Duration::from_secs(20);

/// Who sleeps, in turn.
pub fn sleepers(members: &[usize], dice: &mut StdRng) -> Vec<usize> {
    let mut order = members.to_vec();
    order.shuffle(dice);
    // Mostly one, now and then each of two.
    order.truncate(if dice.random_bool(0.3) { 2 } else { 1 });
    order
}

/// Puts members to sleep and wakes them behind a purged log.
#[derive(Debug, Default)]
pub struct SnapshotStorm {
    met: Vec<usize>,
}

impl Nemesis for SnapshotStorm {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let members = ground::enlisted(ground);
            self.met = sleepers(&members, dice);
            let mut told = Vec::new();
            for sleeper in &self.met {
                ground.kill(*sleeper).await?;
                let awake = members.iter().filter(|member| *member != sleeper);
                let awake: Vec<Endpoint> = awake.map(|member| ground.endpoint(*member)).collect();
                let missed = push_log(&awake, dice).await;
                sight::start(ground, &[*sleeper]).await?;
                let back = sight::comes_back(ground, *sleeper, SERVES_WITHIN).await?;
                let back = if back { "" } else { ", not back yet" };
                told.push(format!("{} slept through {missed} writes{back}", ground.name(*sleeper)));
            }
            Ok(Blow::made(told.join("; "), self.met.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move { sight::start(ground, &std::mem::take(&mut self.met)).await }.boxed()
    }
}

/// Writes until the log has grown by more than it keeps. Answers how many writes that took.
async fn push_log(endpoints: &[Endpoint], dice: &mut StdRng) -> u64 {
    let deadline = Instant::now() + ASLEEP_MAX;
    let clients = (0..CLIENTS).map(|_| {
        let mut dice = StdRng::seed_from_u64(dice.random());
        async move {
            let mut written = 0;
            while written < GAP.div_ceil(CLIENTS) && Instant::now() < deadline {
                let endpoint = &endpoints[dice.random_range(0..endpoints.len())];
                let key: Bytes = format!("storm/{}", dice.random_range(0..KEYS)).into();
                let request = PutRequest { key, value: vec![b's'; VALUE_BYTES].into(), ..Default::default() };
                match endpoint.put(request, ANSWER_WITHIN).await {
                    Ok(_) => written += 1,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            written
        }
    });
    join_all(clients).await.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sleeps_and_sometimes_two_and_never_the_same_twice() {
        let drawn: Vec<_> =
            (0..100).map(|seed| sleepers(&[0, 1, 2], &mut StdRng::seed_from_u64(seed))).collect();
        assert!(drawn.iter().any(|met| met.len() == 1) && drawn.iter().any(|met| met.len() == 2));
        assert!(drawn.iter().all(|met| met.len() == 1 || met[0] != met[1]));
    }
}
