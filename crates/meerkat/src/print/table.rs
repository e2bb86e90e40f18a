//! The format with a box around it, for answers that are lists.
//!
//! Headings are upper-case and centred, cells are flush right, and a column is as wide as its
//! widest cell. Key-values have no table: their bytes would break the box.

use super::{Answer, member_columns, status_columns};
use crate::go_duration;

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
        Answer::Get { .. } | Answer::Put(_) | Answer::Del(_) | Answer::Txn(_) => return None,
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
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
