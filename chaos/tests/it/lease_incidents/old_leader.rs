//! 12528 and 15247: a leader that had been stopped, or cut off, went on as if it still led: on
//! waking it revoked leases that their clients had been renewing elsewhere all the time.

use std::time::{Duration, Instant};

use meerkat_chaos::Failure;
use meerkat_chaos::checker::lease_bounds::{self, Bounds};
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::lease::{Holder, LeaderWatch, Witnesses, lateness, partition};
use meerkat_chaos::record::lease::{LeaseHistory, Span};
use meerkat_chaos::scenario::{run_test, settle};

use super::product;

const BUDGET: Duration = Duration::from_secs(150);
const READY_WITHIN: Duration = Duration::from_secs(20);
const TTL: i64 = 8;
/// Well past the TTL, counted from the last renewal that the old leader can know of.
const AWAY: Duration = Duration::from_secs(14);
/// After the old leader is back: long enough for it to revoke what it believes has run out.
const AFTERWARDS: Duration = Duration::from_secs(4);
/// For the leases to run out at the end, a change of leader counted in.
const RUN_OUT: Duration = Duration::from_secs(16);
const EVERY: Duration = Duration::from_millis(800);
/// Many, so that a leader which wakes has much to revoke before it learns that it leads no more.
const LEASES: i64 = 200;
/// Fewer where all that members say to one another goes through this program.
const LEASES_THROUGH_DOORS: i64 = 20;
/// The lease that is renewed through the old leader only.
const FAITHFUL: i64 = 1_000;
const CHECKPOINT: Duration = Duration::from_secs(1);
/// As many intervals in a row may not reach the log.
const UNRECORDED: Duration = Duration::from_secs(4);

/// A cluster, and all that looks on.
struct Scene {
    cluster: Cluster,
    partition: Option<partition::Partition>,
    began: Instant,
    leaders: LeaderWatch,
    witnesses: Witnesses,
}

impl Scene {
    async fn start(cuts: bool) -> Result<Self, Failure> {
        let checkpoint = format!("--meerkat-lease-checkpoint-interval-ms={}", CHECKPOINT.as_millis());
        let flags: &[&str] = if product() == Product::Meerkat { &[&checkpoint] } else { &[] };
        let spec = ClusterSpec::new(product(), 3).with_quick_elections().with_flags(flags);
        let (cluster, partition) = if cuts {
            let (cluster, partition) = partition::start(&spec).await?;
            (cluster, Some(partition))
        } else {
            (Cluster::start(&spec).await?, None)
        };
        let began = Instant::now();
        let endpoints = cluster.endpoints();
        let leaders = LeaderWatch::start(&endpoints, began);
        let witnesses = Witnesses::start(&endpoints, began)?;
        Ok(Self { cluster, partition, began, leaders, witnesses })
    }

    /// The leader, and the endpoints of the others.
    async fn leader(&self) -> Result<(usize, Vec<Endpoint>), Failure> {
        let leader = self.cluster.leader(READY_WITHIN).await?;
        let endpoints = self.cluster.endpoints().into_iter().enumerate();
        Ok((leader, endpoints.filter(|(index, _)| *index != leader).map(|(_, one)| one).collect()))
    }

    /// Takes the leader away, by stopping it or by cutting it off.
    fn take_away(&mut self, leader: usize) -> Result<(), Failure> {
        match &self.partition {
            Some(partition) => partition.cut_off(leader),
            None => self.cluster.member(leader).pause()?,
        }
        Ok(())
    }

    fn bring_back(&mut self, leader: usize) -> Result<(), Failure> {
        match &self.partition {
            Some(partition) => partition.heal(),
            None => self.cluster.member(leader).resume()?,
        }
        Ok(())
    }

    /// Lets all leases run out, and judges their whole lives.
    async fn judge(self, holders: Vec<Holder>, away: Span) -> Result<(), Failure> {
        tokio::time::sleep(RUN_OUT).await;
        let mut history = LeaseHistory { members: 3, pauses: vec![away], ..LeaseHistory::default() };
        history.leases = holders.into_iter().map(Holder::finish).collect();
        history.ended = self.began.elapsed();
        history.stalls = self.witnesses.finish(&mut history.leases).await?;
        let reign = self.leaders.finish().await?;
        (history.leader_changes, history.outages) = (reign.changes, reign.outages);
        let bounds = Bounds {
            lateness: lateness(),
            checkpoint: (product() == Product::Meerkat).then_some(UNRECORDED),
            election: Duration::from_millis(500),
            straggle: Duration::from_millis(500),
        };
        println!("{:?}, changes {:?}", lease_bounds::margins(&history, &bounds), history.leader_changes);
        if history.leader_changes.is_empty() {
            return Err(Failure::harness("nobody else came to lead"));
        }
        Failure::from_findings("leases end in their time", lease_bounds::check(&history, &bounds))?;
        settle::agree(&self.cluster, product()).await?;
        self.cluster.finish()
    }
}

/// Some leases are renewed through the other members all the time; nobody may end them.
async fn take_the_leader_away(cuts: bool) -> Result<(), Failure> {
    let mut scene = Scene::start(cuts).await?;
    let (leader, others) = scene.leader().await?;
    let old = scene.cluster.endpoints()[leader].clone();
    let count = if cuts { LEASES_THROUGH_DOORS } else { LEASES };
    let granting = (1..=count).map(|id| Holder::grant(&old, id, TTL, 1, scene.began));
    let live = futures::future::try_join_all(granting).await?;
    // Renewed through the old leader, and through nobody else while that is away.
    let faithful = vec![Holder::grant(&old, FAITHFUL, TTL, 2, scene.began).await?];

    let until = Instant::now() + Duration::from_secs(2) + AWAY + AFTERWARDS;
    let renewing = renew_all(live, others, until);
    let faithful_until = Instant::now() + Duration::from_secs(2) + AWAY;
    let through_the_old = renew_all(faithful, vec![old], faithful_until);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let from = scene.began.elapsed();
    scene.take_away(leader)?;
    tokio::time::sleep(AWAY).await;
    let back = scene.began.elapsed();
    scene.bring_back(leader)?;
    let live = renewing.await.map_err(|error| Failure::harness(error.to_string()))?;
    let faithful = through_the_old.await.map_err(|error| Failure::harness(error.to_string()))?;
    scene.cluster.wait_until_ready(READY_WITHIN).await?;

    if live.iter().any(Holder::was_told_gone) {
        return Err(Failure::broken("a lease ended although it was renewed all the time"));
    }
    if live.iter().any(|holder| holder.renewed_after(back) == 0) {
        return Err(Failure::broken("no renewal was answered after the old leader was back"));
    }
    // A little later, so that one already on its way is not held against the old leader.
    let promised = faithful.iter().map(|holder| {
        let late = from + Duration::from_secs(2);
        holder.renewed_after(late).saturating_sub(holder.renewed_after(back))
    });
    let promised: usize = promised.sum();
    println!("renewed through the old leader while it was away: {promised} times");
    if 0 < promised {
        return Err(Failure::broken(format!("the old leader renewed a lease {promised} times while away")));
    }
    let holders = live.into_iter().chain(faithful).collect();
    scene.judge(holders, Span { from, until: back }).await
}

fn renew_all(
    mut holders: Vec<Holder>,
    endpoints: Vec<Endpoint>,
    until: Instant,
) -> tokio::task::JoinHandle<Vec<Holder>> {
    tokio::spawn(async move {
        let renewing = holders.iter_mut().map(|holder| holder.renew(&endpoints, EVERY, until));
        futures::future::join_all(renewing).await;
        holders
    })
}

/// 12528: the leader was stopped for longer than the TTL.
#[test]
fn a_leader_that_slept_past_the_ttl_revokes_nothing_that_was_renewed_elsewhere() {
    run_test("a leader that slept", BUDGET, async { Box::pin(take_the_leader_away(false)).await });
}

/// 15247: the leader ran on, without a majority, and its clock with it.
#[test]
fn a_leader_cut_off_from_the_majority_revokes_nothing_and_promises_nothing() {
    run_test("a leader cut off", BUDGET, async { Box::pin(take_the_leader_away(true)).await });
}
