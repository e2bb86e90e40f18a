//! Every test suite in a set order, each with its time and its budget: one after the other, then the
//! builds beside suites that do not mind, and at the end two at a time those that mostly wait.
//!
//! All test programs are built first, by one cargo call with one choice of features, so that a
//! suite's time is that of its tests and RocksDB is compiled once. A suite that outruns its budget
//! is ended and has failed: nothing hangs a run. What failed by the clock gets a second look. The output of each suite is shown as it comes and
//! kept in `target/test-logs`.

mod again;
mod digest;
mod discover;
mod plan;
mod run;
mod summary;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::Failure;
use crate::process;
use plan::{Company, Suite};
use run::Report;

/// What `cargo xtask test` was asked for.
struct Request {
    long: bool,
    /// Parts of suite names; none means all suites.
    names: Vec<String>,
}

pub fn test(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    // The black-box suites start the one, and the images hold both: built as scripts/image builds them.
    let programs = ["build", "--release", "--package", "meerkat", "--package", "meerkat-chaos", "--bins"];
    process::run("build", process::cargo(root, &programs))?;
    let (programs, target) = discover::build_test_programs(root)?;
    let suites = plan::plan(root, &programs, request.long);
    let chosen: Vec<_> = suites.into_iter().filter(|suite| request.wants(&suite.name)).collect();
    if chosen.is_empty() {
        return Err(format!("no suite is called anything like {:?}", request.names).into());
    }
    let logs = target.join("test-logs");
    std::fs::create_dir_all(&logs).map_err(|err| format!("cannot create {}: {err}", logs.display()))?;
    let numbered: Vec<(usize, &Suite)> = (1..).zip(&chosen).collect();
    let bench = Bench { total: chosen.len(), logs: &logs, long: request.long };
    let queue = |company: Company| {
        Mutex::new(
            numbered.iter().copied().filter(|(_, suite)| suite.company == company).collect::<VecDeque<_>>(),
        )
    };
    let (alone, builds) = (queue(Company::Nobody), queue(Company::Builds));
    let (sturdy, waiting) = (queue(Company::Sturdy), queue(Company::Waiting));
    let mut reports = bench.run_lane(&[&alone], false)?;
    reports.extend(bench.run_lanes([&[&builds, &sturdy], &[&sturdy]])?);
    reports.extend(bench.run_lanes([&[&waiting], &[&waiting]])?);
    let looks = again::second_looks(&numbered, &reports);
    let seconds = (1..).zip(&looks).map(|(number, suite)| bench.again(number, looks.len(), suite));
    let seconds: Vec<Report> = seconds.collect::<Result<_, _>>()?;
    again::settle(&mut reports, &seconds);
    print!("{}", summary::text(&reports));
    if summary::all_passed(&reports) { Ok(()) } else { Err(Failure::Told) }
}

/// Where suites are run and told of.
struct Bench<'a> {
    total: usize,
    logs: &'a Path,
    long: bool,
}

impl Bench<'_> {
    fn run(&self, number: usize, suite: &Suite, labelled: bool) -> Result<Report, String> {
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
        let report = run::run(suite, self.logs, self.long, label)?;
        println!("<== {name}: {} in {:.1} s of {budget} s", report.verdict, report.elapsed.as_secs_f64());
        Ok(report)
    }

    /// Two lanes side by side.
    fn run_lanes(&self, lanes: [&[&Queue<'_>]; 2]) -> Result<Vec<Report>, String> {
        let done = std::thread::scope(|scope| {
            let lanes = lanes.map(|queues| scope.spawn(move || self.run_lane(queues, true)));
            lanes.map(|lane| lane.join().unwrap_or_else(|_| Err("a lane of suites panicked".to_owned())))
        });
        let mut reports = Vec::new();
        for lane in done {
            reports.extend(lane?);
        }
        Ok(reports)
    }

    /// What is in these queues, one suite after the other.
    fn run_lane(&self, queues: &[&Queue<'_>], labelled: bool) -> Result<Vec<Report>, String> {
        let mut reports = Vec::new();
        for queue in queues {
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some((number, suite)) = next() {
                reports.push(self.run(number, suite, labelled)?);
            }
        }
        Ok(reports)
    }
}

/// Suites that lanes take from, with their numbers.
type Queue<'a> = Mutex<VecDeque<(usize, &'a Suite)>>;

impl Request {
    fn wants(&self, suite: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| suite.contains(name.as_str()))
    }
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request { long: false, names: Vec::new() };
    for argument in arguments {
        match argument.as_str() {
            "--long" => request.long = true,
            flag if flag.starts_with('-') => {
                return Err(format!("test: there is no flag {flag}; there is --long"));
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
        assert!(all.wants("meerkat-state unit") && !all.long);
        let some = request(&["--long", "state", "crash"]).expect("names");
        assert!(some.long && some.wants("meerkat-state unit") && some.wants("meerkat-chaos crash"));
        assert!(!some.wants("meerkat-raft it"));
    }

    #[test]
    fn a_misspelt_flag_is_refused() {
        assert!(request(&["--lnog"]).is_err());
    }
}
