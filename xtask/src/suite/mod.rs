//! Every test suite, each with its time and its budget: in lanes, side by side, and at the end alone those
//! that measure.
//!
//! All test programs are built first, by one cargo call with one choice of features, so that a
//! suite's time is that of its tests and RocksDB is compiled once. A suite that outruns its budget
//! is ended and has failed: nothing hangs a run. What failed by the clock gets a second look. The output of
//! each suite is shown as it comes and kept in `target/test-logs`. What comes before the suites (setup,
//! format, tidy, the build) has rows of its own in the closing table.

mod again;
mod controls;
mod digest;
mod discover;
mod lanes;
mod plan;
mod run;
mod summary;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::process;
use crate::tidy;
pub use controls::is_control;
use discover::Program;
use lanes::Numbered;
use plan::Suite;
use run::{Report, Verdict};

/// What `cargo xtask test` was asked for.
pub struct Request {
    long: bool,
    /// Whether format, clippy and tidy are part of the run.
    lints: bool,
    controls: Controls,
    /// Parts of suite names; none means all suites.
    names: Vec<String>,
}

/// Which tests run, of those that judge Meerkat and those that judge the harness.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Controls {
    /// Both if the harness changed since its controls passed, or in the long form.
    IfChanged,
    Only,
}

/// Runs the controls of the harness alone, and notes that they passed on it.
pub fn prove_controls(root: &Path) -> Result<(), Failure> {
    run_request(root, &Request { long: false, lints: false, controls: Controls::Only, names: Vec::new() })?;
    Ok(controls::write_stamp(root)?)
}

pub fn test(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    run_request(root, &parse(arguments)?)
}

fn run_request(root: &Path, request: &Request) -> Result<(), Failure> {
    let began = Instant::now();
    let mut reports = Vec::new();
    let done = run_all(root, request, &mut reports);
    if let Err(reason) = &done {
        eprintln!("{reason}");
    }
    print!("{}", summary::text(&reports, began.elapsed()));
    if done.is_ok() && summary::all_passed(&reports) { Ok(()) } else { Err(Failure::Told) }
}

/// Steps and suites, each with a report. An error ends the run where it is.
fn run_all(root: &Path, request: &Request, reports: &mut Vec<Report>) -> Result<(), String> {
    step(reports, "setup for builds", || setup(root, &["builds".to_owned()]))?;
    if request.lints {
        step(reports, "format", || {
            process::run("format", process::cargo(root, &["fmt", "--all", "--check"]))
        })?;
        step(reports, "tidy", || tidy::tidy(root))?;
    }
    let for_long_forms = request.long.then(|| "long".to_owned());
    // What only tests need comes over the network while the processors build.
    let (fetched, built) = std::thread::scope(|scope| {
        let fetching = scope.spawn(|| timed(|| setup(root, for_long_forms.as_slice())));
        let built = timed(|| discover::build_test_programs(root));
        (fetching.join(), built)
    });
    let fetched =
        fetched.unwrap_or_else(|_| (Duration::ZERO, Err("the thread of the setup has panicked".to_owned())));
    row(reports, "setup for tests, beside the build", fetched)?;
    let (mut programs, target) = row(reports, "build", built)?;
    choose_controls(root, request, &mut programs)?;
    let suites = plan::plan(root, &target, &programs, request);
    let chosen: Vec<_> = suites.into_iter().filter(|suite| request.wants(suite)).collect();
    if chosen.is_empty() {
        return Err(format!("no suite is called anything like {:?}", request.names));
    }
    let logs = target.join("test-logs");
    std::fs::create_dir_all(&logs).map_err(|err| format!("cannot create {}: {err}", logs.display()))?;
    let bench = Bench { root, total: chosen.len(), logs: &logs, long: request.long };
    let numbered: Vec<Numbered<'_>> = (1..).zip(&chosen).collect();
    let (alone, beside): (Vec<_>, Vec<_>) = numbered.iter().copied().partition(|(_, suite)| suite.alone);
    reports.extend(lanes::run(beside, lanes::LANES, |suite| bench.run(suite, true))?);
    reports.extend(lanes::run(alone, 1, |suite| bench.run(suite, false))?);
    let looks = again::second_looks(&numbered, reports);
    let seconds = (1..).zip(&looks).map(|(number, suite)| bench.again(number, looks.len(), suite));
    let seconds: Vec<Report> = seconds.collect::<Result<_, _>>()?;
    again::settle(reports, &seconds);
    Ok(())
}

/// Leaves the controls out of the black boxes, or everything else.
fn choose_controls(root: &Path, request: &Request, programs: &mut Vec<Program>) -> Result<(), String> {
    let only = request.controls == Controls::Only;
    let both = request.long || !controls::are_proved(root)?;
    if both && !only {
        println!("controls: the harness changed, or the long form is asked for: they run on etcd too");
        return Ok(());
    }
    for program in programs.iter_mut() {
        program.tests.retain(|test| is_control(test) == only);
    }
    programs.retain(|program| !program.tests.is_empty() || (!only && !program.is_black_box()));
    Ok(())
}

fn setup(root: &Path, arguments: &[String]) -> Result<(), String> {
    process::run("setup", process::bash(root, "scripts/setup", arguments))
}

/// What is no suite, as a row with its time.
fn step<T>(
    reports: &mut Vec<Report>,
    name: &str,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    row(reports, name, timed(work))
}

fn timed<T>(work: impl FnOnce() -> Result<T, String>) -> (Duration, Result<T, String>) {
    let began = Instant::now();
    let done = work();
    (began.elapsed(), done)
}

fn row<T>(
    reports: &mut Vec<Report>,
    name: &str,
    (elapsed, done): (Duration, Result<T, String>),
) -> Result<T, String> {
    let verdict = if done.is_ok() { Verdict::Passed } else { Verdict::Failed };
    reports.push(Report::step(name, elapsed, verdict));
    done
}

/// Where suites are run and told of.
struct Bench<'a> {
    root: &'a Path,
    total: usize,
    logs: &'a Path,
    long: bool,
}

impl Bench<'_> {
    fn run(&self, (number, suite): Numbered<'_>, labelled: bool) -> Result<Report, String> {
        println!("\n==> suite {number}/{}: {} (budget {} s)", self.total, suite.name, suite.budget.as_secs());
        self.attend(suite, labelled)
    }

    fn again(&self, number: usize, total: usize, suite: &Suite) -> Result<Report, String> {
        println!("\n==> second look {number}/{total}: {}", suite.name);
        self.attend(suite, false)
    }

    fn attend(&self, suite: &Suite, labelled: bool) -> Result<Report, String> {
        let (name, budget) = (&suite.name, suite.budget.as_secs());
        let label = labelled.then(|| name.rsplit(' ').next().unwrap_or(name));
        let report = run::run(suite, self, label)?;
        println!("<== {name}: {} in {:.1} s of {budget} s", report.verdict, report.elapsed.as_secs_f64());
        Ok(report)
    }
}

impl Request {
    fn wants(&self, suite: &Suite) -> bool {
        (self.controls != Controls::Only || suite.of_package) && self.wants_name(&suite.name)
    }

    fn wants_name(&self, suite: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| suite.contains(name.as_str()))
    }
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request { long: false, lints: false, controls: Controls::IfChanged, names: Vec::new() };
    for argument in arguments {
        match argument.as_str() {
            "--long" => request.long = true,
            "--lints" => request.lints = true,
            flag if flag.starts_with('-') => {
                return Err(format!("test: there is no flag {flag}; there are --long and --lints"));
            }
            name => request.names.push(name.to_owned()),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &[&str]) -> Result<Request, String> {
        parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn names_choose_suites_and_none_chooses_all() {
        let all = request(&[]).expect("no arguments");
        assert!(all.wants_name("meerkat-state unit") && !all.long);
        let some = request(&["--long", "state", "crash"]).expect("names");
        assert!(some.long && some.wants_name("meerkat-state unit") && some.wants_name("meerkat-chaos crash"));
        assert!(!some.wants_name("meerkat-raft it"));
    }

    #[test]
    fn a_misspelt_flag_is_refused() {
        assert!(request(&["--lnog"]).is_err());
    }
}
