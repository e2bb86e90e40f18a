//! Whether the cluster far away is still the one that it was: a cluster can be restored from a backup, or
//! replaced by another behind the same addresses, and nobody tells a client.
//!
//! It is noticed by answers that cannot be of the same history: from a cluster of another number, or from
//! one that is at a lower revision than an answer that came before the question was put. Both hold only of
//! answers that a majority stands behind; what a member tells by itself may be old, and proves nothing.
//!
//! What cannot be noticed: a restored cluster with the same number that was already past the newest
//! revision that was seen when it was first heard of. That is why whoever restores raises the revision.

use meerkat_watchcache::store::{History, StoreError};
use tokio::sync::watch;

/// What has been seen of the cluster, by all who ask it.
#[derive(Debug)]
pub(super) struct Witness {
    /// Those who follow it are told of another history, and of nothing else.
    seen: watch::Sender<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    history: History,
    /// 0 if none has said.
    cluster: u64,
    newest: u64,
}

/// What was known when a question was put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    number: u64,
    newest: u64,
}

/// What an answer says of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// It begins a new one.
    New,
    /// It is of the one before the present one, or of nobody knows which.
    Late,
}

impl Seen {
    fn judge(&self, before: Before, cluster: u64, revision: u64) -> Verdict {
        if before.number != self.history.number {
            return Verdict::Late;
        }
        let is_other = self.cluster != 0 && cluster != 0 && self.cluster != cluster;
        if is_other || revision < before.newest { Verdict::New } else { Verdict::Same }
    }

    /// Takes in an answer. Whether it begins another history.
    fn take(&mut self, verdict: Verdict, cluster: u64, revision: u64) -> bool {
        match verdict {
            Verdict::Late => false,
            Verdict::Same => {
                self.newest = self.newest.max(revision);
                self.cluster = if cluster == 0 { self.cluster } else { cluster };
                false
            }
            Verdict::New => {
                let lost = self.newest.max(self.history.lost);
                let history = History { number: self.history.number + 1, lost };
                *self = Seen { history, cluster, newest: revision };
                true
            }
        }
    }
}

impl Witness {
    pub(super) fn new() -> Witness {
        Witness { seen: watch::Sender::default() }
    }

    pub(super) fn history(&self) -> History {
        self.seen.borrow().history
    }

    /// Changes when another history begins.
    pub(super) fn follow(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// To be taken before a question is put.
    pub(super) fn before(&self) -> Before {
        let seen = self.seen.borrow();
        Before { number: seen.history.number, newest: seen.newest }
    }

    /// An answer that a majority stands behind. `cluster` is 0 if it does not say. Nobody may learn of a
    /// revision before this has been asked.
    pub(super) fn answered(&self, before: Before, cluster: u64, revision: u64) -> Result<(), StoreError> {
        let mut verdict = Verdict::Same;
        self.seen.send_if_modified(|seen| {
            let was = *seen;
            verdict = seen.judge(before, cluster, revision);
            let is_new = seen.take(verdict, cluster, revision);
            if is_new {
                let (was, was_at) = (was.cluster, was.newest);
                let what = "the cluster was restored or replaced: all caches begin anew";
                tracing::warn!(cluster, revision, was, was_at, "{what}");
            }
            is_new
        });
        match verdict {
            Verdict::Same => Ok(()),
            Verdict::New | Verdict::Late => Err(StoreError::OtherHistory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_revision_or_another_cluster_is_another_history_and_late_answers_are_none() {
        let witness = Witness::new();
        let first = witness.before();
        assert_eq!(witness.answered(first, 7, 100), Ok(()));
        let second = witness.before();
        assert_eq!(witness.answered(second, 7, 120), Ok(()));
        // Asked before the last answer came, and overtaken by it.
        assert_eq!(witness.answered(second, 7, 110), Ok(()));
        assert_eq!(witness.answered(second, 0, 120), Ok(()), "an answer that does not say by whom");
        let late = witness.before();
        assert_eq!(witness.answered(witness.before(), 7, 119), Err(StoreError::OtherHistory));
        assert_eq!(witness.history(), History { number: 1, lost: 120 });
        assert_eq!(witness.answered(late, 7, 121), Err(StoreError::OtherHistory), "nobody knows of which");
        assert_eq!(witness.history().number, 1);
        assert_eq!(witness.answered(witness.before(), 7, 119), Ok(()));
        let follow = witness.follow();
        assert_eq!(witness.answered(witness.before(), 8, 5_000), Err(StoreError::OtherHistory));
        assert!(follow.has_changed().expect("the witness is there"));
        assert_eq!(witness.history(), History { number: 2, lost: 120 }, "of the highest before");
        assert_eq!(witness.answered(witness.before(), 8, 5_000), Ok(()));
    }
}
