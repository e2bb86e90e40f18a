//! Reads and writes take effect at one instant between their call and their answer.
//!
//! The store names that order itself: every write has a revision, every read says at which one it
//! looked. So nothing has to be searched for. The order by revision is a linearization if
//!
//! 1. it respects time: what was answered before another call began comes first in it, and
//! 2. each read shows the register as the newest write at or below its revision left it.
//!
//! A write of unknown outcome that is found in the store took part, with no known end. One that is
//! not found never happened. If the order by revision is not a linearization, a client that trusts
//! revisions has been misled, whatever other order may exist.

use super::revision_order::{Span, What, check_time};
use crate::outcome::Outcome;
use crate::record::history::{FinalState, History, Read, WriteId};

/// Where the order by revision is not a linearization.
pub fn check(history: &History, state: &FinalState) -> Vec<String> {
    let spans = spans(history, state);
    let mut findings = check_time(&spans);
    findings.extend(check_values(&history.reads, state));
    findings
}

fn spans(history: &History, state: &FinalState) -> Vec<Span> {
    let stored: std::collections::HashMap<WriteId, i64> =
        state.stored.iter().map(|stored| (stored.id, stored.revision)).collect();
    let writes = history.writes.iter().filter_map(|write| {
        let (revision, returned) = match &write.outcome {
            Outcome::Ok(revision) => (*revision, Some(write.returned)),
            Outcome::Failed(_) => return None,
            Outcome::Unknown(_) => (*stored.get(&write.id)?, None),
        };
        Some(Span { what: What::Write(write.id), invoked: write.invoked, returned, revision })
    });
    let reads = history.reads.iter().map(|read| Span {
        what: What::ReadBy(read.member),
        invoked: read.invoked,
        returned: Some(read.returned),
        revision: read.revision,
    });
    writes.chain(reads).collect()
}

/// Each read against the newest register write at or below its revision.
fn check_values(reads: &[Read], state: &FinalState) -> Vec<String> {
    let mut register: Vec<(i64, WriteId)> = state
        .stored
        .iter()
        .filter(|stored| stored.id.sets_register())
        .map(|stored| (stored.revision, stored.id))
        .collect();
    register.sort_unstable();
    reads
        .iter()
        .filter_map(|read| {
            let upto = register.partition_point(|(revision, _)| *revision <= read.revision);
            let expected = upto.checked_sub(1).map(|last| (register[last].1, register[last].0));
            (read.register != expected).then(|| {
                format!("{read:?} should have shown {expected:?}, the register at revision {}", read.revision)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::history::{Stored, Write};
    use std::time::Duration;

    const REGISTER: WriteId = WriteId(1);
    const LATER: WriteId = WriteId(3);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn write(id: WriteId, invoked: u64, returned: u64, outcome: Outcome<i64>) -> Write {
        Write { id, invoked: at(invoked), returned: at(returned), outcome }
    }

    fn read(invoked: u64, returned: u64, revision: i64, register: Option<(WriteId, i64)>) -> Read {
        Read { member: 0, invoked: at(invoked), returned: at(returned), revision, register }
    }

    fn found(writes: Vec<Write>, reads: Vec<Read>) -> usize {
        let stored = writes
            .iter()
            .filter_map(|write| {
                match write.outcome {
                    Outcome::Ok(revision) => Some(revision),
                    Outcome::Unknown(_) => Some(3),
                    Outcome::Failed(_) => None,
                }
                .map(|revision| Stored { id: write.id, revision, version: 1 })
            })
            .collect();
        check(&History { writes, reads }, &FinalState { started_at: 1, revision: 3, stored }).len()
    }

    #[test]
    fn overlapping_writes_may_take_either_order() {
        let writes = vec![write(REGISTER, 0, 10, Outcome::Ok(3)), write(LATER, 5, 15, Outcome::Ok(2))];
        assert_eq!(found(writes, vec![]), 0);
    }

    #[test]
    fn a_later_write_with_an_earlier_revision_is_found() {
        let writes = vec![write(REGISTER, 0, 10, Outcome::Ok(3)), write(LATER, 11, 15, Outcome::Ok(2))];
        assert_eq!(found(writes, vec![]), 1);
    }

    #[test]
    fn a_read_of_the_past_after_an_acknowledgement_is_found() {
        let writes = vec![write(REGISTER, 0, 10, Outcome::Ok(2))];
        assert_eq!(found(writes, vec![read(11, 12, 1, None)]), 1);
    }

    #[test]
    fn a_read_during_a_write_may_miss_it() {
        let writes = vec![write(REGISTER, 0, 10, Outcome::Ok(2))];
        assert_eq!(found(writes, vec![read(5, 12, 1, None)]), 0);
    }

    #[test]
    fn a_read_that_goes_back_behind_an_earlier_read_is_found() {
        let writes = vec![write(REGISTER, 0, 100, Outcome::Ok(2))];
        let reads = vec![read(5, 10, 2, Some((REGISTER, 2))), read(11, 12, 1, None)];
        assert_eq!(found(writes, reads), 1);
    }

    #[test]
    fn a_read_with_the_wrong_value_at_its_revision_is_found() {
        let writes = vec![write(REGISTER, 0, 10, Outcome::Ok(2))];
        assert_eq!(found(writes.clone(), vec![read(11, 12, 2, None)]), 1);
        assert_eq!(found(writes, vec![read(11, 12, 2, Some((REGISTER, 2)))]), 0);
    }

    #[test]
    fn a_write_that_sees_the_future_of_a_finished_read_is_found() {
        let writes = vec![write(REGISTER, 20, 30, Outcome::Ok(2))];
        assert_eq!(found(writes, vec![read(5, 10, 2, Some((REGISTER, 2)))]), 1);
    }

    #[test]
    fn an_unknown_write_may_take_effect_long_after_its_client_gave_up() {
        let writes = vec![
            write(REGISTER, 0, 1, Outcome::Unknown("lost".into())),
            write(LATER, 50, 60, Outcome::Ok(2)),
        ];
        assert_eq!(found(writes, vec![read(61, 62, 3, Some((REGISTER, 3)))]), 0);
    }
}
