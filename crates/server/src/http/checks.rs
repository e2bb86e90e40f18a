//! What "healthy", "live" and "ready" mean, check by check.

use meerkat_raft::RaftNode;
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, Consistency, Key, KeyRange, RangeQuery, RevisionBounds, Sort,
};
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
            Check::DataCorruption => data_corruption(raft),
            Check::SerializableRead => serializable_read(raft).await,
            Check::LinearizableRead => linearizable_read(raft).await,
            Check::NonLearner if raft.status().learner => Err("this member is a learner".to_owned()),
            Check::NonLearner => Ok(()),
        }
    }
}

fn data_corruption(raft: &RaftNode) -> Result<(), String> {
    if let Some(reason) = raft.status().failed {
        return Err(reason);
    }
    match raft.reader().alarms().iter().any(|(alarm, _)| alarm.kind == AlarmKind::Corrupt) {
        true => Err("alarm activated: CORRUPT".to_owned()),
        false => Ok(()),
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
    pub(super) lines: Vec<(&'static str, Result<(), String>)>,
}

impl Report {
    /// As etcd puts it.
    pub(super) fn text(&self, verbose: bool) -> String {
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
        if self.passed {
            text.push_str("ok\n");
        }
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
pub(super) async fn health(raft: &Arc<RaftNode>, query: &Query) -> Option<String> {
    if let Some(alarm) = first_alarm(&raft.reader().alarms(), &query.exclude) {
        return Some(alarm);
    }
    if query.serializable {
        return serializable_read(raft).await.err().map(|reason| format!("RANGE ERROR:{reason}"));
    }
    if raft.leadership().known().is_none() {
        return Some("RAFT NO LEADER".to_owned());
    }
    linearizable_read(raft).await.err().map(|reason| format!("RANGE ERROR:{reason}"))
}

fn first_alarm(alarms: &[(Alarm, AlarmBy)], excluded: &[String]) -> Option<String> {
    let mut kinds = alarms.iter().map(|(alarm, _)| alarm.kind.to_string());
    kinds.find(|kind| !excluded.contains(kind)).map(|kind| format!("ALARM {kind}"))
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
    fn an_alarm_is_a_reason_unless_it_is_left_out() {
        let alarm = |kind| (Alarm { kind, member: meerkat_types::MemberId(1) }, AlarmBy::Cluster);
        let both = [alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
        let excluded = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(first_alarm(&both, &[]).as_deref(), Some("ALARM NOSPACE"));
        assert_eq!(first_alarm(&both, &excluded(&["NOSPACE"])).as_deref(), Some("ALARM CORRUPT"));
        assert_eq!(first_alarm(&both, &excluded(&["CORRUPT", "NOSPACE"])), None);
        assert_eq!(first_alarm(&[], &[]), None);
    }

    #[test]
    fn a_failed_check_is_named_with_its_reason() {
        let lines = vec![("a", Ok(())), ("b", Err("why".to_owned()))];
        let report = Report { passed: false, lines };
        assert_eq!(report.text(false), "[+]a ok\n[-]b failed: why\n");
        let report = Report { passed: true, lines: vec![("a", Ok(()))] };
        assert_eq!(report.text(false), "ok\n");
        assert_eq!(report.text(true), "[+]a ok\nok\n");
    }
}
