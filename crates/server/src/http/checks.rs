//! What "healthy", "live" and "ready" mean, check by check.

use meerkat_raft::RaftNode;
use meerkat_types::{Consistency, Key, KeyRange, RangeQuery, RevisionBounds, Sort};
use std::fmt::Write;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// No member was found to differ from the others.
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

pub(super) const LIVE: &[Check] = &[Check::SerializableRead];
pub(super) const READY: &[Check] =
    &[Check::DataCorruption, Check::SerializableRead, Check::LinearizableRead, Check::NonLearner];

impl Check {
    pub(super) fn name(self) -> &'static str {
        match self {
            Check::DataCorruption => "data_corruption",
            Check::SerializableRead => "serializable_read",
            Check::LinearizableRead => "linearizable_read",
            Check::NonLearner => "non_learner",
        }
    }

    async fn run(self, raft: &Arc<RaftNode>) -> Result<(), String> {
        match self {
            Check::DataCorruption => match raft.status().failed {
                None => Ok(()),
                Some(reason) => Err(reason),
            },
            Check::SerializableRead => serializable_read(raft).await,
            Check::LinearizableRead => linearizable_read(raft).await,
            Check::NonLearner if raft.status().learner => Err("this member is a learner".to_owned()),
            Check::NonLearner => Ok(()),
        }
    }
}

/// The query parameters these paths know.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) serializable: bool,
    pub(super) verbose: bool,
    exclude: Vec<String>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Query {
        let mut query = Query::default();
        for part in text.split('&') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "serializable" => query.serializable = value == "true",
                "verbose" => query.verbose = true,
                "exclude" => query.exclude.push(value.to_owned()),
                _ => {}
            }
        }
        query
    }
}

pub(super) struct Report {
    pub(super) passed: bool,
    lines: Vec<(&'static str, Result<(), String>)>,
}

impl Report {
    pub(super) fn text(&self, path: &str, verbose: bool) -> String {
        if self.passed && !verbose {
            return "ok\n".to_owned();
        }
        let mut text = String::new();
        for (name, result) in &self.lines {
            // Writing to a String cannot fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            };
        }
        let _ = writeln!(text, "{path} check {}", if self.passed { "passed" } else { "failed" });
        text
    }
}

pub(super) async fn run(raft: &Arc<RaftNode>, checks: &[Check], query: &Query) -> Report {
    let mut report = Report { passed: true, lines: Vec::new() };
    for check in checks.iter().filter(|check| !query.exclude.iter().any(|name| name == check.name())) {
        let result = check.run(raft).await;
        report.passed &= result.is_ok();
        report.lines.push((check.name(), result));
    }
    report
}

/// The reason why `/health` says no, in etcd's words.
pub(super) async fn health(raft: &Arc<RaftNode>, serializable: bool) -> Option<String> {
    if serializable {
        return serializable_read(raft).await.err().map(|reason| format!("RANGE ERROR:{reason}"));
    }
    if raft.leadership().known().is_none() {
        return Some("RAFT NO LEADER".to_owned());
    }
    linearizable_read(raft).await.err().map(|reason| format!("RANGE ERROR:{reason}"))
}

async fn linearizable_read(raft: &Arc<RaftNode>) -> Result<(), String> {
    raft.reads().ready_to_read().await.map_err(|error| error.to_string())?;
    serializable_read(raft).await
}

async fn serializable_read(raft: &Arc<RaftNode>) -> Result<(), String> {
    let key = Key::new(bytes::Bytes::from_static(b"a")).ok_or("no key")?;
    let query = RangeQuery {
        keys: KeyRange::One(key),
        at: None,
        limit: Some(1),
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: true,
        count_only: false,
        bounds: RevisionBounds::default(),
    };
    raft.reader().range(&query).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_what_to_leave_out() {
        let query = Query::parse("verbose&exclude=a&serializable=true&exclude=b&other=1");
        assert_eq!(query, Query { serializable: true, verbose: true, exclude: vec!["a".into(), "b".into()] });
        assert_eq!(Query::parse(""), Query::default());
    }

    #[test]
    fn a_failed_check_is_named_with_its_reason() {
        let lines = vec![("a", Ok(())), ("b", Err("why".to_owned()))];
        let report = Report { passed: false, lines };
        assert_eq!(report.text("readyz", false), "[+]a ok\n[-]b failed: why\nreadyz check failed\n");
        let report = Report { passed: true, lines: vec![("a", Ok(()))] };
        assert_eq!(report.text("livez", false), "ok\n");
        assert_eq!(report.text("livez", true), "[+]a ok\nlivez check passed\n");
    }
}
