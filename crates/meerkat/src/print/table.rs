//! The format with a box around it, for answers that are lists.
//!
//! Headings are upper-case and centred, cells are flush right, and a column is as wide as its
//! widest cell. Key-values have no table, since their bytes would break the box; only with their
//! times do they, and are quoted.

use meerkat_proto::pb::mvcc;

use super::{Answer, TimedRange, member_columns, rfc3339, snapshot_columns, status_columns, watcher_columns};
use crate::go_duration;
use crate::go_quote::quote;

const MEMBERS: &[&str] = &["ID", "STATUS", "NAME", "PEER ADDRS", "CLIENT ADDRS", "IS LEARNER"];
const STATUSES: &[&str] = &[
    "ENDPOINT",
    "ID",
    "VERSION",
    "DB SIZE",
    "IS LEADER",
    "IS LEARNER",
    "RAFT TERM",
    "RAFT INDEX",
    "RAFT APPLIED INDEX",
    "ERRORS",
];

const TIMED: &[&str] = &["KEY", "VALUE", "VERSION", "CREATED", "CHANGED"];
const WATCHERS: &[&str] = &[
    "ENDPOINT",
    "CLIENT",
    "STREAM",
    "WATCH ID",
    "KEYS",
    "STATE",
    "NEXT REVISION",
    "LAG REVISIONS",
    "LAG SECONDS",
    "QUEUED BYTES",
];

/// `None` for answers that are no list.
pub fn render(answer: &Answer, out: &mut Vec<u8>) -> Option<()> {
    let text = match answer {
        Answer::Members(response) => boxed(MEMBERS, response.members.iter().map(member_columns).collect()),
        Answer::Statuses(list) => {
            boxed(STATUSES, list.iter().map(|(endpoint, status)| status_columns(endpoint, status)).collect())
        }
        Answer::Hashes(list) => boxed(
            &["ENDPOINT", "HASH"],
            list.iter().map(|(endpoint, hash)| vec![endpoint.clone(), hash.hash.to_string()]).collect(),
        ),
        Answer::Health(list) => {
            let row = |health: &super::EndpointHealth| {
                let took = go_duration::format(health.took);
                vec![health.endpoint.clone(), health.error.is_empty().to_string(), took, health.error.clone()]
            };
            boxed(&["ENDPOINT", "HEALTH", "TOOK", "ERROR"], list.iter().map(row).collect())
        }
        Answer::Snapshot(status) => boxed(
            &["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"],
            vec![snapshot_columns(status)],
        ),
        Answer::Timed(timed) => boxed(TIMED, timed_rows(timed)),
        Answer::Watchers(list) => {
            let rows = list
                .iter()
                .flat_map(|at| at.watchers.iter().map(|watcher| watcher_columns(&at.endpoint, watcher)));
            boxed(WATCHERS, rows.collect())
        }
        Answer::Get { .. }
        | Answer::Put(_)
        | Answer::Del(_)
        | Answer::Txn(_)
        | Answer::MemberChange { .. }
        | Answer::Watch(_)
        | Answer::Lease(_)
        | Answer::Auth(_)
        | Answer::Alarms(_)
        | Answer::Downgrade { .. }
        | Answer::LeaderMoved { .. } => {
            return None;
        }
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn timed_rows(timed: &TimedRange) -> Vec<Vec<String>> {
    let row = |(kv, time): (&mvcc::KeyValue, &super::KeyTime)| {
        let times = [rfc3339(time.created_ms), rfc3339(time.modified_ms)];
        [quote(&kv.key), quote(&kv.value), kv.version.to_string()].into_iter().chain(times).collect()
    };
    timed.rows().map(row).collect()
}

fn boxed(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let rule: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let mut text = rule.clone();
    for (heading, width) in headings.iter().zip(&widths) {
        text.push_str(&format!("| {heading:^width$} "));
    }
    text.push_str("|\n");
    text.push_str(&rule);
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("| {cell:>width$} "));
        }
        text.push_str("|\n");
    }
    if !rows.is_empty() {
        text.push_str(&rule);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_centred_and_cells_flush_right() {
        let expected = "\
+-----------------+------+
|    ENDPOINT     | HASH |
+-----------------+------+
| 127.0.0.1:42379 |    7 |
+-----------------+------+
";
        assert_eq!(boxed(&["ENDPOINT", "HASH"], vec![vec!["127.0.0.1:42379".into(), "7".into()]]), expected);
    }
}
