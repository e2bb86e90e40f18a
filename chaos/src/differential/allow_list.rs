//! Differences from the etcd compared with that are wanted, each with the contract's row.
//!
//! The contract says: where versions differ, behave as late 3.6. The etcd compared with is 3.5.1.
//! Keep the lists short, and never add a row that the contract does not have.

/// A wanted difference between the answers to a step.
#[derive(Debug)]
pub struct Row<Step, Answer> {
    /// Where the contract says so.
    pub contract: &'static str,
    /// What differs.
    pub what: &'static str,
    /// Why no answer of a run ever shows it, or how an answer that does is recognised.
    pub handling: Handling<Step, Answer>,
}

/// How a row is kept out of the comparison.
#[derive(Debug)]
pub enum Handling<Step, Answer> {
    /// The run never brings it about, or sees to it otherwise.
    NeverAsked,
    /// Answers, etcd's first, that differ in just this way are accepted.
    Accepted(fn(&Step, &Answer, &Answer) -> bool),
}

/// The row that allows this difference, if there is one.
pub fn allowed<'a, Step, Answer>(
    rows: &'a [Row<Step, Answer>],
    step: &Step,
    etcd: &Answer,
    other: &Answer,
) -> Option<&'a Row<Step, Answer>> {
    rows.iter().find(|row| match row.handling {
        Handling::NeverAsked => false,
        Handling::Accepted(recognises) => recognises(step, etcd, other),
    })
}
