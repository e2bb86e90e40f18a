//! The project's own tasks: `cargo xtask check | fix | tidy | test | controls | ci`.
//!
//! `check`, `tidy`, `test` and `ci` never change a tracked file; `fix` and `controls` write. Each
//! exits non-zero when what it looks at is not as it should be. Nothing of the product may depend
//! on this crate.

mod metadata;
mod process;
mod source;
mod suite;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use process::{cargo, run};

/// The lints of every run, with the release profile's artefacts.
const CLIPPY: &[&str] = &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];

const USAGE: &str = "\
usage: cargo xtask <task>

  check            format, clippy, tidy and the unit tests: before every push
  fix              format, and what clippy can mend by itself: the one task that writes
  tidy             the rules of the house that no compiler knows
  test [--long] [--lints] [NAME…]
                   set up, build, then run the test suites in lanes, each with its time and its budget;
                   with --lints format, tidy and clippy too
  controls         run the harness on etcd, which proves the harness, and note that it passed
  ci               exactly what CI runs
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", &[][..]),
    };
    let root = metadata::workspace_root();
    let done = match task {
        "check" => check(&root).map_err(Failure::from),
        "fix" => fix(&root).map_err(Failure::from),
        "tidy" => tidy::tidy(&root).map_err(Failure::from),
        "test" => suite::test(&root, rest),
        "controls" => suite::prove_controls(&root),
        "ci" => run("ci", process::bash(&root, ".ci/run", rest)).map_err(Failure::from),
        _ => Err(Failure::Because(USAGE.to_owned())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Because(reason)) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Why a task ends badly.
enum Failure {
    Because(String),
    /// All has been said, and what was said must stay the last line.
    Told,
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure::Because(reason)
    }
}

/// The gate before a push. The unit tests are those inside the crates; what starts processes is
/// left to `test`.
fn check(root: &Path) -> Result<(), String> {
    run("format", cargo(root, &["fmt", "--all", "--check"]))?;
    run("clippy", cargo(root, CLIPPY))?;
    tidy::tidy(root)?;
    run("unit tests", cargo(root, &["test", "--release", "--workspace", "--lib", "--bins"]))
}

fn fix(root: &Path) -> Result<(), String> {
    let clippy =
        ["clippy", "--release", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"];
    run("clippy", cargo(root, &clippy))?;
    run("format", cargo(root, &["fmt", "--all"]))
}
