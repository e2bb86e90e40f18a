//! No term has two leaders: a cluster that split in two would have.

use std::collections::{BTreeMap, BTreeSet};

/// A member that said, at one moment, that it leads in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The term.
    pub term: u64,
    /// The member's id.
    pub leader: u64,
}

/// Terms that more than one member led.
pub fn check(claims: impl IntoIterator<Item = Claim>) -> Vec<String> {
    let mut leaders: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for claim in claims {
        leaders.entry(claim.term).or_default().insert(claim.leader);
    }
    let split = leaders.into_iter().filter(|(_, leaders)| 1 < leaders.len());
    split.map(|(term, leaders)| format!("term {term} has the leaders {leaders:x?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(claims: &[(u64, u64)]) -> Vec<Claim> {
        claims.iter().map(|(term, leader)| Claim { term: *term, leader: *leader }).collect()
    }

    #[test]
    fn a_leader_may_lead_many_terms_and_say_so_often() {
        assert!(check(claims(&[(1, 7), (1, 7), (2, 8), (5, 7)])).is_empty());
    }

    #[test]
    fn two_leaders_of_one_term_are_found_whenever_they_said_so() {
        let findings = check(claims(&[(1, 7), (2, 7), (3, 7), (2, 8)]));
        assert_eq!(findings, ["term 2 has the leaders {7, 8}"]);
    }
}
