//! What the library says became of a write, held against the store, while leaders fail.
//!
//! "Done" must be in the history exactly once, at the revision that was told. "Refused", "not done"
//! and a guard that did not hold must be nowhere. "Unknown" may be either, but never twice. A key
//! that is created only if absent is created once, however often the library repeated the request.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use meerkat_client::Client;

use crate::checker::watch_history::WatchHistory;
use crate::driver::Product;
use crate::failover::fate::{CREATED, Call, Shape, Told, Writing};
use crate::failover::schedule::{self, Aim, Kind};
use crate::failover::stage::{READY_WITHIN, Stage};
use crate::run::arguments::some_seed;
use crate::watch::{Archive, ValuePrint};
use crate::{Failure, Patience};

use super::settle;

/// Clients that reach members through doors, and as many that dial them directly.
const LINES: usize = 4;

/// At least.
const MAJORITY_LOST_FOR: Duration = Duration::from_secs(2);

/// What can befall a leader here.
const KINDS: [Kind; 6] =
    [Kind::Kill, Kind::Freeze, Kind::ClientHole, Kind::PeerHole, Kind::Term, Kind::MajorityLoss];

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Faults, all of them to the leader
    #[arg(long, default_value_t = 300)]
    pub faults: usize,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

/// How often something was said of a kind of write, and how often it had happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls.
    pub calls: usize,
    /// Of these, in the store.
    pub happened: usize,
    /// Of the calls, those whose time had run out.
    pub out_of_time: usize,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Faults.
    pub faults: usize,
    /// By kind of write and by what was said.
    pub counts: BTreeMap<(Shape, Told), Count>,
}

impl Report {
    /// All calls of which this was said.
    pub fn told(&self, told: Told) -> Count {
        let mut sum = Count::default();
        for (_, count) in self.counts.iter().filter(|((_, said), _)| *said == told) {
            sum.calls += count.calls;
            sum.happened += count.happened;
            sum.out_of_time += count.out_of_time;
        }
        sum
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} faults to the leader; what was said of each write, and what the store says:",
            self.faults
        )?;
        write!(f, "{:<10} {:<12} {:>8} {:>9} {:>12}", "write", "said", "calls", "happened", "out of time")?;
        for ((shape, told), count) in &self.counts {
            let (shape, told) = (format!("{shape:?}"), format!("{told:?}"));
            write!(
                f,
                "\n{shape:<10} {told:<12} {:>8} {:>9} {:>12}",
                count.calls, count.happened, count.out_of_time
            )?;
        }
        Ok(())
    }
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "client-fate: {:?}; again with: meerkat-chaos client-fate --faults {} --seed {}",
        plan.product, plan.faults, plan.seed
    );
    let mut stage = Stage::start(plan.product, LINES, LINES).await?;
    let began = Instant::now();
    let mut clients = Vec::new();
    for line in 0..2 * LINES {
        let client = Client::connect(stage.urls(line)).await;
        clients.push(client.map_err(|error| Failure::broken(format!("cannot connect: {error}")))?);
    }
    let writing = Writing::start(&clients, plan.seed);
    for mut fault in schedule::schedule(plan.seed, plan.faults, &KINDS) {
        fault.aim = Aim::Leader;
        if fault.kind == Kind::MajorityLoss {
            // Long enough for the member that is left to know that it has no leader.
            fault.lasts += MAJORITY_LOST_FOR;
        }
        tokio::time::sleep(fault.rest).await;
        let victim = stage.victim(fault.aim, None).await?;
        let strike = stage.strike(&fault, victim).await?;
        tokio::time::sleep(fault.lasts).await;
        stage.heal(&strike).await?;
        more(&writing, 20).await.map_err(|failure| failure.during(&format!("after {fault:?}")))?;
    }
    let calls = writing.finish().await?;
    let writes: Vec<_> = calls.iter().map(|call| call.wrote.clone()).collect();
    let history = Archive::new(began).close(&stage.endpoints(), &writes).await?;
    let agreed = settle::agree(stage.cluster(), plan.product).await;
    let report = Report { faults: plan.faults, counts: counts(&calls, &history) };
    println!("client-fate: {report}");
    Failure::from_findings("what must happen once at most does", twice(&calls, &history))?;
    agreed?;
    stage.finish()?;
    Ok(report)
}

/// Progress between blows, or the run would test a cluster that never serves.
async fn more(writing: &Writing, more: u64) -> Result<(), Failure> {
    let wanted = writing.done() + more;
    let are_done = || match writing.done() {
        all if wanted <= all => Ok(()),
        some => Err(format!("{some} of {wanted}")),
    };
    let patience = Patience::of(format!("the library gets {more} more writes through"), READY_WITHIN);
    patience.until(Duration::from_millis(10), are_done).await.map(drop)
}

/// How often each value was put.
fn puts(history: &WatchHistory) -> HashMap<(&Bytes, ValuePrint), usize> {
    let mut puts = HashMap::new();
    for event in history.events() {
        *puts.entry((&event.key, event.now.value)).or_default() += 1;
    }
    puts
}

fn counts(calls: &[Call], history: &WatchHistory) -> BTreeMap<(Shape, Told), Count> {
    let puts = puts(history);
    let mut counts: BTreeMap<(Shape, Told), Count> = BTreeMap::new();
    for call in calls {
        let mut values = call.wrote.effects.iter().filter_map(|effect| Some((&effect.key, effect.put?)));
        let count = counts.entry((call.shape, call.told)).or_default();
        count.calls += 1;
        count.happened += usize::from(values.any(|value| puts.contains_key(&value)));
        count.out_of_time += usize::from(call.kind == Some(meerkat_client::ErrorKind::Deadline));
    }
    counts
}

/// Keys that were created more than once, and guards that were said to be broken by nobody.
fn twice(calls: &[Call], history: &WatchHistory) -> Vec<String> {
    let mut created: HashMap<&Bytes, usize> = HashMap::new();
    for event in history.events().iter().filter(|event| event.key.starts_with(CREATED.as_bytes())) {
        *created.entry(&event.key).or_default() += 1;
    }
    let mut findings: Vec<String> = created
        .iter()
        .filter(|(_, count)| 1 < **count)
        .map(|(key, count)| format!("{key:?} was created {count} times"))
        .collect();
    let broken = calls.iter().filter(|call| call.told == Told::GuardBroken && call.shape != Shape::Swap);
    for effect in broken.flat_map(|call| &call.wrote.effects) {
        if !created.contains_key(&effect.key) {
            findings.push(format!("{:?} was said to be there, but never was", effect.key));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::watch_history::{Effect, Wrote};
    use crate::outcome::Outcome;
    use crate::watch::{Kind, Seen, Stored};

    fn put(key: &str, revision: i64, version: i64, value: &str) -> Seen {
        let value = ValuePrint::of(value.as_bytes());
        let now = Stored { create_revision: 2, mod_revision: revision, version, lease: 0, value };
        Seen { kind: Kind::Put, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
    }

    fn call(key: &str, value: &str, told: Told) -> Call {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let effects = vec![Effect { key, put: Some(ValuePrint::of(value.as_bytes())) }];
        let wrote = Wrote { effects, outcome: Outcome::Unknown(String::new()) };
        Call { shape: Shape::Race, told, kind: None, wrote }
    }

    #[test]
    fn a_key_created_twice_and_a_guard_broken_by_nobody_are_found() {
        let (once, _) = WatchHistory::replay(vec![put("created/a", 2, 1, "x")]);
        let missed = [call("created/a", "y", Told::GuardBroken)];
        assert_eq!(twice(&missed, &once), Vec::<String>::new());
        assert_eq!(twice(&[call("created/b", "y", Told::GuardBroken)], &once).len(), 1);
        let (again, _) = WatchHistory::replay(vec![put("created/a", 2, 1, "x"), put("created/a", 3, 2, "y")]);
        assert_eq!(twice(&[], &again).len(), 1);
    }

    #[test]
    fn calls_are_counted_by_what_was_said_and_what_happened() {
        let (history, _) = WatchHistory::replay(vec![put("created/a", 2, 1, "x")]);
        let calls = [call("created/a", "x", Told::Unknown), call("created/a", "y", Told::Unknown)];
        let report = Report { faults: 1, counts: counts(&calls, &history) };
        assert_eq!(report.told(Told::Unknown), Count { calls: 2, happened: 1, out_of_time: 0 });
        assert_eq!(report.told(Told::Done), Count::default());
    }
}
