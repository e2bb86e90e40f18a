//! How often each kind of step and answer came up; none may be missing.
//!
//! Kinds are read off the steps, the world before them and the answers. The generator asks here what
//! is still missing, but notes nothing itself: one that only believes it made something is found out.

use std::collections::BTreeMap;
use std::fmt;

use meerkat_proto::error_text::EtcdError;

use super::answer::Answer;
use super::learner::Errand;
use super::step::{Ask, Step, Target, Urls};
use super::world::{Health, Role, World};

/// Kinds that every run must contain.
const KINDS: &[&str] = &[
    "list: linearizable",
    "list: local",
    "list: at a follower",
    "list: with a member that was never started",
    "list: with a learner",
    "list: at a learner",
    "add: a voter",
    "add: a voter, at a follower",
    "add: the second voter",
    "add: a learner",
    "add: several URLs",
    "add: bad URLs",
    "add: no URLs",
    "add: a URL that is in use",
    "add: a URL that is in use, after one that is not",
    "add: a URL of a member that was removed",
    "add: just after a start",
    "add: while not enough are started",
    "add: while a voter is down",
    "add: a second learner",
    "add: at a learner",
    "remove: a follower",
    "remove: the leader, at itself",
    "remove: the leader, at a follower",
    "remove: a learner",
    "remove: a voter that was never started",
    "remove: a voter that is down",
    "remove: a voter while another is down",
    "remove: a voter while not enough would be left",
    "remove: the only member",
    "remove: one that was removed",
    "remove: unknown",
    "remove: id 0",
    "update: one that was never started",
    "update: its own URLs",
    "update: a URL that is in use",
    "update: one that was removed",
    "update: unknown",
    "promote: a learner, at the leader",
    "promote: a learner, at a follower",
    "promote: a learner that was never started",
    "promote: a voter",
    "promote: one that was removed",
    "promote: unknown",
    "move leader: to a follower",
    "move leader: to itself",
    "move leader: to a learner",
    "move leader: to one that was removed",
    "move leader: unknown",
    "move leader: asked of a follower",
    "status: of the leader",
    "status: of a follower",
    "status: of a learner",
    "start: a voter",
    "start: a learner",
    "start: one that was removed",
    "start: one that was killed",
    "kill: a follower",
    "at a learner: SerializableRange",
    "at a learner: LinearizableRange",
    "at a learner: Put",
    "at a learner: Delete",
    "at a learner: ReadOnlyTxn",
    "at a learner: Compact",
    "at a learner: Grant",
    "at a learner: TimeToLive",
    "at a learner: Leases",
    "at a learner: KeepAlive",
    "at a learner: Watch",
    "at a learner: HashKv",
    "answer: members",
    "answer: moved",
    "answer: served by a learner",
    "answer: etcdserver: member not found",
    "answer: etcdserver: Peer URLs already exists",
    "answer: etcdserver: given member URLs are invalid",
    "answer: etcdserver: re-configuration failed due to not enough started members",
    "answer: etcdserver: unhealthy cluster",
    "answer: etcdserver: too many learner members in cluster",
    "answer: etcdserver: can only promote a learner member",
    "answer: etcdserver: can only promote a learner member which is in sync with leader",
    "answer: etcdserver: not leader",
    "answer: etcdserver: bad leader transferee",
    "answer: etcdserver: rpc not supported for learner",
];

/// Counts of everything that came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    kinds: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Counts a step, before it is taken.
    pub fn note_step(&mut self, step: &Step, world: &World) {
        for kind in kinds_of(step, world) {
            debug_assert!(KINDS.contains(&kind), "{kind} is not in the table");
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// Counts an answer.
    pub fn note_answer(&mut self, step: &Step, answer: &Answer) {
        let found = match answer {
            Answer::Members { .. } => Some("answer: members"),
            Answer::Moved(_) => Some("answer: moved"),
            Answer::Served if matches!(step, Step::AtLearner { .. }) => Some("answer: served by a learner"),
            Answer::Refused(_, text) => {
                KINDS.iter().copied().find(|kind| kind.strip_prefix("answer: ") == Some(text.as_str()))
            }
            Answer::Served | Answer::Status { .. } | Answer::Hung => None,
        };
        if let Some(kind) = found {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// How often the rarest kind of a step has come up; none if it is of no kind.
    pub fn rarity(&self, step: &Step, world: &World) -> Option<u64> {
        kinds_of(step, world).into_iter().map(|kind| self.kinds.get(kind).copied().unwrap_or(0)).min()
    }

    /// What should have come up and did not.
    pub fn gaps(&self) -> Vec<String> {
        let missing = KINDS.iter().filter(|kind| !self.kinds.contains_key(*kind));
        missing.map(|kind| format!("never exercised: {kind}")).collect()
    }
}

/// The kinds of a step in a world.
pub fn kinds_of(step: &Step, world: &World) -> Vec<&'static str> {
    let mut kinds = Kinds(Vec::new());
    match step {
        Step::Ask { at, ask } => kinds.of_ask(*at, ask, world),
        Step::AtLearner { errand, .. } => kinds.add(errand_kind(*errand), true),
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

fn errand_kind(errand: Errand) -> &'static str {
    match errand {
        Errand::SerializableRange => "at a learner: SerializableRange",
        Errand::LinearizableRange => "at a learner: LinearizableRange",
        Errand::Put => "at a learner: Put",
        Errand::Delete => "at a learner: Delete",
        Errand::ReadOnlyTxn => "at a learner: ReadOnlyTxn",
        Errand::Compact => "at a learner: Compact",
        Errand::Grant => "at a learner: Grant",
        Errand::TimeToLive => "at a learner: TimeToLive",
        Errand::Leases => "at a learner: Leases",
        Errand::KeepAlive => "at a learner: KeepAlive",
        Errand::Watch => "at a learner: Watch",
        Errand::HashKv => "at a learner: HashKv",
    }
}

struct Kinds(Vec<&'static str>);

impl Kinds {
    fn add(&mut self, kind: &'static str, is: bool) {
        if is {
            self.0.push(kind);
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

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in KINDS {
            writeln!(f, "  {:>6}  {kind}", self.kinds.get(kind).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn nothing_exercised_is_a_gap_for_every_kind() {
        assert_eq!(Coverage::default().gaps().len(), KINDS.len());
    }

    #[test]
    fn what_came_up_is_no_gap() {
        let mut coverage = Coverage::default();
        let step = Step::Ask { at: 1, ask: Ask::Remove(Target::Unknown) };
        let world = World::new(3);
        assert_eq!(coverage.rarity(&step, &world), Some(0));
        coverage.note_step(&step, &world);
        assert_eq!(coverage.rarity(&step, &world), Some(1));
        let text = EtcdError::MemberNotFound.message().to_owned();
        coverage.note_answer(&step, &Answer::Refused(Code::NotFound, text));
        assert_eq!(coverage.gaps().len(), KINDS.len() - 2);
    }

    #[test]
    fn every_answer_in_the_table_has_the_words_of_an_error() {
        let others = ["members", "moved", "served by a learner"];
        for text in KINDS.iter().filter_map(|kind| kind.strip_prefix("answer: ")) {
            let known = EtcdError::ALL.iter().any(|error| error.message() == text);
            assert!(known || others.contains(&text), "{text}");
        }
    }
}
