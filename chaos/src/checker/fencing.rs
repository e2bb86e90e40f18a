//! A lock whose holders carry fencing tokens: each holder's token is higher than those before it,
//! nobody holds it while another does, and what it protects never goes back to an older token.
//!
//! The token is the revision at which the lock's key was created. Holders may sleep past their lease
//! and not know that they lost the lock; then the token, not the lock, keeps them out.

use std::collections::BTreeMap;
use std::time::Duration;

/// One acquisition that was acknowledged, or seen to have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who.
    pub client: usize,
    /// The revision at which the lock's key was created.
    pub token: i64,
    /// When it was asked for.
    pub invoked: Duration,
    /// When it was acknowledged.
    pub returned: Duration,
}

/// The protected counter as somebody wrote or read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The revision of its last change.
    pub revision: i64,
    /// How often it has been put.
    pub version: i64,
    /// The token of who put it.
    pub token: i64,
    /// What it counts.
    pub count: i64,
}

/// A moment in the store's order at which a holder was proved to hold the lock: a transaction that
/// demanded its key took effect there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The holder's token.
    pub token: i64,
    /// Where in the order.
    pub revision: i64,
}

/// What all clients saw.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Acquisitions.
    pub held: Vec<Held>,
    /// The counter, each time it was written or read.
    pub counters: Vec<Counter>,
    /// Proofs of holding.
    pub proofs: Vec<Proof>,
}

/// Where two held the lock at once, or an older holder got through after a newer one.
pub fn check(record: &Record) -> Vec<String> {
    let mut findings = tokens_in_time(&record.held);
    findings.extend(held_at_once(&record.held, &record.proofs));
    findings.extend(goes_back(&record.counters));
    findings
}

/// Whoever asks after another was acknowledged gets a higher token; no two get the same.
fn tokens_in_time(held: &[Held]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut asked: Vec<&Held> = held.iter().collect();
    asked.sort_by_key(|one| one.invoked);
    let mut answered: Vec<&Held> = held.iter().collect();
    answered.sort_by_key(|one| one.returned);
    let mut highest: Option<&Held> = None;
    let mut next = 0;
    for one in asked {
        while next < answered.len() && answered[next].returned < one.invoked {
            if highest.is_none_or(|highest| highest.token < answered[next].token) {
                highest = Some(answered[next]);
            }
            next += 1;
        }
        if let Some(earlier) = highest.filter(|earlier| one.token <= earlier.token) {
            findings.push(format!("{one:?} was asked for after {earlier:?}, but has no higher token"));
        }
    }
    let mut owners: BTreeMap<i64, &Held> = BTreeMap::new();
    for one in held {
        if let Some(other) = owners.insert(one.token, one).filter(|other| *other != one) {
            findings.push(format!("one token for two: {one:?} and {other:?}"));
        }
    }
    findings
}

/// Between a token and a proof that its owner still held the lock, nobody else got it.
fn held_at_once(held: &[Held], proofs: &[Proof]) -> Vec<String> {
    let tokens: BTreeMap<i64, &Held> = held.iter().map(|one| (one.token, one)).collect();
    let mut findings = Vec::new();
    for proof in proofs {
        if proof.revision <= proof.token {
            findings.push(format!("proved before it was had: {proof:?}"));
            continue;
        }
        if let Some((_, other)) = tokens.range(proof.token + 1..proof.revision).next() {
            findings.push(format!("two held it at once: {proof:?} and {other:?}"));
        }
    }
    findings
}

/// In the order of its changes the counter's token never falls and its count rises by one.
fn goes_back(counters: &[Counter]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut by_revision: BTreeMap<i64, Counter> = BTreeMap::new();
    for counter in counters {
        if let Some(other) = by_revision.insert(counter.revision, *counter).filter(|other| other != counter) {
            findings.push(format!("one revision, two counters: {counter:?} and {other:?}"));
        }
        if counter.count != counter.version {
            findings
                .push(format!("put {} times, but counts {}: {counter:?}", counter.version, counter.count));
        }
        if counter.revision <= counter.token {
            findings.push(format!("written with a token from the future: {counter:?}"));
        }
    }
    let ordered: Vec<&Counter> = by_revision.values().collect();
    for pair in ordered.windows(2) {
        if pair[1].token < pair[0].token {
            findings.push(format!("an older token got through: {:?} after {:?}", pair[1], pair[0]));
        }
        if pair[1].count <= pair[0].count {
            findings.push(format!("the counter fell: {:?} after {:?}", pair[1], pair[0]));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(client: usize, token: i64, invoked: u64, returned: u64) -> Held {
        let time = Duration::from_millis;
        Held { client, token, invoked: time(invoked), returned: time(returned) }
    }

    fn counter(revision: i64, token: i64, count: i64) -> Counter {
        Counter { revision, version: count, token, count }
    }

    fn proof(token: i64, revision: i64) -> Proof {
        Proof { token, revision }
    }

    fn found(held: &[Held], counters: &[Counter], proofs: &[Proof]) -> usize {
        let (held, counters, proofs) = (held.to_vec(), counters.to_vec(), proofs.to_vec());
        check(&Record { held, counters, proofs }).len()
    }

    #[test]
    fn one_holder_after_another_is_fine() {
        let holders = [held(0, 10, 0, 5), held(1, 20, 6, 9)];
        let counters = [counter(12, 10, 1), counter(15, 10, 2), counter(22, 20, 3)];
        assert_eq!(found(&holders, &counters, &[proof(10, 12), proof(20, 22)]), 0);
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        assert_eq!(found(&[held(0, 20, 0, 5), held(1, 10, 6, 9)], &[], &[]), 1);
        assert!(0 < found(&[held(0, 20, 0, 5), held(1, 20, 0, 5)], &[], &[]), "one token for two");
        assert_eq!(found(&[held(0, 20, 0, 5), held(1, 10, 4, 9)], &[], &[]), 0, "asked for at one time");
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let holders = [held(0, 10, 0, 5), held(1, 20, 6, 9)];
        assert_eq!(found(&holders, &[], &[proof(10, 25)]), 1);
        assert_eq!(found(&holders, &[], &[proof(10, 20)]), 0, "just before the other");
        assert_eq!(found(&holders, &[], &[proof(10, 9)]), 1, "before its own");
    }

    #[test]
    fn an_older_holder_that_gets_through_is_found() {
        assert_eq!(found(&[], &[counter(12, 10, 1), counter(22, 20, 2), counter(25, 10, 3)], &[]), 1);
    }

    #[test]
    fn a_count_that_is_lost_or_repeated_is_found() {
        assert_eq!(found(&[], &[counter(12, 10, 1), counter(15, 10, 1)], &[]), 1, "a lost update");
        let twice = Counter { version: 3, ..counter(15, 10, 2) };
        assert_eq!(found(&[], &[counter(12, 10, 1), twice], &[]), 1, "put without counting");
        assert_eq!(found(&[], &[counter(12, 10, 1), counter(12, 11, 1)], &[]), 1, "members differ");
        assert_eq!(found(&[], &[counter(12, 13, 1)], &[]), 1, "a token from the future");
    }
}
