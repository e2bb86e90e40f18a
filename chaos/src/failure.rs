//! Why a run did not pass, kept in kinds that must never be mistaken for one another.
//!
//! A broken promise is the system's fault. Slowness may be the machine's: it is measured once more before
//! it is believed. A harness failure proves nothing about the system, and must not count as a pass either.
//! A missing program is neither: the run did not happen.

/// Why a run did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system under test did what it promised never to do.
    #[error("broken promise: {0}")]
    Broken(String),
    /// The system did all it promised, but took longer than it may.
    #[error("too slow: {0}")]
    Slow(String),
    /// The harness could not do its part: nothing is known about the system.
    #[error("harness failure (nothing is proved): {0}")]
    Harness(String),
    /// A program the run needs is not there.
    #[error("{0}")]
    Missing(String),
}

impl Failure {
    /// A promise of the system did not hold.
    pub fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }

    /// It took longer than it may.
    pub fn slow(what: impl Into<String>) -> Self {
        Self::Slow(what.into())
    }

    /// The harness could not do its part.
    pub fn harness(what: impl Into<String>) -> Self {
        Self::Harness(what.into())
    }

    /// The same failure with what was being done in front of it.
    #[must_use]
    pub fn during(self, what: &str) -> Self {
        self.put(|why| format!("{what}: {why}"))
    }

    /// The same failure in other words. Those about a missing program stay.
    #[must_use]
    pub fn put(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Broken(why) => Self::Broken(words(why)),
            Self::Slow(why) => Self::Slow(words(why)),
            Self::Harness(why) => Self::Harness(words(why)),
            Self::Missing(why) => Self::Missing(why),
        }
    }

    /// Of two failures of one run the one that proves more, with the other behind it.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Slow(_) | Self::Harness(_) | Self::Missing(_), Self::Broken(_)) => {
                other.put(|why| format!("{why}\n  and {self}"))
            }
            _ => self.put(|why| format!("{why}\n  and {other}")),
        }
    }

    /// Several findings of one checker as one failure, or nothing if there are none.
    pub fn from_findings(promise: &str, findings: Vec<String>) -> Result<(), Self> {
        if findings.is_empty() { Ok(()) } else { Err(Self::Broken(told(promise, &findings))) }
    }

    /// As [`Failure::from_findings`], of times that were too long.
    pub fn from_times(promise: &str, findings: Vec<String>) -> Result<(), Self> {
        if findings.is_empty() { Ok(()) } else { Err(Self::Slow(told(promise, &findings))) }
    }
}

fn told(promise: &str, findings: &[String]) -> String {
    // The first few findings name the fault; the rest are usually its echoes.
    let shown: Vec<&str> = findings.iter().take(8).map(String::as_str).collect();
    format!("{promise}: {} finding(s)\n  {}", findings.len(), shown.join("\n  "))
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Harness(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_told_before_all_else_and_nothing_is_dropped() {
        let late = || Failure::slow("late");
        let stuck = || Failure::harness("stuck");
        for both in [late().and(Failure::broken("lost")), Failure::broken("lost").and(late())] {
            assert_eq!(both.to_string(), "broken promise: lost\n  and too slow: late");
        }
        assert!(matches!(late().and(stuck()), Failure::Slow(_)), "the first");
        assert!(matches!(stuck().and(late()), Failure::Harness(_)), "the first");
    }
}
