//! How far this member has applied, for readers that wait for a position.

use meerkat_types::LogIndex;
use tokio::sync::watch;

/// A watermark of log indexes: it only rises, and what is at or below it is visible to readers.
#[derive(Clone)]
pub struct AppliedIndex {
    index: watch::Receiver<LogIndex>,
}

/// The apply thread's end of the watermark.
pub(crate) struct AppliedMark {
    index: watch::Sender<LogIndex>,
}

#[derive(Debug, thiserror::Error)]
#[error("this member is stopping")]
pub struct Stopping;

impl AppliedMark {
    pub(crate) fn new(index: LogIndex) -> (AppliedMark, AppliedIndex) {
        let (sender, receiver) = watch::channel(index);
        (AppliedMark { index: sender }, AppliedIndex { index: receiver })
    }

    pub(crate) fn raise(&self, to: LogIndex) {
        self.index.send_if_modified(|index| {
            let higher = *index < to;
            *index = to.max(*index);
            higher
        });
    }
}

impl AppliedIndex {
    pub fn index(&self) -> LogIndex {
        *self.index.borrow()
    }

    /// Resolves when everything up to `index` is visible to readers of this member.
    pub async fn reached(&self, index: LogIndex) -> Result<(), Stopping> {
        if index <= self.index() {
            return Ok(());
        }
        self.index.clone().wait_for(|applied| index <= *applied).await.map(drop).map_err(|_| Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_waits_for_its_position_and_no_longer() {
        let (mark, applied) = AppliedMark::new(LogIndex(3));
        applied.reached(LogIndex(3)).await.expect("there already");
        let waiting = tokio::spawn({
            let applied = applied.clone();
            async move { applied.reached(LogIndex(5)).await }
        });
        mark.raise(LogIndex(4));
        mark.raise(LogIndex(2));
        assert_eq!(applied.index(), LogIndex(4), "a watermark never falls");
        mark.raise(LogIndex(7));
        waiting.await.expect("joins").expect("reached");
        drop(mark);
        assert!(applied.reached(LogIndex(8)).await.is_err());
    }
}
