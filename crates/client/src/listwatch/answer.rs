//! What an answer, or the lack of one, says about a call, and whether it may be made again: pure.

use crate::Fate;

/// What came back from one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The member could not be reached: it knows nothing of the call.
    NotSent,
    /// Sent, and no answer came.
    Lost,
    /// An answer with this status, which may say when to come back.
    Answered { code: u16, retry_after: bool },
}

/// What to make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer is what was asked for.
    Done,
    /// Another attempt is safe. If there is no time for one, this is what became of the call.
    Again(Fate),
    /// This is how it ends.
    Over(Fate),
}

/// `safe`: the call changes nothing, so that it may be made any number of times.
pub(crate) fn judge(outcome: Outcome, safe: bool) -> Verdict {
    let doubtful = if safe { Verdict::Again(Fate::NotDone) } else { Verdict::Over(Fate::Unknown) };
    match outcome {
        Outcome::NotSent => Verdict::Again(Fate::NotDone),
        Outcome::Lost => doubtful,
        Outcome::Answered { code: 200..=299, .. } => Verdict::Done,
        // Who says when to come back says that nothing was done.
        Outcome::Answered { code: 429, .. } | Outcome::Answered { code: 500.., retry_after: true } => {
            Verdict::Again(Fate::NotDone)
        }
        // Full: another member would say the same.
        Outcome::Answered { code: 507, .. } => Verdict::Over(Fate::Refused),
        Outcome::Answered { code: 500.., .. } => doubtful,
        Outcome::Answered { .. } => Verdict::Over(Fate::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_made_again_only_if_it_was_surely_not_done() {
        let answered = |code, retry_after| Outcome::Answered { code, retry_after };
        let again = Verdict::Again(Fate::NotDone);
        let rows = [
            (Outcome::NotSent, again, again),
            (Outcome::Lost, again, Verdict::Over(Fate::Unknown)),
            (answered(200, false), Verdict::Done, Verdict::Done),
            (answered(201, false), Verdict::Done, Verdict::Done),
            (answered(404, false), Verdict::Over(Fate::Refused), Verdict::Over(Fate::Refused)),
            (answered(409, true), Verdict::Over(Fate::Refused), Verdict::Over(Fate::Refused)),
            (answered(429, false), again, again),
            (answered(503, true), again, again),
            (answered(503, false), again, Verdict::Over(Fate::Unknown)),
            (answered(504, false), again, Verdict::Over(Fate::Unknown)),
            (answered(507, false), Verdict::Over(Fate::Refused), Verdict::Over(Fate::Refused)),
        ];
        for (outcome, read, write) in rows {
            assert_eq!((judge(outcome, true), judge(outcome, false)), (read, write), "{outcome:?}");
        }
    }
}
