//! Money moves between accounts and never comes or goes: at every revision the total is the same,
//! and whoever looks at one revision, whenever and wherever, sees the same.

use std::collections::HashMap;

/// One look at all accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The member that answered.
    pub member: usize,
    /// The revision that was looked at.
    pub revision: i64,
    /// What each account held, in their order; none for one that was not there.
    pub balances: Vec<Option<i64>>,
    /// The revision of the newest change among them.
    pub changed: i64,
}

/// Judges looks one after the other, and forgets all but one for each revision.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    total: i64,
    by_revision: HashMap<i64, Look>,
    /// Looks judged so far.
    pub judged: u64,
}

impl Ledger {
    /// Of accounts that hold this much together.
    pub fn new(total: i64) -> Self {
        Self { total, ..Self::default() }
    }

    /// What is wrong with a look.
    pub fn judge(&mut self, look: Look) -> Vec<String> {
        self.judged += 1;
        let mut findings = Vec::new();
        let total: Option<i64> = look.balances.iter().copied().sum();
        if total != Some(self.total) {
            findings.push(format!("the total is {total:?}, not {}: {look:?}", self.total));
        }
        if look.balances.iter().flatten().any(|balance| *balance < 0) {
            findings.push(format!("an account is overdrawn: {look:?}"));
        }
        if look.revision < look.changed {
            findings.push(format!("a change later than the revision looked at: {look:?}"));
        }
        // Between two changes nothing moves, so looks are told apart by the newest change.
        match self.by_revision.get(&look.changed) {
            Some(other) if other.balances != look.balances => {
                findings.push(format!("two looks at one state differ: {look:?} and {other:?}"));
            }
            Some(_) => {}
            None => {
                self.by_revision.insert(look.changed, look);
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(revision: i64, changed: i64, balances: [i64; 3]) -> Look {
        Look { member: 0, revision, balances: balances.map(Some).to_vec(), changed }
    }

    fn found(looks: impl IntoIterator<Item = Look>) -> usize {
        let mut ledger = Ledger::new(30);
        looks.into_iter().map(|look| ledger.judge(look).len()).sum()
    }

    #[test]
    fn money_that_moves_is_fine() {
        assert_eq!(found([look(5, 5, [10, 10, 10]), look(8, 7, [0, 20, 10]), look(5, 5, [10, 10, 10])]), 0);
    }

    #[test]
    fn money_that_comes_or_goes_is_found() {
        assert_eq!(found([look(5, 5, [10, 10, 11])]), 1, "one half of a transfer");
        assert_eq!(found([look(5, 5, [10, 10, 0])]), 1);
        let gone = Look { balances: vec![Some(10), Some(20), None], ..look(5, 5, [0; 3]) };
        assert_eq!(found([gone]), 1, "an account is missing");
    }

    #[test]
    fn an_overdrawn_account_is_found() {
        assert_eq!(found([look(5, 5, [-10, 30, 10])]), 1);
    }

    #[test]
    fn another_past_at_the_same_revision_is_found() {
        assert_eq!(found([look(5, 5, [10, 10, 10]), look(9, 5, [20, 0, 10])]), 1);
    }

    #[test]
    fn the_future_in_a_look_at_the_past_is_found() {
        assert_eq!(found([look(5, 6, [10, 10, 10])]), 1);
    }
}
