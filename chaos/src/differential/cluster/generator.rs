//! Draws the next step from what there is.
//!
//! All steps that make sense in the present world are listed, changes apart from mere questions; then
//! the dice choose, mostly among those of a kind that came up least. Left out is what etcd 3.5.1
//! cannot survive or never answers, and what would leave either cluster without a majority.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::coverage;
use super::learner::Errand;
use super::step::{Ask, Step, Target, Urls};
use super::world::{Health, Role, World};
use crate::differential::coverage::Coverage;

/// How often the rarest kind is preferred, in a hundred.
const HUNGER: u32 = 85;
/// A rest is of no kind. Too rare, and nothing else would be done; too common, and nothing at all.
const RARITY_OF_REST: u64 = 2;
/// Members that run at once.
const RUNNING_MAX: usize = 4;

/// Words that are no peer URLs. Each list is one request.
const BAD_URLS: &[&[&str]] = &[
    &[],
    &[""],
    &["127.0.0.1:2380"],
    &["http://127.0.0.1"],
    &["ftp://127.0.0.1:2380"],
    &["http://127.0.0.1:2380/path"],
    &["http://127.7.0.9:99", "rubbish"],
    &["://"],
];

/// The dice.
#[derive(Debug)]
pub struct Generator {
    dice: StdRng,
}

impl Generator {
    /// One whose choices follow from the seed.
    pub fn new(seed: u64) -> Self {
        Self { dice: StdRng::seed_from_u64(seed) }
    }

    /// The next step.
    pub fn next(&mut self, world: &mut World, coverage: &Coverage) -> Step {
        let changes = changes(world);
        let questions = questions(world);
        let rarity = |step: &Step| coverage::rarity(coverage, step, world).unwrap_or(RARITY_OF_REST);
        // What this world is the first to allow is asked before it becomes another; first what it
        // allows for a moment only.
        let new: Vec<Step> = questions.iter().filter(|step| rarity(step) == 0).cloned().collect();
        let fleeting = |step: &&Step| {
            world.health == Health::Fresh
                && matches!(step, Step::Ask { ask: Ask::Add { urls: Urls::Plain(_), .. }, .. })
        };
        if let Some(fleeting) = new.iter().find(fleeting) {
            return fleeting.clone();
        }
        if !new.is_empty() && self.dice.random_ratio(HUNGER, 100) {
            return self.one_of(&new);
        }
        if !new.is_empty() || changes.is_empty() || self.dice.random_ratio(1, 4) {
            return self.one_of(&questions);
        }
        let hungry = self.dice.random_ratio(HUNGER, 100);
        let rarest = changes.iter().map(rarity).min().unwrap_or(0);
        let changes: Vec<Step> =
            changes.iter().filter(|step| !hungry || rarity(step) == rarest).cloned().collect();
        self.one_of(&changes)
    }

    fn one_of(&mut self, steps: &[Step]) -> Step {
        steps.choose(&mut self.dice).cloned().unwrap_or(Step::Rest)
    }
}

/// Steps after which the cluster is another one.
fn changes(world: &mut World) -> Vec<Step> {
    let mut steps: Vec<Step> = world.waiting().into_iter().map(Step::Start).collect();
    if !world.has_quorum_without(0) {
        return steps;
    }
    steps.extend(world.down().into_iter().map(Step::Restart));
    steps.extend(
        world.those(|mate| mate.role == Role::Removed && mate.started).into_iter().map(Step::StartRemoved),
    );
    let leader = world.leader;
    for follower in world.followers() {
        steps.push(ask(leader, Ask::MoveLeader(Target::Mate(follower))));
    }
    if let Some(learner) = world.learner() {
        let anyone = world.running_voters();
        if world.mates[learner].started && world.is_whole() && 1 < world.voters().len() {
            steps.extend(anyone.iter().map(|at| ask(*at, Ask::Promote(Target::Mate(learner)))));
        }
        steps.extend(anyone.iter().map(|at| ask(*at, Ask::Remove(Target::Mate(learner)))));
    }
    if world.health == Health::Healthy {
        steps.extend(healthy_changes(world));
    } else {
        steps.push(Step::Rest);
    }
    steps
}

/// Changes that strict checks let pass only while all voters have been connected for a while.
fn healthy_changes(world: &mut World) -> Vec<Step> {
    let mut steps = Vec::new();
    let anyone = world.running_voters();
    let voters = world.voters().len();
    let nobody_waits = world.waiting().is_empty() && world.hollow_voters().is_empty();
    if world.takes_voters() && nobody_waits && anyone.len() < RUNNING_MAX {
        steps.extend(anyone.iter().map(|at| ask(*at, add(false, Urls::Newcomer))));
        if 1 < voters && voters.div_ceil(2) < anyone.len() {
            let plain = vec![world.plain_url(), world.plain_url()];
            steps.push(ask(anyone[0], add(false, Urls::Plain(plain))));
            for removed in world.those(|mate| mate.role == Role::Removed && !mate.real) {
                steps.push(ask(anyone[0], add(false, Urls::UsedBy(removed, Vec::new()))));
            }
        }
    }
    if world.is_whole() && nobody_waits && world.learner().is_none() && 1 < voters {
        steps.extend(anyone.iter().map(|at| ask(*at, add(true, Urls::Newcomer))));
    }
    for hollow in world.hollow_voters().into_iter().chain(world.down()) {
        steps.extend(anyone.iter().map(|at| ask(*at, Ask::Remove(Target::Mate(hollow)))));
    }
    if world.is_whole() && 2 < voters {
        for at in &anyone {
            steps.extend(anyone.iter().map(|mate| ask(*at, Ask::Remove(Target::Mate(*mate)))));
        }
        if nobody_waits && world.has_quorum_without(1) {
            steps.extend(world.followers().into_iter().map(Step::Kill));
        }
    }
    steps
}

/// Steps that are refused, or that only ask.
fn questions(world: &mut World) -> Vec<Step> {
    let anyone = world.running_voters();
    let mut steps = Vec::new();
    for at in &anyone {
        steps.push(ask(*at, Ask::List { linearizable: false }));
        for words in BAD_URLS {
            let urls = Urls::Bad(words.iter().map(ToString::to_string).collect());
            steps.push(ask(*at, add(false, urls)));
        }
        let refused = !world.takes_voters() && world.health == Health::Healthy;
        if world.health == Health::Fresh || refused {
            let plain = world.plain_url();
            steps.push(ask(*at, add(false, Urls::Plain(vec![plain]))));
        }
    }
    if !world.has_quorum_without(0) {
        return steps;
    }
    for at in anyone {
        steps.extend(questions_to(at, world));
    }
    if let Some(learner) = world.learner().filter(|learner| world.mates[*learner].running) {
        steps.extend(questions_to_learner(learner, world));
    }
    steps
}

/// Questions that need a majority.
fn questions_to(at: usize, world: &mut World) -> Vec<Step> {
    let removed = world.those(|mate| mate.role == Role::Removed);
    let leads = at == world.leader;
    let mut asks = vec![
        Ask::List { linearizable: true },
        Ask::Status,
        Ask::Remove(Target::Unknown),
        Ask::Remove(Target::Zero),
        Ask::Update { target: Target::Unknown, urls: Urls::Plain(vec![world.plain_url()]) },
        Ask::Update { target: Target::Mate(at), urls: Urls::Own },
        Ask::MoveLeader(Target::Unknown),
        Ask::MoveLeader(Target::Zero),
        Ask::MoveLeader(Target::Mate(if leads { at } else { world.leader })),
    ];
    for gone in &removed {
        asks.push(Ask::Remove(Target::Mate(*gone)));
        asks.push(Ask::Update { target: Target::Mate(*gone), urls: Urls::Plain(vec![world.plain_url()]) });
        asks.push(Ask::MoveLeader(Target::Mate(*gone)));
    }
    let hollow = world.those(|mate| mate.role != Role::Removed && !mate.real);
    for mate in hollow {
        asks.push(Ask::Update { target: Target::Mate(mate), urls: Urls::Plain(vec![world.plain_url()]) });
        asks.push(Ask::Update { target: Target::Mate(mate), urls: Urls::UsedBy(at, Vec::new()) });
    }
    if let Some(waiting) = world.waiting().first() {
        asks.push(Ask::Update { target: Target::Mate(*waiting), urls: Urls::UsedBy(at, Vec::new()) });
    }
    asks.extend(strictly_checked(at, world));
    if world.is_whole() && 1 < world.voters().len() {
        asks.push(Ask::Promote(Target::Unknown));
        asks.extend(world.running_voters().into_iter().map(|mate| Ask::Promote(Target::Mate(mate))));
        if leads {
            asks.extend(removed.iter().map(|gone| Ask::Promote(Target::Mate(*gone))));
        }
        let unstarted = world.learner().filter(|learner| !world.mates[*learner].started);
        asks.extend(unstarted.map(|learner| Ask::Promote(Target::Mate(learner))));
        if leads && let Some(learner) = world.learner() {
            asks.push(Ask::MoveLeader(Target::Mate(learner)));
        }
    }
    asks.into_iter().map(|what| ask(at, what)).collect()
}

/// Questions whose refusal depends on who is connected and who was started.
fn strictly_checked(at: usize, world: &mut World) -> Vec<Ask> {
    let mut asks = Vec::new();
    if world.health != Health::Healthy {
        return asks;
    }
    let voters = world.voters();
    if world.takes_voters() {
        asks.push(add(false, Urls::UsedBy(at, Vec::new())));
        asks.push(add(true, Urls::UsedBy(at, Vec::new())));
        asks.push(add(false, Urls::UsedBy(at, vec![world.plain_url()])));
    }
    if world.is_whole() && world.learner().is_some() {
        asks.push(add(true, Urls::Plain(vec![world.plain_url()])));
    }
    if voters.len() == 1 && world.learner().is_none() {
        asks.push(Ask::Remove(Target::Mate(at)));
    }
    let running = world.running_voters();
    let one_is_missing = voters.len() == 3 && running.len() == 2;
    if one_is_missing && world.waiting().is_empty() {
        asks.extend(running.into_iter().map(|mate| Ask::Remove(Target::Mate(mate))));
    }
    asks
}

fn questions_to_learner(at: usize, world: &mut World) -> Vec<Step> {
    let plain = world.plain_url();
    let asks = [
        Ask::List { linearizable: false },
        Ask::List { linearizable: true },
        add(false, Urls::Plain(vec![plain])),
        Ask::Status,
        Ask::Remove(Target::Mate(world.leader)),
        Ask::Promote(Target::Mate(at)),
        Ask::MoveLeader(Target::Mate(world.leader)),
    ];
    let errands = Errand::ALL.map(|errand| Step::AtLearner { at, errand });
    asks.into_iter().map(|what| ask(at, what)).chain(errands).collect()
}

fn ask(at: usize, ask: Ask) -> Step {
    Step::Ask { at, ask }
}

fn add(learner: bool, urls: Urls) -> Ask {
    Ask::Add { learner, urls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_steps() {
        let steps = |seed| {
            let mut generator = Generator::new(seed);
            let mut world = World::new(3);
            (0..40).map(|_| generator.next(&mut world, &Coverage::default())).collect::<Vec<_>>()
        };
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    #[test]
    fn nothing_is_asked_that_needs_a_majority_where_there_is_none() {
        let mut world = World::new(1);
        let waiting = crate::differential::cluster::world::Mate {
            role: Role::Voter,
            real: true,
            started: false,
            running: false,
        };
        world.mates.push(waiting);
        assert_eq!(changes(&mut world), [Step::Start(1)]);
        let harmless = |step: &Step| {
            matches!(step, Step::Ask { ask: Ask::List { linearizable: false } | Ask::Add { .. }, .. })
        };
        assert!(questions(&mut world).iter().all(harmless));
    }

    #[test]
    fn nobody_removes_a_voter_that_would_take_the_majority_along() {
        let mut world = World::new(3);
        world.mates[2].running = false;
        let removes_running =
            |step: &Step| matches!(step, Step::Ask { ask: Ask::Remove(Target::Mate(0 | 1)), .. });
        assert!(!changes(&mut world).iter().any(removes_running));
        assert!(!changes(&mut world).iter().any(|step| matches!(step, Step::Kill(_))));
    }
}
