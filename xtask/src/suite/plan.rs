//! Which suites there are, what each may run beside, and how long each may take.
//!
//! Suites run in lanes, side by side, from the inside out: a broken vocabulary is reported before the
//! thirty tests it breaks. The longest black-box suites start first, so that lanes end together. Suites that
//! measure pairs or latencies run alone, after all others.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Request;
use super::again::Again;
use super::discover::{Kind, Program};
use crate::CLIPPY;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    pub budget: Duration,
    /// Whether the program reports as Rust's test harness does. One that does not is one test.
    pub counts: bool,
    /// Whether it measures, and so must be the only suite that runs.
    pub alone: bool,
    /// What no other suite may use at the same time.
    pub holds: Option<Resource>,
    /// Whether it is a test program of a package, and looks for its files beside the package's manifest.
    pub of_package: bool,
    pub again: Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Cargo's lock on the target directory.
    Cargo,
    /// etcd's own port, which clients' tests insist on and `meerkat dev` takes when it is free.
    Port2379,
}

/// Suites that judge pairs of runs, rates or latencies.
const ALONE: &[&str] = &[
    "meerkat-chaos big_store",
    "meerkat-chaos client_failover",
    "meerkat-chaos failover_time",
    "meerkat-chaos listwatch_index",
    "meerkat-chaos listwatch_many",
    "meerkat-chaos watch_beyond",
    "meerkat-chaos watch_many",
    "meerkat-chaos watch_stalled",
];

/// Suites that start `meerkat dev` on its usual ports.
const ON_PORT_2379: &[&str] = &["meerkat it"];

/// Packages whose test programs start members or clusters, and wait for them by the clock.
const AMONG_CLOCKS: &[&str] = &["meerkat-client", "meerkat-listwatch", "meerkat", "meerkat-chaos"];

const ORDER: &[&str] = &[
    "xtask",
    "meerkat-types",
    "meerkat-mangle",
    "meerkat-ports",
    "meerkat-trust",
    "meerkat-proto",
    "meerkat-fault",
    "meerkat-engine",
    "meerkat-state",
    "meerkat-watch",
    "meerkat-raft",
    "meerkat-server",
    "meerkat-client",
    "meerkat-kubernetes",
    "meerkat-watchcache",
    "meerkat-listwatch",
    "meerkat",
    "meerkat-sim",
    "meerkat-chaos",
];

/// Seconds a suite may take on two cores, in its short form, where that is not [`budget_default`].
/// About three times what it takes there beside two others.
const BUDGETS: &[(&str, u64)] = &[
    ("meerkat-state it", 300),
    ("meerkat-raft it", 300),
    ("meerkat-client it", 900),
    ("meerkat it", 600),
    ("meerkat-chaos client_failover", 600),
    ("meerkat-chaos client_fate", 400),
    ("meerkat-chaos membership", 600),
    ("meerkat-chaos smoke", 960),
    ("meerkat-sim seeds", 600),
];

/// A long form does ten times the work of a short one.
const LONG_FACTOR: u32 = 10;

pub fn plan(root: &Path, target: &Path, programs: &[Program], request: &Request) -> Vec<Suite> {
    let mut programs: Vec<&Program> = programs.iter().collect();
    programs.sort_by_key(|program| (position(&program.package), program.kind.clone()));
    let mut suites: Vec<Suite> = programs.into_iter().map(suite_of).collect();
    suites.push(patroni(root));
    suites.push(clients(root));
    suites.push(compose(root));
    suites.push(demo(root, target, "failover", 240));
    suites.push(demo(root, target, "controllers", 240));
    // Cargo's lock is held by one suite at a time: these begin at once, beside all others.
    let mut builds = vec![documentation(root), packages(root)];
    if request.lints {
        builds.insert(0, clippy(root));
    }
    suites.splice(0..0, builds);
    // Stable: what is in one place of the order keeps its order. Black boxes begin with the longest.
    suites.sort_by_key(|suite| {
        let is_black_box = suite.again != Again::Never;
        (suite.alone, is_black_box, is_black_box.then_some(Reverse(suite.budget)))
    });
    if request.long {
        suites.iter_mut().for_each(|suite| suite.budget *= LONG_FACTOR);
    }
    suites
}

/// A crate that nobody has placed yet comes after those that have been.
fn position(package: &str) -> usize {
    ORDER.iter().position(|name| *name == package).unwrap_or(ORDER.len())
}

fn suite_of(program: &Program) -> Suite {
    let black_box = program.is_black_box();
    let (what, options): (&str, &[&str]) = match &program.kind {
        Kind::Library => ("unit", &[]),
        Kind::Binary(_) => ("unit (program)", &[]),
        // What these print is part of their result: coverage, sizes, times. One at a time it can be
        // shown as it comes.
        Kind::Integration(name) if black_box => (name, &["--exact", "--test-threads=1", "--nocapture"]),
        // Its tests start members and mostly wait for them.
        Kind::Integration(name) if program.package == "meerkat-client" => {
            (name, &["--show-output", "--test-threads=4"])
        }
        Kind::Integration(name) => (name, &["--show-output"]),
    };
    let name = format!("{} {what}", program.package);
    let budget = BUDGETS.iter().find(|(suite, _)| *suite == name).map(|(_, seconds)| *seconds);
    Suite {
        budget: Duration::from_secs(budget.unwrap_or_else(|| budget_default(&program.kind, black_box))),
        alone: ALONE.contains(&name.as_str()),
        holds: ON_PORT_2379.contains(&name.as_str()).then_some(Resource::Port2379),
        of_package: true,
        again: again(program),
        name,
        program: program.executable.clone(),
        arguments: program.tests.iter().cloned().chain(options.iter().map(ToString::to_string)).collect(),
        directory: program.directory.clone(),
        counts: true,
    }
}

fn again(program: &Program) -> Again {
    let clocks = AMONG_CLOCKS.contains(&program.package.as_str());
    if clocks && matches!(program.kind, Kind::Integration(_)) { Again::Tests } else { Again::Never }
}

fn budget_default(kind: &Kind, black_box: bool) -> u64 {
    match kind {
        Kind::Integration(_) if black_box => 600,
        Kind::Integration(_) => 300,
        Kind::Library | Kind::Binary(_) => 180,
    }
}

impl Suite {
    /// A script or program that is one test, in lanes, with a second look.
    pub fn script(name: &str, program: impl Into<PathBuf>, directory: &Path, budget_s: u64) -> Suite {
        Suite {
            name: name.to_owned(),
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.to_path_buf(),
            budget: Duration::from_secs(budget_s),
            counts: false,
            alone: false,
            holds: None,
            of_package: false,
            again: Again::Whole,
        }
    }

    /// A call of cargo, which comes out the same each time.
    fn cargo(name: &str, root: &Path, arguments: &[&str], budget_s: u64) -> Suite {
        let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        Suite {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            holds: Some(Resource::Cargo),
            again: Again::Never,
            ..Suite::script(name, cargo, root, budget_s)
        }
    }
}

fn clippy(root: &Path) -> Suite {
    Suite::cargo("clippy", root, CLIPPY, 1_200)
}

/// The examples in the documentation of the libraries that have some. Rustdoc builds these itself.
fn documentation(root: &Path) -> Suite {
    let arguments = ["test", "--release", "--workspace", "--doc"];
    Suite { counts: true, ..Suite::cargo("documentation examples", root, &arguments, 600) }
}

/// The libraries that others depend on, packed and compiled from what was packed.
fn packages(root: &Path) -> Suite {
    let script = Suite::script("packages", root.join("scripts/test-packages"), root, 600);
    Suite { holds: Some(Resource::Cargo), again: Again::Never, ..script }
}

/// A demo as a visitor runs it, without a terminal. It fails by its own verdict.
fn demo(root: &Path, target: &Path, name: &str, budget_s: u64) -> Suite {
    Suite {
        arguments: ["demo", name, "--plain"].map(str::to_owned).to_vec(),
        holds: Some(Resource::Port2379),
        ..Suite::script(&format!("{name} demo"), target.join("release/meerkat"), root, budget_s)
    }
}

/// Three containers from the image, one of them killed. Says so and ends well without an engine.
fn compose(root: &Path) -> Suite {
    // It packs the programs with cargo's help.
    let script = Suite::script("docker compose", root.join("scripts/test-compose"), root, 400);
    Suite { holds: Some(Resource::Cargo), ..script }
}

/// The own tests of clients that others wrote, whose lines it sums up as the harness does. It also builds
/// the tests of a crate.
fn clients(root: &Path) -> Suite {
    let script = Suite::script("third-party clients", root.join("scripts/test-clients"), root, 900);
    Suite { counts: true, holds: Some(Resource::Port2379), ..script }
}

/// PostgreSQL under Patroni, over the JSON gateway: its leader killed, and a member.
fn patroni(root: &Path) -> Suite {
    Suite::script("patroni", root.join("scripts/test-patroni"), root, 480)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Controls;

    fn program(package: &str, kind: Kind) -> Program {
        Program {
            package: package.to_owned(),
            directory: "/src".into(),
            kind,
            executable: "/src/it".into(),
            tests: vec!["m::a".to_owned()],
        }
    }

    fn planned(programs: &[Program], lints: bool) -> Vec<Suite> {
        let request = Request { long: false, lints, controls: Controls::IfChanged, names: Vec::new() };
        plan(Path::new("/src"), Path::new("/src/target"), programs, &request)
    }

    #[test]
    fn suites_run_from_the_inside_out_and_those_that_measure_last() {
        let it = |name: &str| Kind::Integration(name.to_owned());
        let programs = [
            program("meerkat-chaos", it("watch_many")),
            program("meerkat-chaos", it("pause")),
            program("meerkat-state", it("it")),
            program("meerkat-state", Kind::Library),
            program("meerkat-types", Kind::Library),
        ];
        let expected = [
            "clippy",
            "documentation examples",
            "packages",
            "meerkat-types unit",
            "meerkat-state unit",
            "meerkat-state it",
            "third-party clients",
            "meerkat-chaos pause",
            "patroni",
            "docker compose",
            "failover demo",
            "controllers demo",
            "meerkat-chaos watch_many",
        ];
        let names: Vec<String> = planned(&programs, true).into_iter().map(|suite| suite.name).collect();
        assert_eq!(names, expected);
        assert_eq!(planned(&programs, false)[0].name, "documentation examples");
    }

    #[test]
    fn black_box_tests_run_by_name_and_one_at_a_time() {
        let suite = suite_of(&program("meerkat-chaos", Kind::Integration("crash".to_owned())));
        assert_eq!(suite.arguments, ["m::a", "--exact", "--test-threads=1", "--nocapture"]);
        assert_eq!(suite.name, "meerkat-chaos crash");
    }

    #[test]
    fn every_row_of_the_budgets_names_a_package_that_is_placed() {
        for (suite, _) in BUDGETS {
            let package = suite.split(' ').next().expect("a name has a first word");
            assert!(ORDER.contains(&package), "{suite}");
        }
    }
}
