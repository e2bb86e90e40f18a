//! Everything the demo knows, and what each thing that happens does to it.
//!
//! Synchronous and without a clock of its own: each input brings the time at which it happened. The
//! screen, the plain lines and the verdict are all read from here, so they cannot disagree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use meerkat_types::Revision;

use super::checker::{Number, Record, Seen};
use super::script::{Fault, Kind, MEMBERS, Sight, WATCHERS};
use super::verdict::Verdict;

/// Lines of the log that are kept; older ones are forgotten, plain mode has printed them.
const LOG_LINES_MAX: usize = 200;
/// One bar of the event rate stands for this long.
pub const RATE_STEP: Duration = Duration::from_millis(500);
/// Bars that are kept: two minutes of them.
const RATE_STEPS_MAX: usize = 240;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Starting,
    Up,
    Paused,
    Cut,
    Down,
}

impl Condition {
    pub fn text(self) -> &'static str {
        match self {
            Condition::Starting => "starting",
            Condition::Up => "up",
            Condition::Paused => "paused",
            Condition::Cut => "cut off",
            Condition::Down => "down",
        }
    }
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub leads: bool,
    pub revision: Revision,
    pub term: u64,
}

#[derive(Clone, Debug)]
pub struct MemberRow {
    pub condition: Condition,
    /// Its last answer; nothing while it does not answer.
    pub status: Option<Status>,
}

/// How a write ended, as its caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    Acknowledged(Revision),
    /// It may have happened.
    Unknown,
    /// It certainly did not happen.
    NotDone,
}

#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// The number that the next write will have.
    next: Number,
    pub acknowledged: BTreeMap<Number, Revision>,
    pub unknown: BTreeSet<Number>,
    pub not_done: BTreeSet<Number>,
    pub last: Option<Revision>,
    rates: Rates,
}

#[derive(Clone, Debug)]
pub struct WatcherRow {
    pub record: Record,
    pub on: Option<usize>,
    pub resumes: u64,
    /// From noticing that its member was lost to being created at another, as the client says.
    pub last_gap: Option<Duration>,
    pub ended: Option<String>,
}

/// A fault that has happened, and what came of it.
#[derive(Clone, Debug)]
pub struct FaultRow {
    pub kind: Kind,
    pub members: Vec<usize>,
    pub state: FaultState,
    /// Where each watcher hung when it struck.
    pub from: [Option<usize>; WATCHERS],
    pub to: [Option<usize>; WATCHERS],
    /// Until the first event that was written after the fault (after the return of a majority)
    /// reached each watcher.
    pub resumed: [Option<Duration>; WATCHERS],
    armed: Option<Armed>,
}

impl FaultRow {
    pub fn slowest(&self) -> Option<Duration> {
        self.resumed.iter().flatten().max().copied()
    }

    pub fn all_resumed(&self) -> bool {
        self.resumed.iter().all(Option::is_some)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultState {
    Struck,
    Returned,
    Over,
}

/// From when on, and from which write on, a resume counts.
#[derive(Clone, Copy, Debug)]
struct Armed {
    at: Duration,
    number: Number,
}

#[derive(Clone, Debug)]
pub enum Phase {
    Starting,
    Running,
    Checking,
    Done(Box<Verdict>),
}

/// The things that can happen.
#[derive(Clone, Debug)]
pub enum Input {
    Condition {
        member: usize,
        condition: Condition,
    },
    Status {
        member: usize,
        status: Option<Status>,
    },
    Sent(Number),
    Written {
        number: Number,
        end: WriteEnd,
    },
    Event {
        watcher: usize,
        seen: Seen,
    },
    Hangs {
        watcher: usize,
        on: Option<usize>,
        resumes: u64,
        last_gap: Option<Duration>,
    },
    WatchEnded {
        watcher: usize,
        reason: String,
    },
    /// The first revision that the watchers ask for.
    Begin(Revision),
    /// `sight` is that of the moment before: the watchers may have noticed already.
    Struck {
        fault: Fault,
        members: Vec<usize>,
        sight: Sight,
    },
    Returned,
    Over,
    Problem(String),
    Said(String),
    Checking,
    Done(Box<Verdict>),
}

/// What the director of the faults waits for and aims by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    pub sight: Sight,
    /// Every watcher was told of every write that was acknowledged.
    pub level: bool,
    /// How many faults have struck. A director who has just struck waits to see it counted here.
    pub faults: usize,
    /// Every watcher is back from the last fault.
    pub resumed: bool,
    /// A watch has ended for good: nothing that waits for it will come.
    pub watch_ended: bool,
}

#[derive(Clone, Debug)]
pub struct LogLine {
    pub at: Duration,
    pub text: String,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub now: Duration,
    pub seed: u64,
    pub planned: usize,
    pub phase: Phase,
    pub members: Vec<MemberRow>,
    pub writes: Writes,
    pub watchers: Vec<WatcherRow>,
    pub faults: Vec<FaultRow>,
    pub problems: Vec<String>,
    pub log: VecDeque<LogLine>,
    /// Lines ever said, those forgotten included.
    pub said: u64,
    events: Rates,
}

impl Model {
    pub fn new(seed: u64, planned: usize) -> Model {
        let watcher = WatcherRow {
            record: Record::new(Revision::EMPTY_STORE.next()),
            on: None,
            resumes: 0,
            last_gap: None,
            ended: None,
        };
        Model {
            now: Duration::ZERO,
            seed,
            planned,
            phase: Phase::Starting,
            members: vec![MemberRow { condition: Condition::Starting, status: None }; MEMBERS],
            writes: Writes::default(),
            watchers: vec![watcher; WATCHERS],
            faults: Vec::new(),
            problems: Vec::new(),
            log: VecDeque::new(),
            said: 0,
            events: Rates::default(),
        }
    }

    /// Takes in one thing that happened. Members and watchers that do not exist are our own mistake.
    pub fn apply(&mut self, at: Duration, input: Input) {
        self.pass_time(at);
        match input {
            Input::Condition { member, condition } => self.condition(member, condition),
            Input::Status { member, status } => self.members[member].status = status,
            Input::Sent(number) => self.writes.next = Number(number.0 + 1),
            Input::Written { number, end } => self.written(at, number, end),
            Input::Event { watcher, seen } => self.event(at, watcher, seen),
            Input::Hangs { watcher, on, resumes, last_gap } => self.hangs(watcher, on, resumes, last_gap),
            Input::WatchEnded { watcher, reason } => self.watch_ended(watcher, reason),
            Input::Begin(first) => self.begin(first),
            Input::Struck { fault, members, sight } => self.struck(at, fault, members, sight),
            Input::Returned => self.returned(at),
            Input::Over => self.set_fault_state(FaultState::Over),
            Input::Problem(text) => self.problem(text),
            Input::Said(text) => self.say(text),
            Input::Checking => self.phase = Phase::Checking,
            Input::Done(verdict) => self.phase = Phase::Done(verdict),
        }
    }

    /// Time goes on when nothing happens, too. It never goes back.
    pub fn pass_time(&mut self, at: Duration) {
        self.now = self.now.max(at);
        self.events.reach(self.now);
        self.writes.rates.reach(self.now);
    }

    fn condition(&mut self, member: usize, condition: Condition) {
        let row = &mut self.members[member];
        row.condition = condition;
        // A member that is only cut off from its clients still tells us how it is.
        if !matches!(condition, Condition::Up | Condition::Cut) {
            row.status = None;
        }
    }

    fn written(&mut self, at: Duration, number: Number, end: WriteEnd) {
        match end {
            WriteEnd::Acknowledged(revision) => {
                self.writes.acknowledged.insert(number, revision);
                self.writes.last = self.writes.last.max(Some(revision));
                self.writes.rates.count(at);
            }
            WriteEnd::Unknown => drop(self.writes.unknown.insert(number)),
            WriteEnd::NotDone => drop(self.writes.not_done.insert(number)),
        }
    }

    fn event(&mut self, at: Duration, watcher: usize, seen: Seen) {
        self.watchers[watcher].record.see(seen);
        self.events.count(at);
        let on = self.watchers[watcher].on;
        let Some(fault) = self.faults.last_mut() else { return };
        let Some(armed) = fault.armed else { return };
        if armed.number <= seen.number && fault.resumed[watcher].is_none() {
            fault.resumed[watcher] = Some(at.saturating_sub(armed.at));
            fault.to[watcher] = on;
        }
    }

    fn hangs(&mut self, watcher: usize, on: Option<usize>, resumes: u64, last_gap: Option<Duration>) {
        let row = &mut self.watchers[watcher];
        let moved = on.is_some() && on != row.on;
        (row.on, row.resumes, row.last_gap) = (on, resumes, last_gap);
        // The news of the move may come after the first event from there.
        let Some(fault) = self.faults.last_mut().filter(|fault| fault.state != FaultState::Over) else {
            return;
        };
        if moved {
            fault.to[watcher] = on;
        }
    }

    fn watch_ended(&mut self, watcher: usize, reason: String) {
        self.problem(format!("watcher {} has ended: {reason}", watcher + 1));
        self.watchers[watcher].ended = Some(reason);
    }

    fn begin(&mut self, first: Revision) {
        self.phase = Phase::Running;
        for watcher in &mut self.watchers {
            watcher.record = Record::new(first);
        }
    }

    /// `at` is the moment just before the fault; this is told just after it. So a write that is
    /// sent from now on is certainly later than the fault.
    fn struck(&mut self, at: Duration, fault: Fault, members: Vec<usize>, sight: Sight) {
        let armed = (!fault.kind.counts_from_return()).then_some(self.arm(at));
        let (from, to) = (sight.hangs_on, self.sight().hangs_on);
        self.faults.push(FaultRow {
            kind: fault.kind,
            members,
            state: FaultState::Struck,
            from,
            to,
            resumed: [None; WATCHERS],
            armed,
        });
    }

    fn returned(&mut self, at: Duration) {
        let armed = self.arm(at);
        let Some(fault) = self.faults.last_mut() else { return };
        fault.state = FaultState::Returned;
        if fault.armed.is_none() {
            fault.armed = Some(armed);
        }
    }

    fn arm(&self, at: Duration) -> Armed {
        Armed { at, number: self.writes.next }
    }

    fn set_fault_state(&mut self, state: FaultState) {
        if let Some(fault) = self.faults.last_mut() {
            fault.state = state;
        }
    }

    fn problem(&mut self, text: String) {
        self.say(format!("PROBLEM: {text}"));
        self.problems.push(text);
    }

    fn say(&mut self, text: String) {
        if self.log.len() == LOG_LINES_MAX {
            self.log.pop_front();
        }
        self.said += 1;
        self.log.push_back(LogLine { at: self.now, text });
    }

    pub fn leader(&self) -> Option<usize> {
        // A leader that was cut from the others may not know it yet: the highest term is right.
        let leads = |row: &MemberRow| row.status.filter(|status| status.leads).map(|status| status.term);
        let terms = self.members.iter().enumerate().filter_map(|(at, row)| Some((leads(row)?, at)));
        terms.max().map(|(_, member)| member)
    }

    pub fn sight(&self) -> Sight {
        let mut hangs_on = [None; WATCHERS];
        for (slot, row) in hangs_on.iter_mut().zip(&self.watchers) {
            *slot = row.on;
        }
        Sight { leader: self.leader(), hangs_on }
    }

    pub fn scene(&self) -> Scene {
        Scene {
            sight: self.sight(),
            level: self.level(),
            faults: self.faults.len(),
            resumed: self.faults.last().is_none_or(FaultRow::all_resumed),
            watch_ended: self.watchers.iter().any(|row| row.ended.is_some()),
        }
    }

    /// Whether every watcher was told of every write that was acknowledged.
    pub fn level(&self) -> bool {
        let told = |row: &WatcherRow| self.writes.last <= row.record.highest();
        self.watchers.iter().all(told)
    }

    pub fn write_rate(&self) -> u64 {
        self.writes.rates.per_second()
    }

    pub fn event_rate(&self) -> u64 {
        self.events.per_second()
    }

    /// Events in each step of [`RATE_STEP`], the latest last.
    pub fn event_steps(&self) -> &VecDeque<u64> {
        &self.events.steps
    }
}

/// Counts in steps of time; the last step is not over yet.
#[derive(Clone, Debug, Default)]
struct Rates {
    steps: VecDeque<u64>,
    /// The number of the last step, counted from the start.
    last: u64,
}

impl Rates {
    fn reach(&mut self, now: Duration) {
        let step = (now.as_millis() / RATE_STEP.as_millis()) as u64;
        let missing = step.saturating_sub(self.last).min(RATE_STEPS_MAX as u64);
        for _ in 0..missing {
            self.steps.push_back(0);
        }
        while self.steps.len() > RATE_STEPS_MAX {
            self.steps.pop_front();
        }
        self.last = self.last.max(step);
    }

    fn count(&mut self, at: Duration) {
        self.reach(at);
        match self.steps.back_mut() {
            Some(step) => *step += 1,
            None => self.steps.push_back(1),
        }
    }

    /// Over the last two steps that are complete.
    fn per_second(&self) -> u64 {
        let complete = self.steps.iter().rev().skip(1);
        let (sum, steps) = complete.take(2).fold((0, 0), |(sum, steps), count| (sum + count, steps + 1));
        let millis = steps * RATE_STEP.as_millis() as u64;
        (sum * 1000).checked_div(millis).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn seen(revision: i64, number: u64) -> Seen {
        Seen { revision: Revision::new(revision), number: Number(number) }
    }

    fn running() -> Model {
        let mut model = Model::new(1, 2);
        model.apply(ms(0), Input::Begin(Revision::new(2)));
        for number in 0..3 {
            model.apply(ms(10), Input::Sent(Number(number)));
        }
        model
    }

    fn strike(model: &mut Model, at: u64, kind: Kind) {
        let fault = Fault { kind, watcher: 0 };
        let sight = model.sight();
        model.apply(ms(at), Input::Struck { fault, members: vec![1], sight });
    }

    #[test]
    fn only_an_event_written_after_the_fault_ends_its_time() {
        let mut model = running();
        strike(&mut model, 1_000, Kind::KillWatched);
        // Numbers 0 to 2 were sent before; 3 is the first that was not.
        model.apply(ms(1_100), Input::Event { watcher: 0, seen: seen(4, 2) });
        assert_eq!(model.faults[0].resumed[0], None);
        model.apply(ms(1_400), Input::Event { watcher: 0, seen: seen(5, 3) });
        model.apply(ms(1_500), Input::Event { watcher: 0, seen: seen(6, 4) });
        assert_eq!(model.faults[0].resumed, [Some(ms(400)), None, None]);
        assert!(!model.faults[0].all_resumed());
    }

    #[test]
    fn a_lost_majority_counts_from_its_return() {
        let mut model = running();
        strike(&mut model, 1_000, Kind::Majority);
        model.apply(ms(1_100), Input::Event { watcher: 0, seen: seen(5, 3) });
        assert_eq!(model.faults[0].resumed[0], None, "that one was still on its way");
        for number in 3..6 {
            model.apply(ms(3_000), Input::Sent(Number(number)));
        }
        model.apply(ms(4_000), Input::Returned);
        model.apply(ms(4_500), Input::Event { watcher: 0, seen: seen(6, 6) });
        assert_eq!(model.faults[0].resumed[0], Some(ms(500)));
    }

    #[test]
    fn the_return_of_another_fault_does_not_count_anew() {
        let mut model = running();
        strike(&mut model, 1_000, Kind::Pause);
        model.apply(ms(5_000), Input::Returned);
        model.apply(ms(5_500), Input::Event { watcher: 2, seen: seen(5, 3) });
        assert_eq!(model.faults[0].resumed[2], Some(ms(4_500)));
    }

    #[test]
    fn a_move_is_noted_with_the_fault_that_caused_it() {
        let mut model = running();
        let hangs = |on| Input::Hangs { watcher: 0, on, resumes: 0, last_gap: None };
        model.apply(ms(500), hangs(Some(1)));
        strike(&mut model, 1_000, Kind::KillWatched);
        model.apply(ms(1_050), hangs(None));
        model.apply(ms(1_200), hangs(Some(2)));
        model.apply(ms(1_300), Input::Over);
        model.apply(ms(1_400), hangs(Some(0)));
        assert_eq!((model.faults[0].from[0], model.faults[0].to[0]), (Some(1), Some(2)));
    }

    #[test]
    fn a_watcher_that_noticed_before_the_fault_was_told_has_moved_all_the_same() {
        let mut model = running();
        let hangs = |on| Input::Hangs { watcher: 0, on, resumes: 0, last_gap: None };
        model.apply(ms(500), hangs(Some(1)));
        let sight = model.sight();
        model.apply(ms(1_001), hangs(Some(2)));
        let fault = Fault { kind: Kind::KillWatched, watcher: 0 };
        model.apply(ms(1_000), Input::Struck { fault, members: vec![1], sight });
        assert_eq!((model.faults[0].from[0], model.faults[0].to[0]), (Some(1), Some(2)));
    }

    #[test]
    fn a_scene_counts_the_fault_that_its_watchers_are_not_back_from() {
        let mut model = running();
        assert!(model.scene().resumed);
        strike(&mut model, 1_000, Kind::Cut);
        assert_eq!((model.scene().faults, model.scene().resumed), (1, false));
    }

    #[test]
    fn the_leader_is_the_one_of_the_highest_term() {
        let mut model = running();
        let says = |leads, term| Some(Status { leads, revision: Revision::new(5), term });
        for (member, status) in [says(true, 3), says(false, 4), says(true, 4)].into_iter().enumerate() {
            model.apply(ms(20), Input::Status { member, status });
        }
        assert_eq!(model.leader(), Some(2));
        model.apply(ms(30), Input::Condition { member: 2, condition: Condition::Down });
        assert_eq!(model.leader(), Some(0), "who is down says nothing");
    }

    #[test]
    fn level_means_that_each_watcher_was_told_of_each_acknowledged_write() {
        let mut model = running();
        let end = WriteEnd::Acknowledged(Revision::new(2));
        model.apply(ms(20), Input::Written { number: Number(0), end });
        assert!(!model.level());
        for watcher in 0..WATCHERS {
            model.apply(ms(30), Input::Event { watcher, seen: seen(2, 0) });
        }
        assert!(model.level());
    }

    #[test]
    fn silence_shows_as_empty_steps() {
        let mut model = running();
        for millis in [100, 200, 300] {
            model.apply(ms(millis), Input::Event { watcher: 0, seen: seen(2, 0) });
        }
        model.apply(ms(600), Input::Event { watcher: 0, seen: seen(3, 1) });
        model.pass_time(ms(1_700));
        assert_eq!(model.event_steps(), &[3, 1, 0, 0]);
        assert_eq!(model.event_rate(), 1);
        model.pass_time(Duration::from_secs(10_000));
        assert_eq!(model.event_steps().len(), RATE_STEPS_MAX);
    }

    #[test]
    fn the_log_keeps_its_last_lines() {
        let mut model = running();
        for line in 0..LOG_LINES_MAX + 5 {
            model.apply(ms(1), Input::Said(line.to_string()));
        }
        assert_eq!(model.log.len(), LOG_LINES_MAX);
        assert_eq!(model.log.back().map(|line| line.text.as_str()), Some("204"));
    }
}
