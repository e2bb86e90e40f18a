//! Kinds of steps and answers that a run which begins with one member must contain.

use std::borrow::Cow;

use meerkat_proto::error_text::EtcdError;

use super::answer::Answer;
use super::learner::Errand;
use super::step::{Ask, Step, Target, Urls};
use super::world::{Health, Role, World};
use crate::differential::coverage::Coverage;

/// Beside every errand at a learner.
const KINDS: &str = "\
list: linearizable; local; at a follower; with a member that was never started; with a learner
list: at a learner
add: a voter; a voter, at a follower; the second voter; a learner; several URLs; bad URLs; no URLs
add: a URL that is in use; a URL that is in use, after one that is not
add: a URL of a member that was removed; just after a start; while not enough are started
add: while a voter is down; a second learner; at a learner
remove: a follower; the leader, at itself; the leader, at a follower; a learner
remove: a voter that was never started; a voter that is down; a voter while another is down
remove: a voter while not enough would be left; the only member; one that was removed; unknown; id 0
update: one that was never started; its own URLs; a URL that is in use; one that was removed
update: unknown
promote: a learner, at the leader; a learner, at a follower; a learner that was never started
promote: a voter; one that was removed; unknown
move leader: to a follower; to itself; to a learner; to one that was removed; unknown
move leader: asked of a follower
status: of the leader; of a follower; of a learner
start: a voter; a learner; one that was removed; one that was killed
kill: a follower
answer: members; moved; served by a learner; etcdserver: member not found
answer: etcdserver: Peer URLs already exists; etcdserver: given member URLs are invalid
answer: etcdserver: re-configuration failed due to not enough started members
answer: etcdserver: unhealthy cluster; etcdserver: too many learner members in cluster
answer: etcdserver: can only promote a learner member
answer: etcdserver: can only promote a learner member which is in sync with leader
answer: etcdserver: not leader; etcdserver: bad leader transferee
answer: etcdserver: rpc not supported for learner";

/// All of them.
pub fn table() -> Coverage {
    let mut coverage = Coverage::of(KINDS);
    Errand::ALL.iter().for_each(|errand| coverage.want(format!("at a learner: {errand:?}")));
    coverage
}

/// Counts a step, before it is taken.
pub fn note_step(coverage: &mut Coverage, step: &Step, world: &World) {
    kinds_of(step, world).iter().for_each(|kind| coverage.count(kind, true));
}

/// Counts an answer.
pub fn note_answer(coverage: &mut Coverage, step: &Step, answer: &Answer) {
    match answer {
        Answer::Members { .. } => coverage.count("answer: members", true),
        Answer::Moved(_) => coverage.count("answer: moved", true),
        Answer::Served => {
            coverage.count("answer: served by a learner", matches!(step, Step::AtLearner { .. }));
        }
        Answer::Refused(_, text) => coverage.count_known(&format!("answer: {text}")),
        Answer::Status { .. } | Answer::Hung => {}
    }
}

/// How often the rarest kind of a step has come up; none if it is of no kind.
pub fn rarity(coverage: &Coverage, step: &Step, world: &World) -> Option<u64> {
    kinds_of(step, world).iter().map(|kind| coverage.times(kind)).min()
}

/// The kinds of a step in a world.
pub fn kinds_of(step: &Step, world: &World) -> Vec<Cow<'static, str>> {
    let mut kinds = Kinds(Vec::new());
    match step {
        Step::Ask { at, ask } => kinds.of_ask(*at, ask, world),
        Step::AtLearner { errand, .. } => kinds.0.push(format!("at a learner: {errand:?}").into()),
        Step::Start(mate) => {
            let voter = world.mates[*mate].role == Role::Voter;
            kinds.add("start: a voter", voter);
            kinds.add("start: a learner", !voter);
        }
        Step::Restart(_) => kinds.add("start: one that was killed", true),
        Step::StartRemoved(_) => kinds.add("start: one that was removed", true),
        Step::Kill(mate) => kinds.add("kill: a follower", *mate != world.leader),
        Step::Rest => {}
    }
    kinds.0
}

struct Kinds(Vec<Cow<'static, str>>);

impl Kinds {
    fn add(&mut self, kind: &'static str, is: bool) {
        if is {
            self.0.push(kind.into());
        }
    }

    fn of_ask(&mut self, at: usize, ask: &Ask, world: &World) {
        let at_learner = world.mates[at].role == Role::Learner;
        let leads = at == world.leader;
        match ask {
            Ask::List { linearizable } => {
                let unstarted = world.those(|mate| mate.role != Role::Removed && !mate.started);
                self.add("list: at a learner", at_learner);
                self.add("list: linearizable", *linearizable && !at_learner);
                self.add("list: local", !*linearizable && !at_learner);
                self.add("list: at a follower", !leads && !at_learner);
                self.add("list: with a member that was never started", !unstarted.is_empty() && !at_learner);
                self.add("list: with a learner", world.learner().is_some() && !at_learner);
            }
            Ask::Add { .. } if at_learner => self.add("add: at a learner", true),
            Ask::Status => {
                self.add("status: of the leader", leads);
                self.add("status: of a learner", at_learner);
                self.add("status: of a follower", !leads && !at_learner);
            }
            // Refused whatever it is about.
            _ if at_learner => {}
            Ask::Add { learner, urls } => self.of_add(leads, *learner, urls, world),
            Ask::Remove(target) => self.of_remove(leads, *target, world),
            Ask::Update { target, urls } => self.of_update(*target, urls, world),
            Ask::Promote(target) => self.of_promote(leads, *target, world),
            Ask::MoveLeader(target) => {
                self.add("move leader: asked of a follower", !leads);
                self.add("move leader: unknown", leads && matches!(target, Target::Unknown | Target::Zero));
                let Target::Mate(mate) = target else { return };
                let role = world.mates[*mate].role;
                self.add("move leader: to itself", leads && *mate == at);
                self.add("move leader: to a follower", leads && *mate != at && role == Role::Voter);
                self.add("move leader: to a learner", leads && role == Role::Learner);
                self.add("move leader: to one that was removed", leads && role == Role::Removed);
            }
        }
    }

    fn of_add(&mut self, leads: bool, learner: bool, urls: &Urls, world: &World) {
        match urls {
            Urls::Bad(words) => {
                self.add("add: no URLs", words.is_empty());
                self.add("add: bad URLs", !words.is_empty());
            }
            Urls::UsedBy(mate, before) => {
                let removed = world.mates[*mate].role == Role::Removed;
                self.add("add: a URL of a member that was removed", removed);
                self.add("add: a URL that is in use", !removed && before.is_empty());
                self.add("add: a URL that is in use, after one that is not", !removed && !before.is_empty());
            }
            Urls::Newcomer | Urls::Plain(_) | Urls::Own => {
                let fresh = world.health == Health::Fresh;
                let down = !world.down().is_empty();
                self.add("add: just after a start", fresh);
                self.add("add: while a voter is down", down);
                self.add("add: several URLs", matches!(urls, Urls::Plain(plain) if 1 < plain.len()));
                if learner {
                    self.add("add: a learner", world.learner().is_none());
                    self.add("add: a second learner", world.learner().is_some());
                } else if world.takes_voters() && !fresh {
                    self.add("add: a voter", true);
                    self.add("add: a voter, at a follower", !leads);
                    self.add("add: the second voter", world.voters().len() == 1);
                } else if !fresh && !down {
                    self.add("add: while not enough are started", true);
                }
            }
        }
    }

    fn of_remove(&mut self, leads: bool, target: Target, world: &World) {
        self.add("remove: unknown", target == Target::Unknown);
        self.add("remove: id 0", target == Target::Zero);
        let Target::Mate(number) = target else { return };
        let mate = world.mates[number];
        let voter = mate.role == Role::Voter;
        let another_is_down = world.down().iter().any(|down| *down != number);
        let hollow = !world.hollow_voters().is_empty();
        self.add("remove: one that was removed", mate.role == Role::Removed);
        self.add("remove: a learner", mate.role == Role::Learner);
        self.add("remove: the only member", voter && world.voters().len() == 1);
        self.add("remove: a voter that was never started", voter && !mate.started);
        self.add("remove: a voter that is down", voter && mate.started && !mate.running);
        self.add("remove: a voter while another is down", voter && mate.running && another_is_down);
        let too_few = hollow && world.voters().len() == 3;
        self.add("remove: a voter while not enough would be left", voter && mate.running && too_few);
        let plain = voter && mate.running && world.is_whole() && 2 < world.voters().len();
        self.add("remove: a follower", plain && number != world.leader);
        self.add("remove: the leader, at itself", plain && number == world.leader && leads);
        self.add("remove: the leader, at a follower", plain && number == world.leader && !leads);
    }

    fn of_update(&mut self, target: Target, urls: &Urls, world: &World) {
        self.add("update: unknown", target == Target::Unknown);
        let Target::Mate(number) = target else { return };
        let removed = world.mates[number].role == Role::Removed;
        self.add("update: one that was removed", removed);
        self.add("update: its own URLs", !removed && *urls == Urls::Own);
        self.add("update: a URL that is in use", !removed && matches!(urls, Urls::UsedBy(..)));
        let plain = matches!(urls, Urls::Plain(_));
        self.add("update: one that was never started", !removed && plain && !world.mates[number].started);
    }

    fn of_promote(&mut self, leads: bool, target: Target, world: &World) {
        self.add("promote: unknown", matches!(target, Target::Unknown | Target::Zero));
        let Target::Mate(number) = target else { return };
        let mate = world.mates[number];
        self.add("promote: a voter", mate.role == Role::Voter);
        self.add("promote: one that was removed", mate.role == Role::Removed);
        let learner = mate.role == Role::Learner;
        self.add("promote: a learner that was never started", learner && !mate.started);
        self.add("promote: a learner, at the leader", learner && mate.started && leads);
        self.add("promote: a learner, at a follower", learner && mate.started && !leads);
    }
}

/// Whether an answer says that the learner has not caught up yet.
pub fn is_not_ready(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(_, text) if text == EtcdError::LearnerNotReady.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_less_rare_each_time_it_comes_up() {
        let mut coverage = table();
        let step = Step::Ask { at: 1, ask: Ask::Remove(Target::Unknown) };
        let world = World::new(3);
        assert_eq!(rarity(&coverage, &step, &world), Some(0));
        note_step(&mut coverage, &step, &world);
        assert_eq!(rarity(&coverage, &step, &world), Some(1));
    }

    #[test]
    fn every_answer_in_the_table_has_the_words_of_an_error() {
        let others = ["members", "moved", "served by a learner"];
        let answers = KINDS.lines().filter_map(|line| line.strip_prefix("answer: "));
        for text in answers.flat_map(|line| line.split("; ")) {
            let known = EtcdError::ALL.iter().any(|error| error.message() == text);
            assert!(known || others.contains(&text), "{text}");
        }
    }
}
