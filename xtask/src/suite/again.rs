//! The second look: what failed among real processes and clocks runs once more, by itself, at the end.
//!
//! A machine that stands still for seconds fails tests that are right. A second look tells such a failure
//! from one that is there again. It is no pardon: what failed first is told in the summary with its words,
//! and its log is kept. It is not given to what finds a broken promise, since what was seen has happened;
//! nor to what has no clock in it, or is there for what happens by chance; nor when so much failed that something is wrong.

use super::plan::Suite;
use super::run::{Report, Verdict};

/// More failed tests than this in one run are no accident.
const FAILED_MAX: u64 = 8;

/// What of a suite can be run again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The same again would come out the same, or a failure by chance is what it looks for.
    Never,
    /// Tests of Rust's harness, by name.
    Tests,
    Whole,
}

/// For each suite that deserves one, the suite of its second look.
pub fn second_looks(suites: &[(usize, &Suite)], reports: &[Report]) -> Vec<Suite> {
    if FAILED_MAX < reports.iter().map(|report| report.failed).sum() {
        return Vec::new();
    }
    let suite_of = |report: &Report| suites.iter().find(|(_, suite)| suite.name == report.name);
    reports.iter().filter_map(|report| second_look(suite_of(report)?.1, report)).collect()
}

fn second_look(suite: &Suite, report: &Report) -> Option<Suite> {
    if report.verdict != Verdict::Failed || report.broken_promise {
        return None;
    }
    let arguments = match suite.again {
        Again::Never => return None,
        Again::Whole => suite.arguments.clone(),
        // A program that died did not list what failed.
        Again::Tests if report.failed_tests.is_empty() => return None,
        Again::Tests => {
            let options = ["--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
            report.failed_tests.iter().cloned().chain(options).collect()
        }
    };
    Some(Suite { name: name(&suite.name), arguments, ..suite.clone() })
}

pub fn name(suite: &str) -> String {
    format!("{suite} (again)")
}

/// What the second looks make of the first.
pub fn settle(reports: &mut [Report], seconds: &[Report]) {
    for second in seconds {
        let Some(first) = reports.iter_mut().find(|report| name(&report.name) == second.name) else {
            continue;
        };
        first.elapsed += second.elapsed;
        // All of what failed has to have run: a filter that matches nothing passes too.
        if second.verdict == Verdict::Passed && first.failed <= second.passed {
            first.passed += first.failed;
            first.failed = 0;
            first.verdict = Verdict::Unsteady;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(again: Again) -> Suite {
        let arguments = vec!["--show-output".to_owned()];
        Suite { arguments, counts: true, again, ..Suite::script("it", "it", std::path::Path::new("."), 60) }
    }

    fn failed(tests: &[&str]) -> Report {
        Report {
            failed: tests.len().max(1) as u64,
            passed: 7,
            failed_tests: tests.iter().map(ToString::to_string).collect(),
            ..Report::new("it", Verdict::Failed)
        }
    }

    fn looks(suite: &Suite, report: &Report) -> Vec<Vec<String>> {
        let looks = second_looks(&[(1, suite)], std::slice::from_ref(report));
        looks.into_iter().map(|suite| suite.arguments).collect()
    }

    #[test]
    fn failed_tests_run_again_by_name_and_by_themselves() {
        let report = failed(&["a::b", "c"]);
        let expected = ["a::b", "c", "--exact", "--nocapture", "--test-threads=1"];
        assert_eq!(looks(&suite(Again::Tests), &report), [expected]);
        assert_eq!(looks(&suite(Again::Whole), &report), [["--show-output"]]);
    }

    #[test]
    fn not_everything_gets_a_second_look() {
        let none = Vec::<Vec<String>>::new();
        assert_eq!(looks(&suite(Again::Never), &failed(&["a"])), none, "the same would come out");
        assert_eq!(looks(&suite(Again::Tests), &failed(&[])), none, "it died");
        assert_eq!(
            looks(&suite(Again::Tests), &failed(&["a", "b", "c", "d", "e", "f", "g", "h", "i"])),
            none,
            "too many"
        );
        let broken = Report { broken_promise: true, ..failed(&["a"]) };
        assert_eq!(looks(&suite(Again::Tests), &broken), none, "it has happened");
        let out_of_time = Report { verdict: Verdict::OutOfTime, ..failed(&["a"]) };
        assert_eq!(looks(&suite(Again::Whole), &out_of_time), none, "a hang is a fault");
        assert_eq!(looks(&suite(Again::Whole), &Report::new("it", Verdict::Passed)), none);
    }

    #[test]
    fn only_a_second_look_that_ran_everything_and_passed_makes_a_suite_unsteady() {
        let second = |verdict, passed| Report { passed, ..Report::new("it (again)", verdict) };
        let settled = |second: Report| {
            let mut reports = [failed(&["a", "b"])];
            settle(&mut reports, &[second]);
            (reports[0].verdict, reports[0].passed, reports[0].failed)
        };
        assert_eq!(settled(second(Verdict::Passed, 2)), (Verdict::Unsteady, 9, 0));
        assert_eq!(settled(second(Verdict::Passed, 1)), (Verdict::Failed, 7, 2));
        assert_eq!(settled(second(Verdict::Failed, 1)), (Verdict::Failed, 7, 2));
    }
}
