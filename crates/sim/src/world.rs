//! One seed's world: time, the network, the members and their clients, run step by step on one thread.
//!
//! A step is a short stretch of time in which the network delivers, faults begin or end, and then each
//! machine runs by itself. What one sends in a step reaches another in a later one, so the order in
//! which machines are run within a step is not visible to them.

use crate::faults::Faults;
use crate::member::{self, Clockwork, Member};
use crate::net::Net;
use crate::setup::{MEMBERS, Setup};
use crate::{host, scenario};
use futures::FutureExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// Milliseconds of one step.
const STEP: u64 = 2;
/// No run needs longer, in milliseconds of its world.
const LONGEST: u64 = 120_000;

/// What became of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub seed: u64,
    /// Why it did not pass.
    pub failure: Option<String>,
    /// Of everything that clients did and were told.
    pub history: u64,
    /// Of everything that anybody was told, and when.
    pub trace: u64,
    pub messages: u64,
    pub millis: u64,
    pub operations: u64,
    pub events: u64,
    pub faults: BTreeMap<String, u64>,
}

/// Runs one seed in this process, which must run no other.
pub fn run(setup: &Setup, dir: &Path) -> Outcome {
    let seed = setup.seed;
    begin(seed);
    let net = Net::new(MEMBERS + 1, seed ^ 0x0e17);
    let mut faults = Faults::new(setup, StdRng::seed_from_u64(seed ^ 0xfa017));
    let mut outcome = Outcome { seed, ..Outcome::default() };
    match live(setup, dir, &net, &mut faults, LONGEST, &mut outcome.millis) {
        Ok(report) => {
            let mut hash = DefaultHasher::new();
            hash.write(report.record.as_bytes());
            outcome.history = hash.finish();
            outcome.operations = report.operations;
            outcome.events = report.events;
            outcome.failure = report.failure;
        }
        Err(why) => outcome.failure = Some(why),
    }
    (outcome.trace, outcome.messages) = net.trace();
    outcome.faults = faults.counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    outcome
}

/// Runs a cluster for a moment, so that what libraries prepare once is prepared before seeds fork off.
pub fn warm_up(dir: &Path) {
    const WARM_MILLIS: u64 = 60;
    let setup = Setup::of(0);
    begin(setup.seed);
    let net = Net::new(MEMBERS + 1, 0);
    let mut faults = Faults::new(&setup, StdRng::seed_from_u64(0));
    // It ends by running out of time, which is no failure of anybody's.
    let _ = live(&setup, dir, &net, &mut faults, WARM_MILLIS, &mut 0);
}

fn begin(seed: u64) {
    host::set_now(0);
    host::simulate(seed ^ 0x00c0_ffee);
    meerkat_engine::memory::choose(seed);
    meerkat_raft::threads::become_tasks();
}

fn live(
    setup: &Setup,
    dir: &Path,
    net: &Net,
    faults: &mut Faults,
    longest: u64,
    now: &mut u64,
) -> Result<scenario::Report, String> {
    let mut members: Vec<Member> = (1..=MEMBERS)
        .map(|machine| {
            let flags = member::flags(machine, MEMBERS, setup);
            Member::new(net, machine, dir.join(format!("m{machine}")), flags)
        })
        .collect();
    for member in &mut members {
        member.start(0)?;
    }
    let clients = Clockwork::new(0).map_err(|error| error.to_string())?;
    let began = clients.began();
    let mut scenario = clients.runtime.spawn(scenario::run(net.clone(), setup.clone()));
    while *now < longest {
        *now += STEP;
        host::set_now(*now);
        net.deliver(*now);
        faults.step(*now, net, &mut members)?;
        for member in &mut members {
            member.run_until(*now)?;
        }
        clients.run_until(began, *now);
        if let Some(ended) = (&mut scenario).now_or_never() {
            return ended.map_err(|error| format!("the clients panicked: {error}"));
        }
    }
    Err(format!("not over after {longest} ms of the world: the cluster does not come back"))
}
