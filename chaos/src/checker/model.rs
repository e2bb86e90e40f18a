//! The store in a few lines: what transactions on single keys must answer.
//!
//! Conditions, nested ones too, are judged by what was there before the transaction; reads within it
//! see what it has written so far. All it changes has one revision.

use std::collections::BTreeMap;

/// A key, by number.
pub type Key = u8;

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its value.
    pub value: u64,
    /// When the key came to be.
    pub create_revision: i64,
    /// When this version did.
    pub mod_revision: i64,
    /// Which version since then.
    pub version: i64,
}

/// A condition on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is not there.
    Absent(Key),
    /// It has this value.
    ValueIs(Key, u64),
    /// It is there, or not, with another value than this one. One that is not there has no value to
    /// differ, so the condition does not hold.
    ValueIsNot(Key, u64),
    /// It has been put more often than this since it came to be.
    VersionAbove(Key, i64),
    /// It was last changed before this revision, or is not there.
    ChangedBefore(Key, i64),
}

/// One step of a transaction. No transaction writes one key twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Shows a key.
    Get(Key),
    /// Sets one.
    Put(Key, u64),
    /// Removes one.
    Delete(Key),
    /// Another transaction.
    Nested(Box<Txn>),
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// If all of these hold
    pub conditions: Vec<Condition>,
    /// then these
    pub then: Vec<Action>,
    /// else those.
    pub otherwise: Vec<Action>,
}

/// What a step answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key.
    Got(Option<Version>),
    /// Done.
    Put,
    /// How many were removed.
    Deleted(i64),
    /// The inner transaction's.
    Nested(Answers),
}

/// What a transaction answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Whether its conditions held.
    pub succeeded: bool,
    /// One for each step taken.
    pub each: Vec<Answer>,
}

/// The keys there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store(BTreeMap<Key, Version>);

impl Store {
    /// What is there under a key.
    pub fn get(&self, key: Key) -> Option<Version> {
        self.0.get(&key).copied()
    }

    /// Carries a transaction out; what it changes gets this revision.
    pub fn apply(&mut self, txn: &Txn, revision: i64) -> Answers {
        let before = self.clone();
        self.take(txn, &before, revision)
    }

    fn take(&mut self, txn: &Txn, before: &Self, revision: i64) -> Answers {
        let succeeded = txn.conditions.iter().all(|condition| before.holds(*condition));
        let actions = if succeeded { &txn.then } else { &txn.otherwise };
        let each = actions.iter().map(|action| self.step(action, before, revision)).collect();
        Answers { succeeded, each }
    }

    fn step(&mut self, action: &Action, before: &Self, revision: i64) -> Answer {
        match action {
            Action::Get(key) => Answer::Got(self.get(*key)),
            Action::Put(key, value) => {
                let old = self.get(*key);
                let version = Version {
                    value: *value,
                    create_revision: old.map_or(revision, |old| old.create_revision),
                    mod_revision: revision,
                    version: old.map_or(1, |old| old.version + 1),
                };
                self.0.insert(*key, version);
                Answer::Put
            }
            Action::Delete(key) => Answer::Deleted(i64::from(self.0.remove(key).is_some())),
            Action::Nested(inner) => Answer::Nested(self.take(inner, before, revision)),
        }
    }

    fn holds(&self, condition: Condition) -> bool {
        let of = |key| self.get(key);
        match condition {
            Condition::Absent(key) => of(key).is_none(),
            Condition::ValueIs(key, value) => of(key).is_some_and(|one| one.value == value),
            Condition::ValueIsNot(key, value) => of(key).is_some_and(|one| one.value != value),
            Condition::VersionAbove(key, count) => count < of(key).map_or(0, |one| one.version),
            Condition::ChangedBefore(key, when) => of(key).map_or(0, |one| one.mod_revision) < when,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: Key, value: u64) -> Txn {
        Txn { then: vec![Action::Put(key, value)], ..Txn::default() }
    }

    #[test]
    fn a_key_comes_changes_goes_and_comes_again() {
        let mut store = Store::default();
        store.apply(&put(1, 10), 5);
        store.apply(&put(1, 11), 6);
        let there = Version { value: 11, create_revision: 5, mod_revision: 6, version: 2 };
        assert_eq!(store.get(1), Some(there));
        let delete =
            Txn { then: vec![Action::Delete(1), Action::Get(1), Action::Delete(2)], ..Txn::default() };
        let each = vec![Answer::Deleted(1), Answer::Got(None), Answer::Deleted(0)];
        assert_eq!(store.apply(&delete, 7), Answers { succeeded: true, each });
        store.apply(&put(1, 12), 9);
        assert_eq!(store.get(1).map(|one| (one.create_revision, one.version)), Some((9, 1)));
    }

    #[test]
    fn every_condition_holds_and_fails() {
        let mut store = Store::default();
        store.apply(&put(1, 10), 5);
        for (condition, holds) in [
            (Condition::Absent(2), true),
            (Condition::Absent(1), false),
            (Condition::ValueIs(1, 10), true),
            (Condition::ValueIs(1, 11), false),
            (Condition::ValueIs(2, 10), false),
            (Condition::ValueIsNot(1, 11), true),
            (Condition::ValueIsNot(1, 10), false),
            (Condition::ValueIsNot(2, 10), false),
            (Condition::VersionAbove(1, 0), true),
            (Condition::VersionAbove(1, 1), false),
            (Condition::ChangedBefore(1, 6), true),
            (Condition::ChangedBefore(1, 5), false),
            (Condition::ChangedBefore(2, 1), true),
        ] {
            let txn = Txn { conditions: vec![condition], ..Txn::default() };
            assert_eq!(store.apply(&txn, 9).succeeded, holds, "{condition:?}");
        }
    }

    #[test]
    fn reads_see_the_writes_before_them_and_nested_conditions_do_not() {
        let mut store = Store::default();
        let inner = Txn {
            conditions: vec![Condition::Absent(1)],
            then: vec![Action::Put(2, 20)],
            otherwise: vec![Action::Put(2, 21)],
        };
        let outer = Txn {
            then: vec![Action::Put(1, 10), Action::Get(1), Action::Nested(Box::new(inner))],
            ..Txn::default()
        };
        let answers = store.apply(&outer, 5);
        let shown = Version { value: 10, create_revision: 5, mod_revision: 5, version: 1 };
        assert_eq!(answers.each[1], Answer::Got(Some(shown)));
        assert_eq!(store.get(2).map(|one| one.value), Some(20));
    }
}
