//! Acknowledged means kept, refused means absent, and nothing happens twice or by itself.
//!
//! An unknown write may be there or not; both are fine.

use std::collections::HashMap;

use crate::outcome::Outcome;
use crate::record::history::{FinalState, History, Stored, Write, WriteId};

/// What is wrong between what the clients were told and what the store holds.
pub fn check(history: &History, state: &FinalState) -> Vec<String> {
    let stored: HashMap<WriteId, &Stored> = state.stored.iter().map(|stored| (stored.id, stored)).collect();
    let sent: HashMap<WriteId, &Write> = history.writes.iter().map(|write| (write.id, write)).collect();
    let mut findings = Vec::new();
    for write in &history.writes {
        findings.extend(judge_write(write, stored.get(&write.id).copied()));
    }
    for stored in &state.stored {
        if !sent.contains_key(&stored.id) {
            findings.push(format!(
                "{:?} is stored at revision {}, but nobody sent it",
                stored.id, stored.revision
            ));
        }
        if stored.version != 1 {
            findings.push(format!("{:?} was applied {} times", stored.id, stored.version));
        }
    }
    findings
}

fn judge_write(write: &Write, stored: Option<&Stored>) -> Option<String> {
    match (&write.outcome, stored) {
        (Outcome::Ok(revision), None) => {
            Some(format!("{:?} was acknowledged at revision {revision} and is gone", write.id))
        }
        (Outcome::Ok(revision), Some(stored)) if stored.revision != *revision => Some(format!(
            "{:?} was acknowledged at revision {revision} and is stored at {}",
            write.id, stored.revision
        )),
        (Outcome::Failed(why), Some(stored)) => Some(format!(
            "{:?} was refused ({why}) and yet is stored at revision {}",
            write.id, stored.revision
        )),
        (Outcome::Ok(_) | Outcome::Failed(_) | Outcome::Unknown(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn found(outcome: Option<Outcome<i64>>, stored: Option<(i64, i64)>) -> usize {
        let id = WriteId(7);
        let time = Duration::ZERO;
        let writes = outcome.map(|outcome| Write { id, invoked: time, returned: time, outcome });
        let stored = stored.map(|(revision, version)| Stored { id, revision, version });
        let history = History { writes: writes.into_iter().collect(), reads: vec![] };
        let state = FinalState { started_at: 1, revision: 9, stored: stored.into_iter().collect() };
        check(&history, &state).len()
    }

    #[test]
    fn an_acknowledged_write_that_is_there_is_fine() {
        assert_eq!(found(Some(Outcome::Ok(5)), Some((5, 1))), 0);
    }

    #[test]
    fn an_acknowledged_write_that_is_gone_is_found() {
        assert_eq!(found(Some(Outcome::Ok(5)), None), 1);
    }

    #[test]
    fn an_acknowledged_write_at_another_revision_is_found() {
        assert_eq!(found(Some(Outcome::Ok(5)), Some((6, 1))), 1);
    }

    #[test]
    fn a_refused_write_that_is_there_is_found() {
        assert_eq!(found(Some(Outcome::Failed("no".into())), Some((5, 1))), 1);
        assert_eq!(found(Some(Outcome::Failed("no".into())), None), 0);
    }

    #[test]
    fn an_unknown_write_may_be_there_or_not() {
        assert_eq!(found(Some(Outcome::Unknown("lost".into())), Some((5, 1))), 0);
        assert_eq!(found(Some(Outcome::Unknown("lost".into())), None), 0);
    }

    #[test]
    fn a_write_applied_twice_is_found() {
        assert_eq!(found(Some(Outcome::Ok(5)), Some((5, 2))), 1);
    }

    #[test]
    fn a_write_that_nobody_sent_is_found() {
        assert_eq!(found(None, Some((5, 1))), 1);
    }
}
