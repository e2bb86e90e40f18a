//! Revisions rise by exactly one with each write, and no two writes share one.
//!
//! Holds for runs in which every change of the store is one recorded write, each storing one
//! identity: then the revisions found are exactly those between the first and the last.

use crate::record::history::FinalState;

/// Revisions that are missing or shared.
pub fn check(state: &FinalState) -> Vec<String> {
    let mut revisions: Vec<i64> = state.stored.iter().map(|stored| stored.revision).collect();
    revisions.sort_unstable();
    let mut findings = Vec::new();
    let mut last = state.started_at;
    for revision in revisions {
        if revision == last && last != state.started_at {
            findings.push(format!("two writes share revision {revision}"));
        } else if revision <= last {
            findings.push(format!("revision {revision} was given although the run began after it"));
        } else if revision != last + 1 {
            findings.push(format!("no write at revisions {} to {}", last + 1, revision - 1));
        }
        last = revision.max(last);
    }
    if last != state.revision {
        findings.push(format!("the store is at revision {}, its last write at {last}", state.revision));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::history::{Stored, WriteId};

    fn found(revision: i64, revisions: &[i64]) -> usize {
        let stored = revisions
            .iter()
            .zip(0..)
            .map(|(revision, id)| Stored { id: WriteId(id), revision: *revision, version: 1 })
            .collect();
        check(&FinalState { started_at: 1, revision, stored }).len()
    }

    #[test]
    fn one_after_the_other_is_dense_in_any_key_order() {
        assert_eq!(found(4, &[4, 2, 3]), 0);
        assert_eq!(found(1, &[]), 0);
    }

    #[test]
    fn a_gap_is_found() {
        assert_eq!(found(5, &[2, 3, 5]), 1);
    }

    #[test]
    fn a_shared_revision_is_found() {
        assert_eq!(found(3, &[2, 3, 3]), 1);
    }

    #[test]
    fn a_revision_from_before_the_run_is_found() {
        assert_eq!(found(3, &[1, 2, 3]), 1);
    }

    #[test]
    fn a_store_ahead_of_or_behind_its_last_write_is_found() {
        assert_eq!(found(4, &[2, 3]), 1);
        assert_eq!(found(2, &[2, 3]), 1);
    }
}
