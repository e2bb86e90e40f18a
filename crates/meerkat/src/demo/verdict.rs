//! The end of a run: pass or fail, why, and the table of what each fault cost.
//!
//! A run passes only if the store holds all that was acknowledged and nothing that was said not to
//! have happened, every watcher was told exactly the history, every fault took effect, and every
//! watcher came back from it.

use std::collections::BTreeMap;
use std::time::Duration;

use meerkat_types::Revision;

use super::checker::{History, Judgement, Number, judge};
use super::model::{FaultRow, Model};
use super::script::WATCHERS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub watchers: Judgement,
    pub events: u64,
    pub faults: usize,
    pub acknowledged: u64,
    /// Acknowledged, and not in the store at the revision that was told.
    pub acknowledged_lost: u64,
    /// In the store although the caller was told that it did not happen.
    pub denied_but_done: u64,
    pub unknown_done: u64,
    pub unknown_not_done: u64,
    pub problems: Vec<String>,
}

/// Weighs all that was seen against the whole history, as the store lists it at the end.
pub fn reach(model: &Model, history: &History) -> Verdict {
    let held: BTreeMap<Number, Revision> =
        history.numbers.iter().map(|(revision, number)| (*number, *revision)).collect();
    let writes = &model.writes;
    let lost = writes.acknowledged.iter().filter(|(number, revision)| held.get(number) != Some(revision));
    let is_held = |number: &&Number| held.contains_key(number);
    let unknown_done = writes.unknown.iter().filter(is_held).count();
    let mut problems = model.problems.clone();
    if model.faults.len() < model.planned {
        problems.push(format!("only {} of {} faults happened", model.faults.len(), model.planned));
    }
    if history.numbers.is_empty() {
        problems.push("nothing was written".to_owned());
    }
    let judged = model.watchers.iter().map(|watcher| judge(history, &watcher.record));
    Verdict {
        watchers: judged.fold(Judgement::default(), |sum, one| sum + one),
        events: history.numbers.len() as u64,
        faults: model.faults.len(),
        acknowledged: writes.acknowledged.len() as u64,
        acknowledged_lost: lost.count() as u64,
        denied_but_done: writes.not_done.iter().filter(is_held).count() as u64,
        unknown_done: unknown_done as u64,
        unknown_not_done: (writes.unknown.len() - unknown_done) as u64,
        problems,
    }
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.watchers.is_clean()
            && self.acknowledged_lost == 0
            && self.denied_but_done == 0
            && self.problems.is_empty()
    }

    /// One line to read, and to look for in a log.
    pub fn line(&self) -> String {
        let Judgement { lost, repeated, reordered, .. } = self.watchers;
        let word = if self.passed() { "PASS" } else { "FAIL" };
        let faults = if self.faults == 1 { "fault" } else { "faults" };
        let scope = format!("{} {faults}, {WATCHERS} watchers, {} events each", self.faults, self.events);
        format!("{word}: {lost} lost, {repeated} repeated, {reordered} reordered over {scope}")
    }

    /// What became of the writes.
    pub fn writes_line(&self) -> String {
        let unknown = match self.unknown_done + self.unknown_not_done {
            0 => "none left unknown".to_owned(),
            all => format!("{all} left unknown, of which {} had happened", self.unknown_done),
        };
        let lost = self.acknowledged_lost;
        format!("writes: {} acknowledged, {lost} of them lost; {unknown}", self.acknowledged)
    }

    /// Every reason why it did not pass.
    pub fn reasons(&self) -> Vec<String> {
        let counted = [
            (self.watchers.invented, "events told that the store never held"),
            (self.acknowledged_lost, "acknowledged writes missing from the store"),
            (self.denied_but_done, "writes found in the store though reported as not done"),
        ];
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let counted = counted.map(|(count, what)| format!("{count} {what}"));
        counted.chain(self.problems.iter().cloned()).collect()
    }
}

pub const TABLE_HEAD: [&str; 7] = ["#", "fault", "member", "watcher 1", "watcher 2", "watcher 3", "slowest"];

/// One row of the table: the fault, whom it struck, and when events flowed again at each watcher.
pub fn table_row(number: usize, fault: &FaultRow) -> [String; 7] {
    let members: Vec<String> = fault.members.iter().map(|member| member_name(*member)).collect();
    let cell = |watcher: usize| {
        let Some(time) = fault.resumed[watcher] else { return "…".to_owned() };
        match (fault.from[watcher], fault.to[watcher]) {
            (Some(from), Some(to)) if from != to => {
                format!("{} {}→{}", seconds(time), member_name(from), member_name(to))
            }
            _ => seconds(time),
        }
    };
    let slowest = if fault.all_resumed() { fault.slowest().map(seconds) } else { None };
    [
        number.to_string(),
        fault.kind.title().to_owned(),
        members.join(", "),
        cell(0),
        cell(1),
        cell(2),
        slowest.unwrap_or_else(|| "…".to_owned()),
    ]
}

pub fn member_name(member: usize) -> String {
    format!("m{}", member + 1)
}

pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::checker::Seen;
    use super::super::model::{Input, WriteEnd};
    use super::super::script::{Fault, Kind};
    use super::*;

    const NOW: Duration = Duration::from_millis(1_000);

    fn at(revision: i64) -> Revision {
        Revision::new(revision)
    }

    /// Three writes (numbers 0, 1, 2), all acknowledged at 2, 3, 4 and told to all; one fault.
    fn run() -> (Model, History) {
        let mut model = Model::new(1, 1);
        model.apply(NOW, Input::Begin(at(2)));
        let numbers: BTreeMap<Revision, Number> =
            (0..3).map(|number| (at(number as i64 + 2), Number(number))).collect();
        let fault = Fault { kind: Kind::Cut, watcher: 0 };
        let sight = model.sight();
        model.apply(NOW, Input::Struck { fault, members: vec![2], sight });
        for (revision, number) in &numbers {
            model.apply(NOW, Input::Sent(*number));
            let end = WriteEnd::Acknowledged(*revision);
            model.apply(NOW, Input::Written { number: *number, end });
            for watcher in 0..WATCHERS {
                let seen = Seen { revision: *revision, number: *number };
                model.apply(NOW * 2, Input::Event { watcher, seen });
            }
        }
        (model, History { at: at(9), numbers })
    }

    #[test]
    fn a_clean_run_passes_and_says_over_what() {
        let (model, history) = run();
        let verdict = reach(&model, &history);
        assert!(verdict.passed(), "{:?}", verdict.reasons());
        assert_eq!(
            verdict.line(),
            "PASS: 0 lost, 0 repeated, 0 reordered over 1 fault, 3 watchers, 3 events each"
        );
        assert_eq!(verdict.writes_line(), "writes: 3 acknowledged, 0 of them lost; none left unknown");
    }

    #[test]
    fn one_event_that_one_watcher_missed_fails_the_run() {
        let (model, mut history) = run();
        history.numbers.insert(at(5), Number(3));
        let verdict = reach(&model, &history);
        assert!(!verdict.passed());
        assert!(verdict.line().starts_with("FAIL: 3 lost, 0 repeated"), "{}", verdict.line());
    }

    #[test]
    fn an_acknowledged_write_that_is_not_there_fails_the_run() {
        let (mut model, history) = run();
        let end = WriteEnd::Acknowledged(at(9));
        model.apply(NOW, Input::Written { number: Number(7), end });
        let verdict = reach(&model, &history);
        assert_eq!(verdict.reasons(), ["1 acknowledged writes missing from the store"]);
        assert!(!verdict.passed());
    }

    #[test]
    fn an_unknown_write_may_be_either_but_a_denied_one_may_not_be_there() {
        let (mut model, history) = run();
        for (number, end) in [(2, WriteEnd::Unknown), (8, WriteEnd::Unknown), (9, WriteEnd::NotDone)] {
            model.apply(NOW, Input::Written { number: Number(number), end });
        }
        let verdict = reach(&model, &history);
        assert!(verdict.passed());
        assert_eq!((verdict.unknown_done, verdict.unknown_not_done), (1, 1));
        model.apply(NOW, Input::Written { number: Number(1), end: WriteEnd::NotDone });
        assert_eq!(reach(&model, &history).denied_but_done, 1);
        assert!(!reach(&model, &history).passed());
    }

    #[test]
    fn a_run_that_did_not_do_what_was_planned_does_not_pass() {
        let (mut model, history) = run();
        model.planned = 2;
        assert_eq!(reach(&model, &history).reasons(), ["only 1 of 2 faults happened"]);
        let nothing = reach(&Model::new(1, 0), &History { at: at(1), numbers: BTreeMap::new() });
        assert!(!nothing.passed());
    }

    #[test]
    fn a_row_tells_who_moved_and_who_is_still_waiting() {
        let (mut model, _) = run();
        model.faults[0].from = [Some(2), Some(0), Some(0)];
        model.faults[0].to = [Some(1), Some(0), Some(0)];
        let row = table_row(1, &model.faults[0]);
        let cut = "network cut, nothing closed";
        assert_eq!(row, ["1", cut, "m3", "1.00 s m3→m2", "1.00 s", "1.00 s", "1.00 s"]);
        model.faults[0].resumed[1] = None;
        let row = table_row(1, &model.faults[0]);
        assert_eq!((row[4].as_str(), row[6].as_str()), ("…", "…"));
    }
}
