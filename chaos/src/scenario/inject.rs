//! Breaks members of a compose project, one at a time, until it is told to stop, or its number or its
//! time is full: what `docker compose --profile chaos up` adds.
//!
//! After each fault it asks, as a client would, how long the others took to serve and how long until
//! all did; a cluster that does not come back is a broken promise. Leaves every member as it found it,
//! also when it is stopped in the middle.

use std::fmt;
use std::time::{Duration, Instant};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::signal::unix::{SignalKind, signal};

use crate::driver::compose::ComposeGround;
use crate::ground::Ground;
use crate::run::arguments::{seconds, some_seed};
use crate::{Failure, Patience};

/// At first, members may have been asleep for hours, or be starting.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Two members of three are a majority, and elect within seconds.
const OTHERS_WITHIN: Duration = Duration::from_secs(30);
const ASK_WITHIN: Duration = Duration::from_millis(700);
const ASK_PAUSE: Duration = Duration::from_millis(50);

/// What can be done to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Stop,
    /// Frozen.
    Pause,
    /// Taken off the network between members.
    Partition,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", PossibleValue::get_name))
    }
}

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Compose project whose members are struck, if not that of this container
    #[arg(long)]
    pub project: Option<String>,
    /// Faults
    #[arg(long, default_value_t = 20)]
    pub faults: usize,
    /// The end, however many there were.
    #[arg(skip)]
    pub lasting: Duration,
    /// Rest before each
    #[arg(long = "rest-seconds", value_parser = seconds, default_value = "20")]
    pub rest: Duration,
    /// Kinds of faults
    #[arg(long, value_parser = kind, value_delimiter = ',', default_value = "kill,stop,pause,partition")]
    pub kinds: Vec<Kind>,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

/// By its name, with blanks around it.
fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_str(text.trim(), false)
}

/// One fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    kind: Kind,
    victim: usize,
    lasting: Duration,
}

/// Runs it to its end, or until a signal; returns how many faults there were.
pub async fn run(plan: &Plan) -> Result<usize, Failure> {
    // The first process of a container dies of a signal only if it asked for it.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut ground = ComposeGround::find(plan.project.as_deref()).await?;
    println!("inject: seed {}, project {}, {} members", plan.seed, ground.project(), ground.members());
    let mut done = 0;
    let ended = tokio::select! {
        ended = strike_all(&mut ground, plan, &mut done) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = tokio::time::sleep(plan.lasting) => Ok(()),
    };
    ground.restore().await?;
    println!("inject: {done} faults; every member is as it was");
    ended.map(|()| done)
}

async fn strike_all(ground: &mut ComposeGround, plan: &Plan, done: &mut usize) -> Result<(), Failure> {
    let mut dice = StdRng::seed_from_u64(plan.seed);
    ground.restore().await?;
    ground.wait_until_ready(READY_WITHIN).await?;
    while *done < plan.faults {
        tokio::time::sleep(plan.rest).await;
        let leader = ground.leader().await;
        let fault = draw(&mut dice, &plan.kinds, ground.members(), leader);
        let led = if leader == Some(fault.victim) { " (leader)" } else { "" };
        let name = ground.name(fault.victim);
        let began = Instant::now();
        strike(ground, fault).await?;
        let served = others_serve(ground, fault.victim).await?;
        tokio::time::sleep(fault.lasting.saturating_sub(began.elapsed())).await;
        ground.restore().await?;
        let back = ground.wait_until_ready(READY_WITHIN).await?;
        *done += 1;
        println!(
            "inject: {done}: {} of {name}{led} for {:.1} s: the others served after {:.2} s, all of them {:.2} s after its end",
            fault.kind,
            fault.lasting.as_secs_f64(),
            served.as_secs_f64(),
            back.as_secs_f64()
        );
    }
    Ok(())
}

/// Leaders are what hurts: about half the blows meet one. Always draws as often, so that a seed means
/// the same whoever leads.
fn draw(dice: &mut StdRng, kinds: &[Kind], members: usize, leader: Option<usize>) -> Fault {
    let kind = kinds[dice.random_range(0..kinds.len())];
    let any = dice.random_range(0..members);
    let aimed = dice.random_bool(0.4);
    let lasting = Duration::from_millis(dice.random_range(2_000..8_000));
    Fault { kind, victim: leader.filter(|_| aimed).unwrap_or(any), lasting }
}

async fn strike(ground: &mut ComposeGround, fault: Fault) -> Result<(), Failure> {
    match fault.kind {
        Kind::Kill => ground.kill(fault.victim).await,
        Kind::Stop => ground.terminate(fault.victim).await,
        Kind::Pause => ground.pause(fault.victim).await,
        Kind::Partition => ground.isolate(fault.victim).await,
    }
}

/// How long until one of the others answers a linearizable read.
async fn others_serve(ground: &ComposeGround, victim: usize) -> Result<Duration, Failure> {
    let patience = Patience::of(format!("with {} gone, another serves", ground.name(victim)), OTHERS_WITHIN);
    let others: Vec<_> = (0..ground.members())
        .filter(|member| *member != victim)
        .map(|member| ground.endpoint(member))
        .collect();
    loop {
        for other in &others {
            if other.linearizable_probe(ASK_WITHIN).await.is_ok() {
                return patience.came();
            }
        }
        patience.pause(ASK_PAUSE, "nobody answers").await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_faults_and_meets_every_kind_and_member() {
        let kinds = Kind::value_variants();
        let draw_all = |seed| {
            let mut dice = StdRng::seed_from_u64(seed);
            (0..60).map(|_| draw(&mut dice, kinds, 3, Some(1))).collect::<Vec<_>>()
        };
        assert_eq!(draw_all(5), draw_all(5));
        for kind in kinds {
            assert!(draw_all(5).iter().any(|fault| fault.kind == *kind), "{kind}");
        }
        let led = draw_all(5).iter().filter(|fault| fault.victim == 1).count();
        assert!((20..55).contains(&led), "{led} of 60 met the leader");
        assert!((0..3).all(|member| draw_all(5).iter().any(|fault| fault.victim == member)));
    }
}
