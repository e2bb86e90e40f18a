//! What closes a run: the harness's own lines, a table of the suites, and one line to grep for.

use std::fmt::Write;
use std::time::Duration;

use super::run::{Report, Verdict};

pub fn all_passed(reports: &[Report]) -> bool {
    let good = |report: &Report| matches!(report.verdict, Verdict::Passed | Verdict::Unsteady);
    reports.iter().all(|report| good(report) && report.failed == 0)
}

/// The last line is the sum, alone, whatever happened. `elapsed` is that of the whole run.
pub fn text(reports: &[Report], elapsed: Duration) -> String {
    let mut out = String::from("\n==> summary\n");
    for report in reports {
        for line in report.notable.iter().filter(|line| !line.contains(" 0 passed; 0 failed;")) {
            push(&mut out, format_args!("{line}  ({})", report.name));
        }
    }
    let width = reports.iter().map(|report| report.name.len()).max().unwrap_or(0);
    push(
        &mut out,
        format_args!(
            "\n{:width$}  {:11}  {:>7}  {:>7}  {:>6}  {:>6}",
            "suite", "", "time", "budget", "passed", "failed"
        ),
    );
    for report in reports {
        let elapsed = report.elapsed.as_secs_f64();
        let budget = if report.is_step() { "-".to_owned() } else { format!("{}s", report.budget.as_secs()) };
        let (name, verdict) = (&report.name, report.verdict);
        let (passed, failed) = (report.passed, report.failed);
        push(
            &mut out,
            format_args!(
                "{name:width$}  {verdict:11}  {elapsed:>6.1}s  {budget:>7}  {passed:>6}  {failed:>6}"
            ),
        );
    }
    for report in reports.iter().filter(|report| report.verdict != Verdict::Passed) {
        tell_why(&mut out, report);
    }
    let suites = reports.iter().filter(|report| !report.is_step()).count();
    let minutes = elapsed.as_secs_f64() / 60.0;
    push(&mut out, format_args!("\n{suites} suites; the whole run took {minutes:.1} minutes"));
    let passed: u64 = reports.iter().map(|report| report.passed).sum();
    let failed: u64 = reports.iter().map(|report| report.failed).sum();
    push(&mut out, format_args!("{passed} passed, {failed} failed"));
    out
}

/// What failed, even if only once, is told by name and with its own words at the end, where it is looked for.
fn tell_why(out: &mut String, report: &Report) {
    push(out, format_args!("\n{}: {}", report.verdict, report.name));
    for test in &report.failed_tests {
        push(out, format_args!("  {test}"));
    }
    if report.broken_promise {
        push(out, format_args!("  a promise was broken: no second look"));
    }
    for line in &report.excerpt {
        push(out, format_args!("  | {line}"));
    }
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: Verdict, passed: u64, failed: u64) -> Report {
        let notable = vec![format!("test result: ok. {passed} passed; {failed} failed;")];
        Report { passed, failed, notable, ..Report::new(name, verdict) }
    }

    #[test]
    fn the_last_line_sums_all_suites() {
        let reports = [report("a", Verdict::Passed, 3, 0), report("b", Verdict::Failed, 4, 2)];
        let text = text(&reports, Duration::from_secs(90));
        assert_eq!(text.lines().last(), Some("7 passed, 2 failed"));
        assert!(text.contains("\ntest result: ok. 3 passed; 0 failed;  (a)\n"), "{text}");
        assert!(!all_passed(&reports));
        assert!(all_passed(&reports[..1]));
    }

    #[test]
    fn a_step_is_a_row_that_is_no_suite() {
        let step = Report::step("build", Duration::from_secs(600), Verdict::Passed);
        let text = text(&[step, report("a", Verdict::Passed, 3, 0)], Duration::from_secs(660));
        assert!(text.contains("build  passed"), "{text}");
        assert!(text.contains("\n1 suites; the whole run took 11.0 minutes\n"), "{text}");
    }

    #[test]
    fn a_suite_out_of_time_fails_the_run() {
        assert!(!all_passed(&[report("a", Verdict::OutOfTime, 3, 0)]));
    }

    #[test]
    fn what_failed_is_named_with_its_words_also_if_it_passed_by_itself() {
        let unsteady = Report {
            failed_tests: vec!["a::b".to_owned()],
            excerpt: vec!["thread 'a::b' panicked at it.rs:3:".to_owned()],
            ..report("it", Verdict::Unsteady, 5, 0)
        };
        let text = text(std::slice::from_ref(&unsteady), Duration::ZERO);
        let told = "\nUNSTEADY: it\n  a::b\n  | thread 'a::b' panicked at it.rs:3:\n";
        assert!(text.contains(told), "{text}");
        assert!(text.ends_with("5 passed, 0 failed\n"), "{text}");
        assert!(all_passed(&[unsteady]));
    }
}
