//! A store, a member that serves one watch of it, and a connection that dies whenever it likes, all
//! simulated; whoever follows the watch is judged by what it delivered.
//!
//! A schedule is one seed. The connection loses what is on its way when it dies and repeats whole
//! responses, but never reorders: gRPC does not either. The member may answer from further back than
//! asked, may tell its creation late (see `resume`), sends history in pieces with a header far ahead,
//! and sends progress marks only when they are true. The judge wants every matching revision after the
//! start, whole, once and in order. It is itself judged: followers with one known flaw each have to be
//! caught, and a second way of writing a right one has to pass.

use super::*;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

const SCHEDULES: u64 = 4_000;
const STEPS: usize = 120;

#[derive(Clone, Debug)]
enum Message {
    Created { header: i64 },
    Response { revisions: Vec<i64>, header: i64, more: bool },
    Mark(i64),
}

/// Who follows a watch, right or wrong.
trait Follower {
    fn start(&self) -> WatchStart;
    fn created(&mut self, header: i64);
    /// Returns what is delivered: each revision and its number of events.
    fn response(&mut self, revisions: &[i64], header: i64, more: bool) -> Vec<(i64, usize)>;
    fn mark(&mut self, at: i64);
    fn lost(&mut self);
}

impl Follower for Resume {
    fn start(&self) -> WatchStart {
        Resume::start(self)
    }

    fn created(&mut self, header: i64) {
        Resume::created(self, Revision::new(header));
    }

    fn response(&mut self, revisions: &[i64], _header: i64, more: bool) -> Vec<(i64, usize)> {
        let event = |revision: &i64| Event {
            kind: EventKind::Delete { key: Bytes::from_static(b"k"), modified: Revision::new(*revision) },
            previous: None,
        };
        let mut whole = Vec::new();
        Resume::response(self, revisions.iter().map(event).collect(), more, &mut whole);
        whole.iter().map(|changes| (changes.revision.get(), changes.events.len())).collect()
    }

    fn mark(&mut self, at: i64) {
        Resume::mark(self, Revision::new(at));
    }

    fn lost(&mut self) {
        Resume::lost(self);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    HeaderAsProgress,
    TakesDuplicates,
    ResumesAtTheLastOne,
    DeliversPieces,
    KeepsPiecesOverALoss,
    ForgetsPieces,
    StartsNowAgain,
    LeavesOutTheFirst,
    NeverStepsBack,
    MarksGoBackwards,
    BelievesTheHeaderOfACreation,
}

/// The same rules written down another way, with one of them broken.
struct Plain {
    flaw: Flaw,
    live: bool,
    next: i64,
    lowest: i64,
    held: Vec<i64>,
}

impl Plain {
    fn new(flaw: Flaw, start: WatchStart) -> Plain {
        let (live, next) = match start {
            WatchStart::Live => (true, 0),
            WatchStart::At(first) => (false, first.get()),
        };
        Plain { flaw, live, next, lowest: next, held: Vec::new() }
    }
}

impl Follower for Plain {
    fn start(&self) -> WatchStart {
        if self.live { WatchStart::Live } else { WatchStart::At(Revision::new(self.next)) }
    }

    fn created(&mut self, header: i64) {
        if self.live && self.flaw != Flaw::StartsNowAgain {
            self.live = false;
            self.next = header + 1;
            if self.flaw == Flaw::LeavesOutTheFirst {
                self.next += 1;
            }
        } else if self.flaw == Flaw::BelievesTheHeaderOfACreation {
            self.next = self.next.max(header + 1);
        }
    }

    fn response(&mut self, revisions: &[i64], header: i64, more: bool) -> Vec<(i64, usize)> {
        self.held.extend_from_slice(revisions);
        if more && self.flaw != Flaw::DeliversPieces {
            return Vec::new();
        }
        let mut out: Vec<(i64, usize)> = Vec::new();
        for revision in std::mem::take(&mut self.held) {
            if revision < self.lowest && self.flaw != Flaw::TakesDuplicates {
                continue;
            }
            match out.last_mut() {
                Some((last, count)) if *last == revision => *count += 1,
                Some((last, _)) if revision < *last => {}
                _ => out.push((revision, 1)),
            }
        }
        if let Some((last, _)) = out.last() {
            self.live = false;
            self.next = match self.flaw {
                Flaw::HeaderAsProgress => header + 1,
                Flaw::ResumesAtTheLastOne => *last,
                Flaw::NeverStepsBack => self.next.max(last + 1),
                _ => last + 1,
            };
            self.lowest = self.next.min(last + 1);
        }
        out
    }

    fn mark(&mut self, at: i64) {
        if self.held.is_empty() && !self.live && (self.next <= at || self.flaw == Flaw::MarksGoBackwards) {
            self.next = at + 1;
            self.lowest = at + 1;
        }
    }

    fn lost(&mut self) {
        match self.flaw {
            Flaw::KeepsPiecesOverALoss => {}
            Flaw::ForgetsPieces => {
                if let Some(last) = self.held.last() {
                    self.next = self.next.max(last + 1);
                }
                self.held.clear();
            }
            _ => self.held.clear(),
        }
        if !self.live {
            self.lowest = self.next;
        }
    }
}

struct World {
    chance: SmallRng,
    /// The number of matching events of each revision; revision 1 is the empty store.
    history: Vec<usize>,
    /// The next revision the member has to send on the present stream.
    next: i64,
    wire: VecDeque<Message>,
    /// A creation that is registered and not answered yet.
    unanswered: bool,
    last_sent: Option<Message>,
    delivered: Vec<(i64, usize)>,
    /// The header of the first creation that was heard of.
    heard_created: Option<i64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            chance: SmallRng::seed_from_u64(seed),
            history: vec![0, 0],
            next: 0,
            wire: VecDeque::new(),
            unanswered: false,
            last_sent: None,
            delivered: Vec::new(),
            heard_created: None,
        };
        for _ in 0..world.chance.random_range(0..12) {
            world.write();
        }
        world
    }

    fn current(&self) -> i64 {
        self.history.len() as i64 - 1
    }

    fn write(&mut self) {
        let events = [0, 0, 1, 1, 2, 3][self.chance.random_range(0..6)];
        self.history.push(events);
    }

    /// The member registers the watch. Its answer is written later, maybe after more writes.
    fn create(&mut self, start: WatchStart) {
        self.wire.clear();
        self.last_sent = None;
        self.next = match start {
            WatchStart::Live => self.current() + 1,
            WatchStart::At(first) => {
                // Some of what was asked to be left out may come all the same.
                let back = if self.chance.random_bool(0.2) { self.chance.random_range(0..4) } else { 0 };
                (first.get() - back).max(2)
            }
        };
        self.unanswered = true;
        if self.chance.random_bool(0.7) {
            self.answer();
        }
    }

    fn answer(&mut self) {
        if std::mem::take(&mut self.unanswered) {
            self.wire.push_back(Message::Created { header: self.current() });
        }
    }

    /// The member sends some of what it owes, in one response or in pieces.
    fn send(&mut self) {
        if self.unanswered || self.current() < self.next {
            return;
        }
        let last = (self.next + self.chance.random_range(0..5)).min(self.current());
        let repeat = |revision: i64| std::iter::repeat_n(revision, self.history[revision as usize]);
        let events: Vec<i64> = (self.next..=last).flat_map(repeat).collect();
        self.next = last + 1;
        let header = self.current();
        let mut rest = events.as_slice();
        while !rest.is_empty() {
            let size = if self.chance.random_bool(0.5) {
                rest.len()
            } else {
                self.chance.random_range(1..=rest.len())
            };
            let (piece, after) = rest.split_at(size);
            rest = after;
            let message = Message::Response { revisions: piece.to_vec(), header, more: !rest.is_empty() };
            self.last_sent = Some(message.clone());
            self.wire.push_back(message);
        }
    }

    fn mark(&mut self) {
        if !self.unanswered && self.current() < self.next {
            self.wire.push_back(Message::Mark(self.current()));
        }
    }

    /// A response that was whole in itself comes twice.
    fn repeat(&mut self) {
        let between = !matches!(self.wire.back(), Some(Message::Response { more: true, .. }));
        if let Some(message @ Message::Response { more: false, .. }) = &self.last_sent
            && between
        {
            self.wire.push_back(message.clone());
        }
    }

    fn receive(&mut self, follower: &mut dyn Follower) {
        match self.wire.pop_front() {
            Some(Message::Created { header }) => {
                self.heard_created.get_or_insert(header);
                follower.created(header);
            }
            Some(Message::Response { revisions, header, more }) => {
                self.delivered.extend(follower.response(&revisions, header, more));
            }
            Some(Message::Mark(at)) => follower.mark(at),
            None => {}
        }
    }

    fn kill(&mut self, follower: &mut dyn Follower) {
        follower.lost();
        self.create(follower.start());
    }

    fn step(&mut self, follower: &mut dyn Follower) {
        match self.chance.random_range(0..100) {
            0..25 => self.write(),
            25..45 => self.send(),
            45..50 => self.mark(),
            50..53 => self.repeat(),
            53..58 => self.answer(),
            58..93 => self.receive(follower),
            _ => self.kill(follower),
        }
    }

    /// The faults end, and everything that is owed arrives.
    fn settle(&mut self, follower: &mut dyn Follower) {
        self.answer();
        while self.next <= self.current() {
            self.send();
        }
        while !self.wire.is_empty() {
            self.receive(follower);
        }
    }

    fn judge(&self, start: WatchStart) -> Result<(), String> {
        let due = |from: i64| -> Vec<(i64, usize)> {
            let owed = from.max(2)..=self.current();
            owed.map(|at| (at, self.history[at as usize])).filter(|(_, events)| 0 < *events).collect()
        };
        let from = match start {
            WatchStart::At(first) => first.get(),
            // Owed from the creation on; what came earlier must begin an unbroken row.
            WatchStart::Live => {
                let owed = self.heard_created.ok_or("never created")? + 1;
                self.delivered.first().map_or(owed, |(first, _)| owed.min(*first))
            }
        };
        let due = due(from);
        if self.delivered == due {
            Ok(())
        } else {
            Err(format!("due from {from}: {due:?}\ndelivered: {:?}", self.delivered))
        }
    }
}

fn run(seed: u64, follow: impl Fn(WatchStart) -> Box<dyn Follower>) -> Result<(), String> {
    let mut world = World::new(seed);
    let start = match world.chance.random_range(0..3) {
        0 => WatchStart::Live,
        1 => WatchStart::At(Revision::new(world.chance.random_range(2..=world.current() + 1))),
        _ => WatchStart::At(Revision::new(world.current() + world.chance.random_range(1..9))),
    };
    let mut follower = follow(start);
    world.create(start);
    for _ in 0..STEPS {
        world.step(follower.as_mut());
    }
    world.settle(follower.as_mut());
    world.judge(start).map_err(|what| format!("seed {seed}, start {start:?}\n{what}"))
}

#[test]
fn no_schedule_loses_repeats_or_reorders_a_revision() {
    for seed in 0..SCHEDULES {
        if let Err(what) = run(seed, |start| Box::new(Resume::new(start))) {
            panic!("{what}");
        }
    }
}

#[test]
fn the_judge_accepts_another_way_of_being_right() {
    for seed in 0..SCHEDULES {
        if let Err(what) = run(seed, |start| Box::new(Plain::new(Flaw::None, start))) {
            panic!("{what}");
        }
    }
}

#[test]
fn the_judge_catches_every_known_flaw() {
    let flaws = [
        Flaw::HeaderAsProgress,
        Flaw::TakesDuplicates,
        Flaw::ResumesAtTheLastOne,
        Flaw::DeliversPieces,
        Flaw::KeepsPiecesOverALoss,
        Flaw::ForgetsPieces,
        Flaw::StartsNowAgain,
        Flaw::LeavesOutTheFirst,
        Flaw::NeverStepsBack,
        Flaw::MarksGoBackwards,
        Flaw::BelievesTheHeaderOfACreation,
    ];
    for flaw in flaws {
        let caught =
            (0..SCHEDULES).filter(|seed| run(*seed, |start| Box::new(Plain::new(flaw, start))).is_err());
        assert!(0 < caught.count(), "{flaw:?} was never caught");
    }
}
