//! Money moves between accounts and never comes or goes: at every revision the total is the same,
//! and whoever looks at one revision, whenever and wherever, sees the same.
//!
//! A state holds from the change that made it to the next one, so two looks contradict each other if
//! one was still shown a state at a revision at which the other was shown a later one.

use std::collections::BTreeMap;

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

/// Judges looks one after the other, and forgets all but one for each state: the one at the highest
/// revision.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    total: i64,
    by_change: BTreeMap<i64, Look>,
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
        findings.extend(self.contradicts(&look));
        let newest = self.by_change.entry(look.changed).or_insert_with(|| look.clone());
        if newest.revision < look.revision {
            *newest = look;
        }
        findings
    }

    /// A look that shows another past than this one.
    fn contradicts(&self, look: &Look) -> Option<String> {
        let same = self.by_change.get(&look.changed);
        if let Some(other) = same.filter(|other| other.balances != look.balances) {
            return Some(format!("two looks at one state differ: {look:?} and {other:?}"));
        }
        let later = self.by_change.range(look.changed + 1..).next().map(|(_, later)| later);
        if let Some(later) = later.filter(|later| later.changed <= look.revision) {
            return Some(format!("a look misses a change that another saw: {look:?} and {later:?}"));
        }
        let earlier = self.by_change.range(..look.changed).next_back().map(|(_, earlier)| earlier);
        let earlier = earlier.filter(|earlier| look.changed <= earlier.revision)?;
        Some(format!("a look saw a change that another misses: {look:?} and {earlier:?}"))
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
    fn a_change_that_one_look_misses_and_another_saw_is_found_in_either_order() {
        let saw = || look(8, 7, [0, 20, 10]);
        for at in [7, 9] {
            let misses = || look(at, 5, [10, 10, 10]);
            assert_eq!(found([saw(), misses()]), 1, "at {at}");
            assert_eq!(found([misses(), saw()]), 1, "at {at}");
        }
        assert_eq!(found([saw(), look(6, 5, [10, 10, 10])]), 0, "one before the change saw all there was");
    }

    #[test]
    fn a_change_is_missed_by_the_latest_look_at_the_state_before_it() {
        let early = || look(5, 5, [10, 10, 10]);
        let late = || look(9, 5, [10, 10, 10]);
        assert_eq!(found([early(), late(), early(), look(8, 7, [0, 20, 10])]), 1);
        assert_eq!(found([early(), late(), early(), look(10, 10, [0, 20, 10])]), 0);
    }

    #[test]
    fn an_empty_look_at_a_past_that_others_saw_is_found() {
        let empty = Look { balances: vec![None; 3], ..look(6, 0, [0; 3]) };
        assert_eq!(found([look(6, 5, [10, 10, 10]), empty]), 2, "no total, and a change is missed");
    }

    #[test]
    fn the_future_in_a_look_at_the_past_is_found() {
        assert_eq!(found([look(5, 6, [10, 10, 10])]), 1);
    }
}
