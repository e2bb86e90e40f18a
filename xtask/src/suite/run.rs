//! Runs one suite: shows its output, keeps it, counts its tests, and ends it when its time is up.
//!
//! The suite stays in our process group, so that Ctrl-C reaches it. When a suite is ended, so are
//! the processes it started, each by its own id, and no others.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Bench;
use super::digest::Digest;
use super::plan::Suite;
use crate::process::forget_our_package;

/// How long output may still arrive after a suite has ended, from a process that outlived it.
const DRAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    pub elapsed: Duration,
    pub budget: Duration,
    pub verdict: Verdict,
    pub passed: u64,
    pub failed: u64,
    /// The lines in which the test harness sums up, and those that tell of something left out.
    pub notable: Vec<String>,
    pub failed_tests: Vec<String>,
    /// Why, in its own words.
    pub excerpt: Vec<String>,
    pub broken_promise: bool,
}

impl Report {
    /// Of what is no suite: it has no budget and counts no tests.
    pub fn step(name: &str, elapsed: Duration, verdict: Verdict) -> Report {
        Report {
            name: name.to_owned(),
            elapsed,
            budget: Duration::ZERO,
            verdict,
            passed: 0,
            failed: 0,
            notable: Vec::new(),
            failed_tests: Vec::new(),
            excerpt: Vec::new(),
            broken_promise: false,
        }
    }

    pub fn is_step(&self) -> bool {
        self.budget == Duration::ZERO
    }

    /// Of a suite that counted nothing yet.
    #[cfg(test)]
    pub fn new(name: &str, verdict: Verdict) -> Report {
        let step = Report::step(name, Duration::from_secs(1), verdict);
        Report { budget: Duration::from_secs(60), ..step }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    OutOfTime,
    /// It failed beside the others, and passed by itself.
    Unsteady,
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::OutOfTime => "OUT OF TIME",
            Verdict::Unsteady => "UNSTEADY",
        })
    }
}

/// With a `label`, every line it prints is shown behind that: others print at the same time.
pub fn run(suite: &Suite, bench: &Bench<'_>, label: Option<&str>) -> Result<Report, String> {
    let fail = |what: &str, err: std::io::Error| format!("{}: cannot {what}: {err}", suite.name);
    let log = bench.logs.join(format!("{}.log", suite.name.replace([' ', '(', ')'], "-")));
    let log = File::create(log).map_err(|err| fail("create its log", err))?;
    let (reader, writer) = std::io::pipe().map_err(|err| fail("make a pipe", err))?;
    let second = writer.try_clone().map_err(|err| fail("make a pipe", err))?;
    let mut command = Command::new(&suite.program);
    command.args(&suite.arguments).current_dir(&suite.directory);
    forget_our_package(&mut command);
    if suite.of_package {
        command.env("CARGO_MANIFEST_DIR", &suite.directory);
    }
    if bench.long {
        command.env("MEERKAT_LONG", "1");
    }
    // The tests look here first for the etcd they compare with.
    let etcd = bench.root.join(".tools/etcd");
    if std::env::var_os("ETCD_BIN_DIR").is_none() && etcd.join("etcd").is_file() {
        command.env("ETCD_BIN_DIR", etcd);
    }
    let started = Instant::now();
    let mut child = command.stdout(writer).stderr(second).spawn().map_err(|err| fail("start", err))?;
    // The command holds our ends of the pipe: while it lives, the reader sees no end.
    drop(command);
    let (send, receive) = mpsc::channel();
    let label = label.map_or(String::new(), |label| format!("{label} | "));
    std::thread::spawn(move || copy(reader, log, &label, send));
    let status = wait(&mut child, started + suite.budget).map_err(|err| fail("wait", err))?;
    let elapsed = started.elapsed();
    Ok(report(suite, status, elapsed, digest(&receive)))
}

/// Shows and keeps every line, and sends it on.
fn copy(reader: PipeReader, mut log: File, label: &str, send: mpsc::Sender<String>) {
    let mut lines = BufReader::new(reader).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{label}{line}");
        // The log is a convenience; a full disk is not a reason to lose the run.
        let _ = writeln!(log, "{line}");
        if send.send(line).is_err() {
            return;
        }
    }
}

/// Of all lines there are, and of those that still come within a while.
fn digest(receive: &mpsc::Receiver<String>) -> Digest {
    let deadline = Instant::now() + DRAIN;
    let mut digest = Digest::default();
    while let Ok(line) = receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        digest.line(&line);
    }
    digest
}

/// Nothing, when the time was up.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if deadline <= Instant::now() {
            end_descendants(child.id());
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn end_descendants(ancestor: u32) {
    let ids: Vec<String> = descendants(ancestor, &parents()).iter().map(ToString::to_string).collect();
    if !ids.is_empty() {
        // The shell's own kill: a bare machine has no program of that name. A process that has
        // ended by itself meanwhile is as good.
        let _ =
            Command::new("sh").args(["-c", &format!("kill -KILL {} 2>/dev/null", ids.join(" "))]).status();
    }
}

/// Every process of the machine and its parent.
fn parents() -> BTreeMap<u32, u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, parent(&stat(id)?)?)))
        .collect()
}

/// The second field after the program's name, which is in parentheses and may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(ancestor: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let children = parents.iter().filter(|(_, parent)| **parent == found[next]).map(|(id, _)| *id);
        let children: Vec<u32> = children.filter(|id| !found.contains(id)).collect();
        found.extend(children);
        next += 1;
    }
    found.split_off(1)
}

fn report(suite: &Suite, status: Option<ExitStatus>, elapsed: Duration, digest: Digest) -> Report {
    let verdict = match status {
        None => Verdict::OutOfTime,
        Some(status) if status.success() => Verdict::Passed,
        Some(_) => Verdict::Failed,
    };
    let (mut passed, mut failed) = digest.counts();
    if verdict != Verdict::Passed && failed == 0 {
        // It ended before it could count: that is one failure at the least.
        failed = 1;
    }
    if !suite.counts && verdict == Verdict::Passed && !digest.skipped() {
        passed = 1;
    }
    Report {
        name: suite.name.clone(),
        elapsed,
        budget: suite.budget,
        verdict,
        passed,
        failed,
        notable: digest.notable,
        failed_tests: digest.failed_tests,
        excerpt: digest.excerpt,
        broken_promise: digest.broken_promise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::again::Again;

    fn suite(script: &str, budget_ms: u64) -> Suite {
        Suite {
            arguments: vec!["-c".to_owned(), script.to_owned()],
            budget: Duration::from_millis(budget_ms),
            counts: true,
            again: Again::Never,
            ..Suite::script("it", "sh", &std::env::temp_dir(), 0)
        }
    }

    fn run_in_a_directory_of_its_own(name: &str, suite: &Suite) -> Report {
        let logs = std::env::temp_dir().join(format!("meerkat-xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&logs).expect("a temporary directory");
        let report = run(suite, &Bench { root: &logs, total: 1, logs: &logs, long: false }, None);
        let report = report.expect("sh starts");
        std::fs::remove_dir_all(&logs).expect("it was just created");
        report
    }

    #[test]
    fn a_suite_that_dies_uncounted_is_a_failure() {
        let report = run_in_a_directory_of_its_own("dies", &suite("exit 101", 10_000));
        assert_eq!((report.verdict, report.passed, report.failed), (Verdict::Failed, 0, 1));
    }

    #[test]
    fn a_suite_that_hangs_is_ended_with_what_it_started() {
        let report = run_in_a_directory_of_its_own("hangs", &suite("sleep 60 & echo SKIPPED; wait", 300));
        assert_eq!((report.verdict, report.failed), (Verdict::OutOfTime, 1));
        assert_eq!(report.notable, ["SKIPPED"]);
        // Had the sleeper lived on, it would have held the pipe and with it the drain.
        assert!(report.elapsed < Duration::from_secs(20), "{:?}", report.elapsed);
    }

    #[test]
    fn descendants_are_found_through_every_generation() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (6, 9)]);
        assert_eq!(descendants(2, &parents), [3, 4]);
        assert_eq!(parent("7 (a ) b) S 3 7 7"), Some(3));
    }
}
