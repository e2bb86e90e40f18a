//! Every test suite, one after the other, in a set order, each with its time and its budget.
//!
//! All test programs are built first, by one cargo call with one choice of features, so that a
//! suite's time is that of its tests and RocksDB is compiled once. A suite that outruns its budget
//! is ended and has failed: nothing hangs a run. The output of each suite is shown as it comes and
//! kept in `target/test-logs`.

mod discover;
mod plan;
mod run;
mod summary;

use std::path::Path;

use crate::Failure;
use crate::process;

/// What `cargo xtask test` was asked for.
struct Request {
    long: bool,
    /// Parts of suite names; none means all suites.
    names: Vec<String>,
}

pub fn test(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    // The black-box suites start this program; a test build alone would not promise it is there.
    process::run("build", process::cargo(root, &["build", "--release", "--package", "meerkat"]))?;
    let (programs, target) = discover::build_test_programs(root)?;
    let suites = plan::plan(root, &programs, request.long);
    let chosen: Vec<_> = suites.into_iter().filter(|suite| request.wants(&suite.name)).collect();
    if chosen.is_empty() {
        return Err(format!("no suite is called anything like {:?}", request.names).into());
    }
    let logs = target.join("test-logs");
    std::fs::create_dir_all(&logs).map_err(|err| format!("cannot create {}: {err}", logs.display()))?;
    let total = chosen.len();
    let mut reports = Vec::new();
    for (index, suite) in chosen.iter().enumerate() {
        let budget = suite.budget.as_secs();
        println!("\n==> suite {}/{total}: {} (budget {budget} s)", index + 1, suite.name);
        let report = run::run(suite, &logs, request.long)?;
        println!(
            "<== {}: {} in {:.1} s of {budget} s",
            suite.name,
            report.verdict,
            report.elapsed.as_secs_f64()
        );
        reports.push(report);
    }
    print!("{}", summary::text(&reports));
    if summary::all_passed(&reports) { Ok(()) } else { Err(Failure::Told) }
}

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
