//! What a scenario file asks for.
//!
//! The named ones are in `chaos/scenarios` and built in; any other file of the same form can be run by
//! its path. A name that nobody knows, a range that runs backwards and a cluster that could not
//! lose a member are refused, with what there is instead.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::driver::Product;
use crate::{Failure, nemesis, workload};

/// The files that are built in.
const BUILT_IN: &[(&str, &str)] = &[
    ("smoke", include_str!("../../scenarios/smoke.toml")),
    ("all", include_str!("../../scenarios/all.toml")),
    ("partitions", include_str!("../../scenarios/partitions.toml")),
    ("disks", include_str!("../../scenarios/disks.toml")),
    ("membership", include_str!("../../scenarios/membership.toml")),
    ("soak", include_str!("../../scenarios/soak.toml")),
];

/// One scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it is for, in a line.
    pub about: String,
    /// How many members the cluster begins with.
    pub members: usize,
    /// Flags for every member, of either product.
    pub flags: Vec<String>,
    /// Flags for Meerkat's members only.
    pub meerkat_flags: Vec<String>,
    /// How long faults are made.
    pub length: Duration,
    /// Before the first fault.
    pub warm_up: Duration,
    /// Between the end of one fault and the next.
    pub gap: Range,
    /// In how many of a hundred faults of the network a second one, of a process, falls within.
    pub overlap_percent: u32,
    /// Within how long after the last healing every member must serve.
    pub serve_within: Duration,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// One at a time, mostly.
    pub foreground: Vec<Kind>,
    /// Beside all others.
    pub background: Vec<Kind>,
}

/// One kind of fault, as a scenario wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// How often, relative to the others.
    pub weight: u32,
    /// For how long.
    pub lasting: Range,
}

/// From the shortest to the longest, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    #[serde(default = "three")]
    members: usize,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    meerkat_flags: Vec<String>,
    minutes: f64,
    #[serde(default = "warm_up_default")]
    warm_up_seconds: f64,
    gap_seconds: [f64; 2],
    #[serde(default)]
    overlap_percent: u32,
    #[serde(default = "serve_within_default")]
    serve_within_seconds: f64,
    workloads: Vec<String>,
    #[serde(default)]
    nemesis: Vec<Wanted>,
    #[serde(default)]
    background: Vec<Wanted>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    kind: String,
    #[serde(default = "one")]
    weight: u32,
    lasting_seconds: [f64; 2],
}

fn three() -> usize {
    3
}

fn one() -> u32 {
    1
}

fn warm_up_default() -> f64 {
    3.0
}

fn serve_within_default() -> f64 {
    30.0
}

impl Plan {
    /// The scenario of this name, or in the file at this path.
    pub fn find(name: &str) -> Result<Self, Failure> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        if !name.ends_with(".toml") {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(Failure::harness(format!(
                "there is no scenario {name:?}; there are {}; the path of a file must end in .toml",
                known.join(", ")
            )));
        }
        let text = std::fs::read_to_string(name)
            .map_err(|error| Failure::harness(format!("cannot read the scenario {name:?}: {error}")))?;
        let stem = Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
        Self::parse(&stem, &text)
    }

    /// Reads a scenario.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let bad = |why: String| Failure::harness(format!("the scenario {name}: {why}"));
        let file: File = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        if file.members == 0 || file.workloads.is_empty() {
            return Err(bad("it needs at least one member and one workload".to_owned()));
        }
        for wanted in &file.workloads {
            is_known("workload", wanted, workload::catalogue::ALL).map_err(&bad)?;
        }
        let kinds = |wanted: Vec<Wanted>| -> Result<Vec<Kind>, String> {
            wanted.into_iter().map(Kind::from_file).collect()
        };
        Ok(Self {
            name: name.to_owned(),
            about: file.about,
            members: file.members,
            flags: file.flags,
            meerkat_flags: file.meerkat_flags,
            length: seconds("minutes", file.minutes * 60.0).map_err(&bad)?,
            warm_up: seconds("warm_up_seconds", file.warm_up_seconds).map_err(&bad)?,
            gap: Range::from_file("gap_seconds", file.gap_seconds).map_err(&bad)?,
            overlap_percent: file.overlap_percent,
            serve_within: seconds("serve_within_seconds", file.serve_within_seconds).map_err(&bad)?,
            workloads: file.workloads,
            foreground: kinds(file.nemesis).map_err(&bad)?,
            background: kinds(file.background).map_err(&bad)?,
        })
    }

    /// The flags of every member of this product.
    pub fn flags_of(&self, product: Product) -> Vec<String> {
        let own = if product == Product::Meerkat { &*self.meerkat_flags } else { &[] };
        self.flags.iter().chain(own).cloned().collect()
    }
}

impl Kind {
    fn from_file(wanted: Wanted) -> Result<Self, String> {
        is_known("nemesis", &wanted.kind, &nemesis::catalogue::all())?;
        if wanted.weight == 0 {
            return Err(format!("{} has no weight: leave it out instead", wanted.kind));
        }
        let lasting = Range::from_file("lasting_seconds", wanted.lasting_seconds)?;
        Ok(Self { name: wanted.kind, weight: wanted.weight, lasting })
    }
}

impl Range {
    fn from_file(what: &str, [min, max]: [f64; 2]) -> Result<Self, String> {
        if max < min {
            return Err(format!("{what} = [{min}, {max}] runs backwards"));
        }
        Ok(Self { min: seconds(what, min)?, max: seconds(what, max)? })
    }
}

fn is_known(what: &str, name: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(format!("there is no {what} {name:?}; there are {}", known.join(", ")))
}

fn seconds(what: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|error| format!("{what}: {value}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "about = 'x'\nminutes = 0.5\ngap_seconds = [1, 2]\nworkloads = ['register']\n\
        [[nemesis]]\nkind = 'kill'\nlasting_seconds = [1, 2.5]\n";

    #[test]
    fn every_built_in_scenario_can_be_read() {
        for (name, _) in BUILT_IN {
            let plan = Plan::find(name).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(!plan.about.is_empty() && plan.name == *name);
        }
    }

    #[test]
    fn the_scenario_of_everything_has_every_fault_and_every_workload() {
        let plan = Plan::find("all").expect("it is built in");
        let kinds: Vec<&str> =
            plan.foreground.iter().chain(&plan.background).map(|kind| kind.name.as_str()).collect();
        for name in nemesis::catalogue::all() {
            assert!(kinds.contains(&name), "{name}");
        }
        // What comes and goes is judged over a long quiet time: the soak's.
        for name in workload::catalogue::ALL.iter().filter(|name| **name != "churn") {
            assert!(plan.workloads.iter().any(|workload| workload == name), "{name}");
        }
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let plan = Plan::parse("small", SMALL).expect("it can be read");
        assert_eq!((plan.members, plan.length, plan.overlap_percent), (3, Duration::from_secs(30), 0));
        assert_eq!(plan.foreground[0].lasting.max, Duration::from_millis(2_500));
    }

    #[test]
    fn a_wrong_file_is_refused_with_what_would_be_right() {
        for (from, to, named) in [
            ("'kill'", "'kil'", "there is no nemesis \"kil\"; there are"),
            ("'register'", "'registry'", "there is no workload \"registry\"; there are"),
            ("[1, 2]", "[2, 1]", "gap_seconds = [2, 1] runs backwards"),
            ("minutes = 0.5", "minutes = -1", "minutes"),
            ("about = 'x'", "abuot = 'x'", "abuot"),
            ("['register']", "[]", "at least one"),
        ] {
            let failure = Plan::parse("small", &SMALL.replace(from, to)).expect_err(to).to_string();
            assert!(failure.contains(named), "{to}: {failure}");
        }
        let failure = Plan::find("smokey").expect_err("no such scenario").to_string();
        assert!(failure.contains("there are smoke, all"), "{failure}");
    }
}
