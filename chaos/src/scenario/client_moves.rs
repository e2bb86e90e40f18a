//! Where watches go when their member is lost: away from one that is cut off, and not all to one.

use std::time::{Duration, Instant};

use meerkat_client::Client;
use meerkat_client::watch::{Watch, WatchStatus};

use crate::checker::watch_properties::{self, Demand};
use crate::driver::{Flow, Product};
use crate::failover::pace::Pace;
use crate::failover::resume::quantile;
use crate::failover::schedule::{Aim, Fault, Kind};
use crate::failover::stage::{MEMBERS, Stage};
use crate::failover::watcher::{Spec, Watcher};
use crate::watch::{Archive, WatchSpec};
use crate::{Failure, Patience};

const MOVES_WITHIN: Duration = Duration::from_secs(5);
const HEARD_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// How a watch left a member that was cut off.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// From this member.
    pub from: usize,
    /// To this one.
    pub to: usize,
    /// From the cut to the first event of a write sent after it.
    pub took: Duration,
}

/// Cuts the member that a watch hangs on off from the others, while its client still reaches it, and
/// never mends that before the watch has moved.
pub async fn leave_a_member_that_is_cut_off(product: Product) -> Result<Moved, Failure> {
    let mut stage = Stage::start(product, 1, 0).await?;
    let began = Instant::now();
    let pace = Pace::start(&stage.endpoints(), began, 1);
    let client = connect(stage.urls(0)).await?;
    let watch = WatchSpec { prev_kv: true, ..WatchSpec::of_all().from(2) };
    let watcher = Watcher::start(&client, 0, Spec::quick("the one", watch), began);
    hear(&watcher, pace.next(began, HEARD_WITHIN).await?, HEARD_WITHIN).await?;
    let from =
        watcher.hangs_on(&mut stage).ok_or_else(|| Failure::broken("a watch that hears hangs nowhere"))?;
    let fault =
        Fault { kind: Kind::PeerHole, aim: Aim::Any(from), lasts: Duration::ZERO, rest: Duration::ZERO };
    let cut = Instant::now();
    let strike = stage.strike(&fault, from).await?;
    // A leader that is cut off has to be replaced before anybody can write.
    let fresh = pace.next(began, HEARD_WITHIN).await?;
    let could_write = Instant::now();
    hear(&watcher, fresh, HEARD_WITHIN).await?;
    let late = could_write.elapsed();
    let took = cut.elapsed();
    let to =
        watcher.hangs_on(&mut stage).ok_or_else(|| Failure::broken("a watch that hears hangs nowhere"))?;
    println!("cut off: from m{from} to m{to} in {took:?}, {late:?} after writes went on");
    if to == from {
        return Err(Failure::broken(format!("the watch still hangs on m{from}, which is cut off")));
    }
    if MOVES_WITHIN < late {
        return Err(Failure::slow(format!("the watch moved {late:?} after writes went on")));
    }
    stage.heal(&strike).await?;
    let (writes, _) = pace.finish().await?;
    let history = Archive::new(began).close(&stage.endpoints(), &writes).await?;
    hear(&watcher, history.last_revision(), HEARD_WITHIN).await?;
    let record = watcher.finish().await?;
    let demand = Demand { complete: true, marks: product == Product::Meerkat };
    watch_properties::check_all(&[record.log], &history, demand)?;
    drop(client);
    stage.finish()?;
    Ok(Moved { from, to, took })
}

async fn connect(urls: Vec<String>) -> Result<Client, Failure> {
    Client::connect(urls).await.map_err(|error| Failure::broken(format!("cannot connect: {error}")))
}

async fn hear(watcher: &Watcher, revision: i64, within: Duration) -> Result<(), Failure> {
    let is_heard = || match watcher.last() {
        last if revision <= last => Ok(()),
        last => Err(format!("heard up to {last}")),
    };
    let patience = Patience::of(format!("the watch hears up to {revision}"), within);
    patience.until(POLL, is_heard).await.map(drop)
}

/// Where the clients of a killed member went.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Watches on each member afterwards.
    pub landed: [usize; MEMBERS],
    /// From the kill to being served again, for each.
    pub times: Vec<Duration>,
}

impl Spread {
    /// The most that were served again within any one span of time of this length.
    pub fn most_within(&self, span: Duration) -> usize {
        let mut times = self.times.clone();
        times.sort_unstable();
        let counts = times
            .iter()
            .enumerate()
            .map(|(first, from)| times[first..].iter().take_while(|at| **at < *from + span).count());
        counts.max().unwrap_or(0)
    }
}

/// Many clients with a watch each, all on one member, which is killed.
pub async fn spread(product: Product, clients: usize) -> Result<Spread, Failure> {
    let mut stage = Stage::start(product, 1, 0).await?;
    // Only one member can be reached, so all clients hang on it.
    let crowded = 0;
    (1..MEMBERS).for_each(|member| stage.set_clients(member, Flow::Cut));
    let mut crowd: Vec<(Client, Watch)> = Vec::with_capacity(clients);
    for _ in 0..clients {
        let client = connect(stage.urls(0)).await?;
        let watch = client.watch(meerkat_client::Keys::all()).start();
        crowd.push((client, watch));
    }
    for (_, watch) in &crowd {
        Patience::of("the only member there is serves a watch", HEARD_WITHIN).wait(watch.live()).await?;
    }
    (1..MEMBERS).for_each(|member| stage.set_clients(member, Flow::Open));
    // Every client looks again at a member it gave up within five seconds.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let fault =
        Fault { kind: Kind::Kill, aim: Aim::Any(crowded), lasts: Duration::ZERO, rest: Duration::ZERO };
    let killed = Instant::now();
    let strike = stage.strike(&fault, crowded).await?;
    let landings = crowd.iter().map(|(_, watch)| landing(watch, &stage, crowded, killed));
    let patience = Patience::of("every watch goes on after the kill", HEARD_WITHIN);
    let landings = patience.wait(futures::future::join_all(landings)).await?;
    let mut spread = Spread::default();
    for (member, took) in landings.into_iter().flatten() {
        spread.landed[member] += 1;
        spread.times.push(took);
    }
    let at = |per_mille| quantile(&spread.times, per_mille);
    println!(
        "spread: {clients} clients of m{crowded} landed as {:?}; served again after {:?} (first), {:?} (p50), {:?} (last)",
        spread.landed,
        at(0),
        at(500),
        at(1_000)
    );
    println!("spread: at most {} of them within any 10 ms", spread.most_within(Duration::from_millis(10)));
    stage.heal(&strike).await?;
    drop(crowd);
    stage.finish()?;
    Ok(spread)
}

/// Where and when a watch is served by another member than the one that was killed.
async fn landing(watch: &Watch, stage: &Stage, killed: usize, at: Instant) -> Option<(usize, Duration)> {
    let mut monitor = watch.monitor();
    let seat = |status: &WatchStatus| status.endpoint.as_deref().and_then(|url| stage.member_at(0, url));
    let moved = |status: &WatchStatus| seat(status).is_some_and(|member| member != killed);
    let status = monitor.wait_for(moved).await.ok()?.clone();
    Some((seat(&status)?, at.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_densest_span_of_time_is_found() {
        let times = [1, 2, 3, 50, 51, 52, 53, 100].map(Duration::from_millis).to_vec();
        let spread = Spread { times, ..Spread::default() };
        assert_eq!(spread.most_within(Duration::from_millis(10)), 4);
        assert_eq!(spread.most_within(Duration::from_millis(1)), 1);
        assert_eq!(Spread::default().most_within(Duration::from_millis(1)), 0);
    }
}
