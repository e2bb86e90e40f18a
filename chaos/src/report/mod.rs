//! What a person looks at after a run: one HTML file that needs nothing else.
//!
//! A `Story` is everything known about a run. Each piece of the page is made from it by a pure
//! function; this file alone touches the disk. The page fetches nothing, says the essentials without
//! scripts, and stays small however long the run was: operations are gathered into buckets of time.

pub mod buckets;
pub mod clients;
pub mod curves;
pub mod gaps;
pub mod page;
#[cfg(test)]
pub(crate) mod sample;
pub mod summary;
pub mod svg;
pub mod timeline;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::record::Verdict;
use crate::record::trace::{Fault, Record};

/// All that is known about one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Story {
    /// The name of the scenario.
    pub scenario: String,
    /// What all its choices were drawn from.
    pub seed: u64,
    /// Whose servers: `meerkat` or `etcd`.
    pub target: String,
    /// Where they stood: `local`, `compose` or `netns`.
    pub driver: String,
    /// What the servers say their version is.
    pub version: String,
    /// The command that runs it again.
    pub replay: String,
    /// How long it took, from the first operation to the last judgement.
    pub length: Duration,
    /// The outline of what happened.
    pub record: Record,
    /// What was found about each promise.
    pub verdicts: Vec<Verdict>,
    /// The members' names, by number.
    pub members: Vec<String>,
    /// Where the harness failed: what it was to prove is not proved.
    #[serde(default)]
    pub troubles: Vec<String>,
}

impl Story {
    /// Faults of this kind that were made.
    pub fn faults(&self, kind: &str) -> impl Iterator<Item = &Fault> {
        self.record.faults.iter().filter(move |fault| fault.made && fault.kind == kind)
    }
}

/// Writes the page of a run.
pub fn write(path: &Path, story: &Story) -> Result<(), Failure> {
    std::fs::write(path, page::html(story))
        .map_err(|error| Failure::harness(format!("cannot write the report {}: {error}", path.display())))
}

/// Keeps a run, so that its page can be made again.
pub fn save(path: &Path, story: &Story) -> Result<(), Failure> {
    let file = std::fs::File::create(path)
        .map_err(|error| Failure::harness(format!("cannot write the record {}: {error}", path.display())))?;
    serde_json::to_writer(std::io::BufWriter::new(file), story)
        .map_err(|error| Failure::harness(format!("cannot write the record {}: {error}", path.display())))
}

/// Reads a run that was kept.
pub fn load(path: &Path) -> Result<Story, Failure> {
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::harness(format!("cannot read the record {}: {error}", path.display())))?;
    serde_json::from_reader(std::io::BufReader::new(file))
        .map_err(|error| Failure::harness(format!("{} is not the record of a run: {error}", path.display())))
}
