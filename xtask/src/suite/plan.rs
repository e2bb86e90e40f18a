//! Which suites there are, in which order, and how long each may take.
//!
//! From the inside out: a broken vocabulary is reported before the thirty tests it breaks. Suites
//! that start real processes come last, and run their tests one at a time. After those come the builds,
//! beside suites that judge nothing by the clock; the very last are those that mostly wait, for elections
//! and for leases to run out: two of these run side by side, the longest first.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::again::Again;
use super::discover::{Kind, Program};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    pub budget: Duration,
    /// Whether the program reports as Rust's test harness does. One that does not is one test.
    pub counts: bool,
    pub company: Company,
    /// Whether it is a test program of a package, and looks for its files beside the package's manifest.
    pub of_package: bool,
    pub again: Again,
}

/// What a suite may run beside. In the order in which suites run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Company {
    /// It measures, or keeps both cores busy by itself.
    Nobody,
    /// Sturdy ones: it builds first. Not another build, as cargo has one lock.
    Builds,
    /// Builds and others like it: it judges nothing by the clock.
    Sturdy,
    /// Others like it: both cores are idle most of the time, and it promises nothing about speed.
    Waiting,
}

const STURDY: &[&str] = &[
    "meerkat-chaos auth_differential",
    "meerkat-chaos bad_input",
    "meerkat-chaos crash",
    "meerkat-chaos differential",
    "meerkat-chaos disks",
    "meerkat-chaos fault_points",
    "meerkat-chaos incidents",
    "meerkat-chaos netns",
    "meerkat-chaos snapshot",
    "meerkat-chaos watch_crash",
];

/// Packages whose test programs start members or clusters, and wait for them by the clock.
const AMONG_CLOCKS: &[&str] = &["meerkat-client", "meerkat-listwatch", "meerkat", "meerkat-chaos"];

const WAITING: &[&str] = &[
    "meerkat-client it",
    "meerkat-chaos churn",
    "meerkat-chaos client_fate",
    "meerkat-chaos clocks",
    "meerkat-chaos cluster_differential",
    "meerkat-chaos lease_differential",
    "meerkat-chaos lease_incidents",
    "meerkat-chaos lease_precision",
    "meerkat-chaos listwatch",
    "meerkat-chaos lock_differential",
    "meerkat-chaos maintenance",
    "meerkat-chaos membership",
    "meerkat-chaos membership_chaos",
    "meerkat-chaos smoke",
];

const ORDER: &[&str] = &[
    "xtask",
    "meerkat-types",
    "meerkat-mangle",
    "meerkat-trust",
    "meerkat-proto",
    "meerkat-engine",
    "meerkat-state",
    "meerkat-watch",
    "meerkat-raft",
    "meerkat-server",
    "meerkat-client",
    "meerkat-listwatch",
    "meerkat",
    "meerkat-chaos",
];

/// Seconds a suite may take on two cores, in its short form, where that is not [`budget_default`].
/// About three times what it takes there when nothing else runs.
const BUDGETS: &[(&str, u64)] = &[
    ("meerkat-state it", 300),
    ("meerkat-raft it", 300),
    ("meerkat-client it", 900),
    ("meerkat-listwatch unit", 180),
    ("meerkat it", 600),
    ("meerkat-chaos client_failover", 600),
    ("meerkat-chaos client_fate", 400),
    ("meerkat-chaos membership", 600),
    ("meerkat-chaos smoke", 960),
];

/// A long form does ten times the work of a short one.
const LONG_FACTOR: u32 = 10;

pub fn plan(root: &Path, programs: &[Program], long: bool) -> Vec<Suite> {
    let mut programs: Vec<&Program> = programs.iter().collect();
    programs.sort_by_key(|program| (position(&program.package), program.kind.clone()));
    let mut suites: Vec<Suite> = programs.into_iter().map(suite_of).collect();
    suites.push(documentation(root));
    suites.push(simulation(root));
    suites.push(demo(root, "failover", 240));
    suites.push(demo(root, "controllers", 240));
    suites.push(packages(root));
    suites.push(compose(root));
    suites.push(clients(root));
    suites.push(patroni(root));
    // Stable: each part keeps its order, but for the last, which ends soonest with the longest first.
    suites.sort_by_key(|suite| {
        let longest_first = (suite.company == Company::Waiting).then_some(Reverse(suite.budget));
        (suite.company, longest_first)
    });
    if long {
        suites.iter_mut().for_each(|suite| suite.budget *= LONG_FACTOR);
    }
    suites
}

/// A crate that nobody has placed yet comes after those that have been.
fn position(package: &str) -> usize {
    ORDER.iter().position(|name| *name == package).unwrap_or(ORDER.len())
}

fn suite_of(program: &Program) -> Suite {
    let black_box = program.package == "meerkat-chaos" && matches!(program.kind, Kind::Integration(_));
    let (what, arguments): (&str, &[&str]) = match &program.kind {
        Kind::Library => ("unit", &[]),
        Kind::Binary(_) => ("unit (program)", &[]),
        // What these print is part of their result: coverage, sizes, times. One at a time it can be
        // shown as it comes.
        Kind::Integration(name) if black_box => (name, &["--test-threads=1", "--nocapture"]),
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
        company: company(&name),
        of_package: true,
        again: again(program),
        name,
        program: program.executable.clone(),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        directory: program.directory.clone(),
        counts: true,
    }
}

fn again(program: &Program) -> Again {
    let clocks = AMONG_CLOCKS.contains(&program.package.as_str());
    if clocks && matches!(program.kind, Kind::Integration(_)) { Again::Tests } else { Again::Never }
}

fn company(suite: &str) -> Company {
    match suite {
        _ if STURDY.contains(&suite) => Company::Sturdy,
        _ if WAITING.contains(&suite) => Company::Waiting,
        _ => Company::Nobody,
    }
}

fn budget_default(kind: &Kind, black_box: bool) -> u64 {
    match kind {
        Kind::Integration(_) if black_box => 600,
        Kind::Integration(_) => 300,
        Kind::Library | Kind::Binary(_) => 180,
    }
}

/// The examples in the documentation of the libraries. Rustdoc builds these itself.
fn documentation(root: &Path) -> Suite {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    Suite {
        name: "documentation examples".to_owned(),
        program: cargo,
        arguments: ["test", "--release", "--workspace", "--doc"].map(str::to_owned).to_vec(),
        directory: root.to_path_buf(),
        budget: Duration::from_secs(600),
        counts: true,
        company: Company::Builds,
        of_package: false,
        again: Again::Never,
    }
}

/// A cluster from a seed, hundreds of times, and the database in memory that it stands on. Built apart, with a feature that no member that ships has.
fn simulation(root: &Path) -> Suite {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let packages =
        ["--package", "meerkat-sim", "--package", "meerkat-engine", "--features", "meerkat-sim/world"];
    let arguments = [&["test", "--release"], packages.as_slice(), &["--", "--show-output"]].concat();
    Suite {
        name: "simulation".to_owned(),
        program: cargo,
        arguments: arguments.into_iter().map(str::to_owned).collect(),
        directory: root.to_path_buf(),
        // Mostly for the build.
        budget: Duration::from_secs(900),
        counts: true,
        company: Company::Builds,
        of_package: false,
        again: Again::Never,
    }
}

/// The libraries that others depend on, packed and built from what was packed.
fn packages(root: &Path) -> Suite {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let packages = ["meerkat-types", "meerkat-proto", "meerkat-trust", "meerkat-client"];
    let mut arguments = vec!["package".to_owned(), "--allow-dirty".to_owned()];
    arguments.extend(packages.iter().flat_map(|package| ["--package".to_owned(), (*package).to_owned()]));
    Suite {
        name: "packages".to_owned(),
        program: cargo,
        arguments,
        directory: root.to_path_buf(),
        budget: Duration::from_secs(600),
        counts: false,
        company: Company::Builds,
        of_package: false,
        again: Again::Never,
    }
}

/// A demo as a visitor runs it, without a terminal. It fails by its own verdict.
fn demo(root: &Path, name: &str, budget_s: u64) -> Suite {
    Suite {
        name: format!("{name} demo"),
        program: root.join(format!("scripts/demo-{name}")),
        arguments: vec!["--plain".to_owned()],
        directory: root.to_path_buf(),
        budget: Duration::from_secs(budget_s),
        counts: false,
        company: Company::Nobody,
        of_package: false,
        again: Again::Whole,
    }
}

/// Three containers from the image, one of them killed. Says so and ends well without an engine.
fn compose(root: &Path) -> Suite {
    Suite {
        name: "docker compose".to_owned(),
        program: root.join("scripts/test-compose"),
        arguments: Vec::new(),
        directory: root.to_path_buf(),
        budget: Duration::from_secs(240),
        counts: false,
        company: Company::Nobody,
        of_package: false,
        again: Again::Whole,
    }
}

/// The own tests of clients that others wrote, whose lines it sums up as the harness does. They insist
/// on port 2379; of those that run beside it, none takes that.
fn clients(root: &Path) -> Suite {
    Suite {
        name: "third-party clients".to_owned(),
        program: root.join("scripts/test-clients"),
        arguments: Vec::new(),
        directory: root.to_path_buf(),
        // It also builds the tests of a crate.
        budget: Duration::from_secs(700),
        counts: true,
        company: Company::Waiting,
        of_package: false,
        again: Again::Whole,
    }
}

/// PostgreSQL under Patroni, over the JSON gateway: its leader killed, and a member.
fn patroni(root: &Path) -> Suite {
    Suite {
        name: "patroni".to_owned(),
        program: root.join("scripts/test-patroni"),
        arguments: Vec::new(),
        directory: root.to_path_buf(),
        budget: Duration::from_secs(480),
        counts: false,
        company: Company::Waiting,
        of_package: false,
        again: Again::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, kind: Kind) -> Program {
        Program { package: package.to_owned(), directory: "/src".into(), kind, executable: "/src/it".into() }
    }

    fn names(programs: &[Program]) -> Vec<String> {
        plan(Path::new("/src"), programs, false).into_iter().map(|suite| suite.name).collect()
    }

    #[test]
    fn suites_run_from_the_inside_out_and_black_boxes_last() {
        let it = |name: &str| Kind::Integration(name.to_owned());
        let programs = [
            program("meerkat-chaos", it("pause")),
            program("meerkat-state", it("it")),
            program("meerkat-state", Kind::Library),
            program("meerkat-types", Kind::Library),
        ];
        let expected = [
            "meerkat-types unit",
            "meerkat-state unit",
            "meerkat-state it",
            "meerkat-chaos pause",
            "failover demo",
            "controllers demo",
            "docker compose",
            "documentation examples",
            "simulation",
            "packages",
            "third-party clients",
            "patroni",
        ];
        assert_eq!(names(&programs), expected);
    }

    #[test]
    fn black_box_tests_run_one_at_a_time() {
        let suite = suite_of(&program("meerkat-chaos", Kind::Integration("crash".to_owned())));
        assert_eq!(suite.arguments, ["--test-threads=1", "--nocapture"]);
    }

    #[test]
    fn suites_that_may_have_company_come_last_and_of_those_that_wait_the_longest_first() {
        let it = |name: &str| Kind::Integration(name.to_owned());
        let chaos = ["churn", "smoke", "netns", "watch_many"].map(|name| program("meerkat-chaos", it(name)));
        let suites = plan(Path::new("/src"), &chaos, false);
        let of = |company: Company| {
            let found = suites.iter().filter(|suite| suite.company == company);
            found.map(|suite| suite.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of(Company::Sturdy), ["meerkat-chaos netns"]);
        assert_eq!(
            of(Company::Waiting),
            ["meerkat-chaos smoke", "third-party clients", "meerkat-chaos churn", "patroni"]
        );
        assert_eq!(of(Company::Nobody)[0], "meerkat-chaos watch_many");
        assert!(suites.is_sorted_by_key(|suite| suite.company));
    }

    #[test]
    fn every_row_of_the_budgets_names_a_package_that_is_placed() {
        for (suite, _) in BUDGETS {
            let package = suite.split(' ').next().expect("a name has a first word");
            assert!(ORDER.contains(&package), "{suite}");
        }
    }
}
