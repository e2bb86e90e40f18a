//! The rules of the house that no compiler knows, held as a test rather than as a convention.
//!
//! Each rule is a pure function from the workspace (its packages, its files) to the places where it
//! is broken, and each has a unit test with a sample that breaks it. A rule too far off to be met
//! may carry a ratchet list beside it; no rule has one today. Tidy never changes a file.

mod absolute_paths;
mod dependencies;
mod doctests;
mod functions;
mod glossary;
mod layers;
mod leftovers;
mod libraries;
mod modules;
mod numbers;
mod promises;
mod simulation;
mod spawns;
mod statuses;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::metadata::{self, Package};
use crate::source::{self, Source};

/// One place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub path: PathBuf,
    /// Nothing where the whole file, or the manifest, is meant.
    pub line: Option<usize>,
    pub message: String,
}

impl Violation {
    fn at(source: &Source, at: usize, message: impl Into<String>) -> Violation {
        let line = Some(source::line_of(&source.text, at));
        Violation { path: source.path.clone(), line, message: message.into() }
    }

    fn whole(path: impl Into<PathBuf>, message: impl Into<String>) -> Violation {
        Violation { path: path.into(), line: None, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.path.display(), self.message),
            None => write!(out, "{}: {}", self.path.display(), self.message),
        }
    }
}

/// Holds every rule against the project as it lies on disk.
pub fn tidy(root: &Path) -> Result<(), String> {
    let packages = metadata::packages(root)?;
    let sources = source::load(root)?;
    let found = violations(&packages, &sources);
    for violation in &found {
        eprintln!("tidy: {violation}");
    }
    if found.is_empty() {
        println!("tidy: {} packages and {} files are in order", packages.len(), sources.len());
        return Ok(());
    }
    Err(format!("tidy: {} places to mend", found.len()))
}

fn violations(packages: &[Package], sources: &[Source]) -> Vec<Violation> {
    let mut found = dependencies::check(packages);
    found.extend(libraries::check_manifests(packages));
    found.extend(promises::check(sources));
    found.extend(glossary::check(sources));
    for source in sources {
        found.extend(absolute_paths::check(source));
        found.extend(leftovers::check(source));
        if source.is_rust() {
            found.extend(layers::check(source));
            found.extend(modules::check(source));
            found.extend(doctests::check(source));
            found.extend(functions::check(source));
            found.extend(libraries::check_source(source));
            found.extend(numbers::check(source));
            found.extend(simulation::check(source));
            found.extend(spawns::check(source));
            found.extend(statuses::check(source));
        }
    }
    found
}
