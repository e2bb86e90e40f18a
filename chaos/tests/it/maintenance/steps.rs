//! What is asked of both products: drawn from one seed, in names that fit either.

use meerkat_proto::pb::etcdserver::AlarmType;
use meerkat_proto::pb::etcdserver::alarm_request::AlarmAction;
use meerkat_proto::pb::etcdserver::downgrade_request::DowngradeAction;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Whom a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// By the order of the members, the leader first.
    Member(usize),
    Nobody,
    Zero,
}

/// A revision, by what it is to the store.
#[derive(Clone, Copy, Debug)]
pub enum At {
    Plain(i64),
    /// The newest, and so much.
    Newest(i64),
    /// The compacted one, and so much.
    Compacted(i64),
}

/// One request.
#[derive(Clone, Debug)]
pub enum Step {
    Put {
        lease: i64,
    },
    PutInFailure,
    DeleteInTxn,
    ReadInTxn,
    Read,
    Delete,
    Grant,
    Revoke,
    Compact(At),
    Alarm {
        action: AlarmAction,
        whom: Whom,
        kind: AlarmType,
    },
    Status,
    HashKv(At),
    Defragment,
    /// By how many minor versions below the cluster's, or this text.
    Downgrade(DowngradeAction, Result<u64, &'static str>),
    MoveLeader(Whom),
}

/// Draws steps.
pub struct Generator {
    dice: StdRng,
    members: usize,
    /// The alarms that are on.
    on: Vec<(Whom, AlarmType)>,
}

impl Generator {
    pub fn new(seed: u64, members: usize) -> Self {
        Self { dice: StdRng::seed_from_u64(seed), members, on: Vec::new() }
    }

    /// The next step, and at which member.
    pub fn next(&mut self) -> (usize, Step) {
        let at = self.dice.random_range(0..self.members);
        let step = match self.dice.random_range(0..26) {
            0..=2 => Step::Put { lease: if self.dice.random_bool(0.2) { 99 } else { 0 } },
            3 => Step::PutInFailure,
            4 => Step::DeleteInTxn,
            5 => Step::ReadInTxn,
            6 => Step::Read,
            7 => Step::Delete,
            8 => Step::Grant,
            9 => Step::Revoke,
            10 => Step::Compact(self.revision()),
            11..=17 => self.alarm(),
            18 => Step::Status,
            19..=20 => Step::HashKv(self.revision()),
            21 => Step::Defragment,
            22..=23 => self.downgrade(),
            _ => Step::MoveLeader(self.whom_to_lead(at)),
        };
        (at, step)
    }

    fn whom(&mut self) -> Whom {
        match self.dice.random_range(0..6) {
            0 => Whom::Nobody,
            1 => Whom::Zero,
            _ => Whom::Member(self.dice.random_range(0..self.members)),
        }
    }

    /// Never a change of leader: which member of etcd leads afterwards is not up to us.
    fn whom_to_lead(&mut self, at: usize) -> Whom {
        match (at, self.whom()) {
            (0, Whom::Member(_)) => Whom::Member(0),
            (_, whom) => whom,
        }
    }

    fn revision(&mut self) -> At {
        match self.dice.random_range(0..5) {
            0 => At::Plain([0, -1, 1][self.dice.random_range(0..3)]),
            1 => At::Newest(self.dice.random_range(1..4)),
            2 => At::Newest(-self.dice.random_range(0..4)),
            3 => At::Compacted(self.dice.random_range(-1..2)),
            _ => At::Newest(0),
        }
    }

    /// 3.5.1 forgets one kind of alarm when the other is raised or cleared, so both are never on.
    fn alarm(&mut self) -> Step {
        let kinds = [AlarmType::None, AlarmType::Nospace, AlarmType::Corrupt];
        let kind = kinds[self.dice.random_range(0..3)];
        let other_is_on = self.on.iter().any(|(_, on)| *on != kind);
        let (action, whom) = match self.dice.random_range(0..6) {
            0 | 1 => (AlarmAction::Get, self.whom()),
            2 if !other_is_on || kind == AlarmType::None => (AlarmAction::Activate, self.whom()),
            2 | 3 => (AlarmAction::Deactivate, self.whom()),
            _ => match self.on.last().copied() {
                Some((whom, kind)) => return self.note(AlarmAction::Deactivate, whom, kind),
                None => (AlarmAction::Activate, self.whom()),
            },
        };
        self.note(action, whom, kind)
    }

    fn note(&mut self, action: AlarmAction, whom: Whom, kind: AlarmType) -> Step {
        if action != AlarmAction::Get && kind != AlarmType::None {
            self.on.retain(|on| *on != (whom, kind));
            if action == AlarmAction::Activate {
                self.on.push((whom, kind));
            }
        }
        Step::Alarm { action, whom, kind }
    }

    fn downgrade(&mut self) -> Step {
        let targets = [Ok(1), Ok(0), Ok(2), Err(""), Err("3"), Err("x.y"), Err("3.4.5.6"), Err("three")];
        let target = targets[self.dice.random_range(0..targets.len())];
        let action = match self.dice.random_range(0..5) {
            0 => DowngradeAction::Cancel,
            // A downgrade that could begin would end the etcd compared with.
            1 if target != Ok(1) => DowngradeAction::Enable,
            _ => DowngradeAction::Validate,
        };
        Step::Downgrade(action, target)
    }
}
