//! Builds the test programs of the whole workspace and learns from cargo where each one lies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::cargo;

/// One test program, as cargo built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub package: String,
    /// The directory of its manifest, which is where tests expect to run.
    pub directory: PathBuf,
    pub kind: Kind,
    pub executable: PathBuf,
    /// Its tests by name, where a suite is only a part of the program; else all are meant.
    pub tests: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The tests beside the code of a library.
    Library,
    /// The tests beside the code of a program.
    Binary(String),
    /// `tests/NAME`.
    Integration(String),
}

/// Where the time of a build goes is in `target/cargo-timings`.
const BUILD: &[&str] = &[
    "test",
    "--release",
    "--workspace",
    "--no-run",
    "--timings",
    "--message-format",
    "json-render-diagnostics",
];

/// The programs, and cargo's target directory. Diagnostics and progress go to standard error.
pub fn build_test_programs(root: &Path) -> Result<(Vec<Program>, PathBuf), String> {
    println!("==> build");
    let mut command = cargo(root, BUILD);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|err| format!("cannot start cargo: {err}"))?;
    let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
    let mut programs = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|err| format!("cannot read what cargo says: {err}"))?;
        programs.extend(program(&line));
    }
    let status = child.wait().map_err(|err| format!("cannot wait for cargo: {err}"))?;
    if !status.success() {
        return Err(format!("the tests do not build: {status}"));
    }
    // target/release/deps/NAME-HASH
    let target = programs.first().and_then(|program| program.executable.ancestors().nth(3));
    let target = target.ok_or("cargo built no test at all")?.to_path_buf();
    let mut suites = Vec::new();
    for program in programs {
        if program.is_black_box() { suites.extend(by_module(&program)?) } else { suites.push(program) }
    }
    Ok((suites, target))
}

impl Program {
    pub fn is_black_box(&self) -> bool {
        self.package == BLACK_BOXES && matches!(self.kind, Kind::Integration(_))
    }
}

/// The package whose integration program has a suite in each of its modules.
const BLACK_BOXES: &str = "meerkat-chaos";

/// One program for each module of this one.
fn by_module(program: &Program) -> Result<Vec<Program>, String> {
    let mut command = Command::new(&program.executable);
    let output = command.args(["--list", "--format", "terse"]).output();
    let output = output.map_err(|err| format!("cannot start {}: {err}", program.executable.display()))?;
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for (module, test) in String::from_utf8_lossy(&output.stdout).lines().filter_map(listed) {
        modules.entry(module.to_owned()).or_default().push(test.to_owned());
    }
    let part = |(module, tests)| Program { kind: Kind::Integration(module), tests, ..program.clone() };
    Ok(modules.into_iter().map(part).collect())
}

/// Module and whole name of the test in a line like `crash::nothing_is_lost: test`.
fn listed(line: &str) -> Option<(&str, &str)> {
    let test = line.strip_suffix(": test")?;
    Some((test.split_once("::")?.0, test))
}

/// The test program that one line of cargo's messages tells of, if it does.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let name = || message["target"]["name"].as_str().unwrap_or_default().to_owned();
    let kind = match message["target"]["kind"][0].as_str()? {
        "test" => Kind::Integration(name()),
        "bin" => Kind::Binary(name()),
        _ => Kind::Library,
    };
    Some(Program {
        package: package_name(message["package_id"].as_str()?).to_owned(),
        directory: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
        kind,
        executable: PathBuf::from(message["executable"].as_str()?),
        tests: Vec::new(),
    })
}

/// The name in `path+file:///src/crates/types#meerkat-types@0.1.0`; where directory and package are
/// called the same, cargo leaves the name out: `path+file:///src/crates/meerkat#0.1.0`.
fn package_name(id: &str) -> &str {
    let (place, rest) = id.rsplit_once('#').unwrap_or((id, id));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"reason": "compiler-artifact", "package_id": "path+file:///src/chaos#meerkat-chaos@0.1.0",
        "manifest_path": "/src/chaos/Cargo.toml", "target": {"kind": ["test"], "name": "crash"},
        "profile": {"test": true}, "executable": "/src/target/release/deps/crash-1"}"#;

    #[test]
    fn a_test_program_is_told_from_the_other_messages() {
        let found = program(LINE).expect("a test program");
        assert_eq!(found.package, "meerkat-chaos");
        assert_eq!(found.directory, Path::new("/src/chaos"));
        assert_eq!(found.kind, Kind::Integration("crash".to_owned()));
        assert_eq!(program(&LINE.replace("\"test\": true", "\"test\": false")), None);
        assert_eq!(program(r#"{"reason": "build-finished", "success": true}"#), None);
    }

    #[test]
    fn a_listed_test_belongs_to_its_outermost_module() {
        assert_eq!(listed("a::b::c: test"), Some(("a", "a::b::c")));
        assert_eq!(listed("12 tests, 0 benchmarks"), None);
    }

    #[test]
    fn a_package_called_as_its_directory_is_found_too() {
        assert_eq!(package_name("path+file:///src/crates/types#meerkat-types@0.1.0"), "meerkat-types");
        assert_eq!(package_name("path+file:///src/crates/meerkat#0.1.0"), "meerkat");
    }
}
