//! Compaction by itself, as `--auto-compaction-mode` and `--auto-compaction-retention` say.
//!
//! Every member samples, so that a new leader knows what its predecessor knew; only the leader compacts.
//! What is decided is in `schedule`, which has no clock of its own.

mod schedule;

use meerkat_raft::RaftNode;
use meerkat_types::{Command, Compact, Outcome, Refusal, Revision};
use schedule::Schedule;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A compaction's entry is one number.
const COMPACT_BYTES_MAX: usize = 1_024;

/// What history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Of this much time.
    Periodic(Duration),
    /// Of so many revisions.
    Revisions(i64),
}

impl AutoCompaction {
    /// Reads the two flags as etcd does: a bare number is hours, or revisions. `None` when it is off.
    pub fn parse(mode: &str, retention: &str) -> Result<Option<AutoCompaction>, String> {
        let number = retention.parse::<i64>().ok().filter(|number| 0 <= *number);
        let period = match number {
            Some(hours) => Duration::from_secs(u64::try_from(hours).unwrap_or(0).saturating_mul(3_600)),
            None => meerkat_proto::go_duration::parse(retention)
                .map_err(|error| format!("error parsing CompactionRetention: {error}"))?,
        };
        match (mode, number) {
            ("periodic", _) if period.is_zero() => Ok(None),
            ("periodic", _) => Ok(Some(AutoCompaction::Periodic(period))),
            ("revision", Some(0)) => Ok(None),
            ("revision", Some(revisions)) => Ok(Some(AutoCompaction::Revisions(revisions))),
            ("revision", None) => Err(format!(
                "--auto-compaction-retention={retention} is no number of revisions, which --auto-compaction-mode=revision asks for"
            )),
            (mode, _) => {
                Err(format!("unknown auto-compaction-mode {mode:?}: expected 'periodic' or 'revision'"))
            }
        }
    }
}

/// Runs until it is dropped.
pub(crate) async fn run(raft: Arc<RaftNode>, kept: AutoCompaction) {
    let began = Instant::now();
    let mut schedule = Schedule::new(kept);
    loop {
        schedule.sample(raft.reader().current_revision().get());
        tokio::time::sleep(schedule.pause()).await;
        let leads = raft.leadership().own_term().is_some();
        let current = raft.reader().current_revision().get();
        let Some(revision) = schedule.due(began.elapsed(), current).filter(|_| leads) else { continue };
        if compact(&raft, revision).await {
            schedule.compacted(began.elapsed(), revision);
        }
    }
}

/// Whether history before the revision is gone now, by whomever.
async fn compact(raft: &RaftNode, revision: i64) -> bool {
    let began = Instant::now();
    let command = Command::Compact(Compact { revision: Revision::new(revision) });
    match raft.proposer().propose(command, COMPACT_BYTES_MAX).await {
        Ok(Outcome::Compact(_)) => {
            tracing::info!(revision, took = ?began.elapsed(), "completed auto compaction");
            true
        }
        Ok(Outcome::Refused(Refusal::Compacted { .. })) => true,
        outcome => {
            tracing::warn!(revision, ?outcome, "failed auto compaction; it is tried again");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mode: &str, retention: &str, expected: Option<AutoCompaction>) {
        assert_eq!(AutoCompaction::parse(mode, retention), Ok(expected), "{mode} {retention}");
    }

    #[test]
    fn a_bare_number_is_hours_or_revisions_and_anything_else_a_duration() {
        let hours = |hours: u64| Some(AutoCompaction::Periodic(Duration::from_secs(hours * 3_600)));
        check("periodic", "0", None);
        check("periodic", "0s", None);
        check("periodic", "3", hours(3));
        check("periodic", "2h", hours(2));
        check("periodic", "1500ms", Some(AutoCompaction::Periodic(Duration::from_millis(1_500))));
        check("revision", "0", None);
        check("revision", "1000", Some(AutoCompaction::Revisions(1_000)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (mode, retention) in [("periodic", "x"), ("periodic", "-1"), ("revision", "5m"), ("weekly", "1")]
        {
            assert!(AutoCompaction::parse(mode, retention).is_err(), "{mode} {retention}");
        }
    }
}
