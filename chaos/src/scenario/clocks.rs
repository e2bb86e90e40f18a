//! Wall clocks that jump, by seconds and by years, on every member again and again: nothing comes of it.
//!
//! Nobody is elected, no write is refused, a lease that is renewed lives, and one that is not ends
//! when its time has passed by a clock that did not jump.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest, RangeRequest};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::driver::interpose::{Control, Knob};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::{Endpoint, keep_alive::Next};
use crate::nemesis::clock_jump;
use crate::outcome::describe;
use crate::{Failure, Patience};

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const JUMPS_EVERY: Duration = Duration::from_millis(250);
/// The least that this election time-out allows.
const TTL_SECONDS: i64 = 6;
const TTL: Duration = Duration::from_secs(6);
/// A jump of the clock is by far more, or by less than anybody would notice.
const LATE_MAX: Duration = Duration::from_secs(4);

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often a clock jumped.
    pub jumps: usize,
    /// Writes, all of them acknowledged.
    pub writes: usize,
    /// Leases that ran out in time.
    pub ended: usize,
}

/// Runs it for so many leases after one another.
pub async fn run(leases: usize, seed: u64) -> Result<Report, Failure> {
    println!("  seed {seed}");
    // Patient, so that an election would be the clocks' doing and not a busy machine's.
    let spec = ClusterSpec::new(Product::Meerkat, MEMBERS)
        .with_flags(&["--heartbeat-interval=100", "--election-timeout=4000"]);
    let mut cluster = Cluster::prepare(&spec)?;
    let mut controls = Vec::new();
    for member in 0..MEMBERS {
        let control = Control::new(cluster.members()[member].data_dir())?;
        let env = control.env();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
        cluster.member(member).start_with(&env)?;
        controls.push(control);
    }
    cluster.wait_until_ready(READY_WITHIN).await?;
    let before = term(&cluster).await?;
    let mut report = Report::default();
    let kept = grant(&cluster.endpoints()[0]).await?;
    for lease in 0..leases {
        let endpoint = &cluster.endpoints()[lease % MEMBERS];
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(lease as u64));
        outlive(endpoint, kept, &controls, &mut dice, &mut report).await?;
    }
    let after = term(&cluster).await?;
    if before != after {
        return Err(Failure::broken(format!("clocks jumped, and the term went from {before} to {after}")));
    }
    cluster.finish()?;
    Ok(report)
}

/// Lets a lease run out, and renews another, while clocks jump.
async fn outlive(
    endpoint: &Endpoint,
    kept: i64,
    controls: &[Control],
    dice: &mut StdRng,
    report: &mut Report,
) -> Result<(), Failure> {
    let asked = Instant::now();
    let lease = grant(endpoint).await?;
    let patience = Patience::of("a lease ends", TTL + LATE_MAX);
    put(endpoint, "clocks/left", lease).await?;
    let mut renewals = endpoint.keep_alive();
    let mut jump_at = Instant::now();
    let mut gone_since = None;
    while gone_since.is_none() {
        if jump_at <= Instant::now() {
            for control in controls {
                control.set(Knob::WallOffsetNanos, clock_jump::draw(dice) * 1_000_000_000)?;
                report.jumps += 1;
            }
            jump_at += JUMPS_EVERY;
            renewals.send(kept).await;
            let answer = Patience::of("a lease is renewed", ANSWER_WITHIN);
            match renewals.next(answer.left()).await {
                Next::Answer(renewed) if renewed.ttl == TTL_SECONDS => drop(answer.came()?),
                Next::Nothing => return Err(answer.never("nothing")),
                other => return Err(Failure::broken(format!("a lease in time is not renewed: {other:?}"))),
            }
        }
        put(endpoint, "clocks/free", 0).await?;
        report.writes += 1;
        let asking = Instant::now();
        if !exists(endpoint, "clocks/left").await? {
            if asking < asked + TTL {
                return Err(Failure::broken(format!("a lease of {TTL:?} ended after {:?}", asked.elapsed())));
            }
            gone_since = Some(asking);
        }
        patience.lasts("its key is there")?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    report.ended += 1;
    patience.came().map(drop)
}

async fn grant(endpoint: &Endpoint) -> Result<i64, Failure> {
    let request = LeaseGrantRequest { ttl: TTL_SECONDS, ..Default::default() };
    let granted = endpoint.lease_grant(request, ANSWER_WITHIN).await;
    granted.map(|lease| lease.id).map_err(Failure::from)
}

async fn put(endpoint: &Endpoint, key: &'static str, lease: i64) -> Result<(), Failure> {
    let request = PutRequest { key: Bytes::from_static(key.as_bytes()), lease, ..Default::default() };
    let put = endpoint.put(request, ANSWER_WITHIN).await;
    put.map(drop)
        .map_err(|status| Failure::broken(format!("a write while clocks jump: {}", describe(&status))))
}

async fn exists(endpoint: &Endpoint, key: &'static str) -> Result<bool, Failure> {
    let request =
        RangeRequest { key: Bytes::from_static(key.as_bytes()), count_only: true, ..Default::default() };
    let answer = endpoint.range(request, ANSWER_WITHIN).await;
    answer.map(|answer| answer.count == 1).map_err(Failure::from)
}

async fn term(cluster: &Cluster) -> Result<u64, Failure> {
    let status = cluster.members()[0].endpoint().status(ANSWER_WITHIN).await;
    status.map(|status| status.raft_term).map_err(Failure::from)
}
