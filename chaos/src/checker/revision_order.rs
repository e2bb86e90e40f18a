//! The order by revision respects time: what was answered before another call began comes first.
//!
//! Every acknowledged write has a revision of its own; every read names the one it looked at. A read
//! may share its revision with others; a write lies above everything that was answered before it
//! began.

use std::collections::HashMap;
use std::time::Duration;

use crate::record::history::WriteId;

/// One operation that took effect: a write at its revision, a read just after its.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// What it was.
    pub what: What,
    /// When it was sent.
    pub invoked: Duration,
    /// When it was answered; none if its end is not known.
    pub returned: Option<Duration>,
    /// Its place in the order.
    pub revision: i64,
}

/// What an operation was, for findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// This write.
    Write(WriteId),
    /// A read answered by this member.
    ReadBy(usize),
}

/// Writes that share a revision.
pub fn check_unique(spans: &[Span]) -> Vec<String> {
    let mut seen: HashMap<i64, WriteId> = HashMap::new();
    let mut findings = Vec::new();
    for span in spans {
        let What::Write(id) = span.what else { continue };
        if let Some(other) = seen.insert(span.revision, id) {
            findings.push(format!("{id:?} and {other:?} were both given revision {}", span.revision));
        }
    }
    findings
}

/// Walks calls in the order they began, beside answers in the order they came: each call must find
/// itself at or above the highest revision that was answered before it began (above, if it writes).
pub fn check_time(spans: &[Span]) -> Vec<String> {
    let mut begun: Vec<&Span> = spans.iter().collect();
    begun.sort_by_key(|span| span.invoked);
    let mut answered: Vec<(Duration, &Span)> =
        spans.iter().filter_map(|span| span.returned.map(|returned| (returned, span))).collect();
    answered.sort_by_key(|(returned, _)| *returned);

    let mut findings = Vec::new();
    let mut highest: Option<&Span> = None;
    let mut next = 0;
    for span in begun {
        while let Some((returned, earlier)) =
            answered.get(next).filter(|(returned, _)| *returned < span.invoked)
        {
            debug_assert!(*returned < span.invoked);
            if highest.is_none_or(|highest| highest.revision < earlier.revision) {
                highest = Some(earlier);
            }
            next += 1;
        }
        if let Some(earlier) = highest.filter(|earlier| !may_follow(span, earlier)) {
            findings.push(format!("{span:?} began after {earlier:?} was answered, but comes before it"));
        }
    }
    findings
}

fn may_follow(later: &Span, earlier: &Span) -> bool {
    match later.what {
        What::Write(_) => earlier.revision < later.revision,
        What::ReadBy(_) => earlier.revision <= later.revision,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(what: What, invoked: u64, returned: u64, revision: i64) -> Span {
        let time = Duration::from_millis;
        Span { what, invoked: time(invoked), returned: Some(time(returned)), revision }
    }

    const A: What = What::Write(WriteId(1));
    const B: What = What::Write(WriteId(2));
    const READ: What = What::ReadBy(0);

    #[test]
    fn two_writes_at_one_revision_are_found() {
        assert_eq!(check_unique(&[at(A, 0, 1, 5), at(B, 2, 3, 5)]).len(), 1);
        assert_eq!(check_unique(&[at(A, 0, 1, 5), at(B, 2, 3, 6), at(READ, 2, 3, 6)]).len(), 0);
    }

    #[test]
    fn an_order_against_the_clock_is_found() {
        assert_eq!(check_time(&[at(A, 0, 1, 5), at(B, 2, 3, 4)]).len(), 1, "a write below an earlier one");
        assert_eq!(check_time(&[at(A, 0, 1, 5), at(READ, 2, 3, 4)]).len(), 1, "a read of the past");
        assert_eq!(check_time(&[at(READ, 0, 1, 5), at(A, 2, 3, 5)]).len(), 1, "seen before it was sent");
    }

    #[test]
    fn calls_that_overlap_may_take_any_order() {
        assert_eq!(check_time(&[at(A, 0, 5, 5), at(B, 2, 7, 4), at(READ, 3, 9, 4)]).len(), 0);
        assert_eq!(check_time(&[at(A, 0, 1, 5), at(READ, 2, 3, 5)]).len(), 0, "just after it");
    }

    #[test]
    fn a_write_without_an_answer_binds_nobody() {
        let lost = Span { returned: None, ..at(A, 0, 1, 9) };
        assert_eq!(check_time(&[lost, at(B, 2, 3, 4)]).len(), 0);
        assert_eq!(
            check_time(&[at(B, 0, 1, 9), Span { invoked: Duration::from_millis(2), revision: 4, ..lost }])
                .len(),
            1
        );
    }
}
