//! A real process is killed, or its disk fails, at each named fault point of the log; then the log
//! is opened again.
//!
//! The test starts itself again as the process to be killed: with `CHILD_DIR` in the environment
//! it writes to the log in that directory and notes, in a file beside it, what was acknowledged.

use crate::log_driver::{CLUSTER, MEMBER, append, entry, id, last, purged, read_all};
use meerkat_fault as fault;
use meerkat_raft::log_store::{LogOptions, LogStore};
use meerkat_raft::type_config::Vote;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

const CHILD_DIR: &str = "MEERKAT_TEST_LOG_DIR";
const TEST_NAME: &str =
    "log_store_kill::a_member_killed_or_failing_at_any_point_of_the_log_loses_nothing_acknowledged";

/// More than any point below needs to be passed.
const ENTRIES: u64 = 90;

/// How a child ends when its log tells it to stop.
const STOPPED_BY_LOG: i32 = 7;

const POINTS: [&str; 7] = [
    "before_log_write",
    "before_log_sync",
    "after_log_sync",
    "before_vote_sync",
    "after_vote_sync",
    "before_purge",
    "after_purge",
];

fn options(dir: &Path) -> LogOptions {
    LogOptions { segment_bytes: 2048, cache_bytes: 0, ..LogOptions::new(dir.join("log"), CLUSTER, MEMBER) }
}

/// The last numbers that were acknowledged before the process ended.
#[derive(Debug, Default)]
struct Acknowledged {
    entry: u64,
    vote: u64,
}

async fn child(dir: &Path) -> io::Result<()> {
    fault::arm_from_environment().map_err(io::Error::other)?;
    let mut log = LogStore::open(options(dir))?;
    let mut notes = OpenOptions::new().append(true).create(true).open(dir.join("notes"))?;
    for index in 1..=ENTRIES {
        append(&mut log, vec![entry(1, index)]).await?;
        writeln!(notes, "entry {index}")?;
        if index % 5 == 0 {
            log.save_vote(&Vote::new(index, MEMBER)).await?;
            writeln!(notes, "vote {index}")?;
        }
        if index % 30 == 0 {
            log.purge(id(1, index - 10)).await?;
            log.sync_barrier().await?;
        }
    }
    Ok(())
}

fn run_child(dir: &Path, plan: &str) -> ExitStatus {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", TEST_NAME, "--nocapture"])
        .env(CHILD_DIR, dir)
        .env("MEERKAT_FAULTS", plan)
        .output()
        .expect("start the child");
    output.status
}

fn acknowledged(dir: &Path) -> Acknowledged {
    let mut found = Acknowledged::default();
    let notes = std::fs::read_to_string(dir.join("notes")).unwrap_or_default();
    for line in notes.lines() {
        match line.split_once(' ') {
            Some(("entry", index)) => found.entry = index.parse().expect("a number"),
            Some(("vote", term)) => found.vote = term.parse().expect("a number"),
            other => panic!("a strange note: {other:?}"),
        }
    }
    found
}

async fn check_after(dir: &Path, plan: &str) {
    let acknowledged = acknowledged(dir);
    let mut log = LogStore::open(options(dir)).unwrap_or_else(|err| panic!("{plan}: {err}"));
    let last_index = last(&mut log).await.map_or(0, |last| last.index);
    assert!(acknowledged.entry <= last_index, "{plan}: {acknowledged:?}, but the log ends at {last_index}");
    assert!(
        last_index <= acknowledged.entry + 1,
        "{plan}: {acknowledged:?}, but the log ends at {last_index}"
    );
    let first = purged(&mut log).await.map_or(1, |purged| purged.index + 1);
    let found = read_all(&mut log).await.expect("entries");
    let expected: Vec<_> = (first..=last_index).map(|index| entry(1, index)).collect();
    assert_eq!(found, expected, "{plan}");
    let vote = log.get_log_reader().await.read_vote().await.expect("vote");
    let term = vote.map_or(0, |vote| vote.leader_id.term);
    assert!(acknowledged.vote <= term, "{plan}: {acknowledged:?}, but the vote is {term}");
    append(&mut log, vec![entry(1, last_index + 1)]).await.expect("the log goes on");
}

#[tokio::test]
async fn a_member_killed_or_failing_at_any_point_of_the_log_loses_nothing_acknowledged() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        let code = child(Path::new(&dir)).await.map_or(STOPPED_BY_LOG, |()| 0);
        std::process::exit(code);
    }
    for point in POINTS {
        for (action, pass) in [("kill", 1), ("kill", 2), ("eio", 1), ("enospc", 2)] {
            let dir = tempfile::tempdir().expect("temporary directory");
            File::create(dir.path().join("notes")).expect("notes");
            let plan = format!("{point}={action}@{pass}");
            let status = run_child(dir.path(), &plan);
            if action == "kill" {
                assert_eq!(status.signal(), Some(9), "{plan} must be reached, not {status}");
            } else {
                assert_eq!(status.code(), Some(STOPPED_BY_LOG), "{plan} must stop the child, not {status}");
            }
            check_after(dir.path(), &plan).await;
        }
    }
}
