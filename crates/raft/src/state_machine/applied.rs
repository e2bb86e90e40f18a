//! How far this member has applied, for readers that wait for a position.

use tokio::sync::watch;

/// A watermark of log indexes: it only rises, and what is at or below it is visible to readers.
#[derive(Clone)]
pub struct Applied {
    index: watch::Receiver<u64>,
}

/// The apply thread's end of the watermark.
pub(crate) struct AppliedMark {
    index: watch::Sender<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("this member is stopping")]
pub struct Stopping;

impl AppliedMark {
    pub(crate) fn new(index: u64) -> (AppliedMark, Applied) {
        let (sender, receiver) = watch::channel(index);
        (AppliedMark { index: sender }, Applied { index: receiver })
    }

    pub(crate) fn raise(&self, to: u64) {
        self.index.send_if_modified(|index| {
            let higher = *index < to;
            *index = to.max(*index);
            higher
        });
    }
}

impl Applied {
    pub fn index(&self) -> u64 {
        *self.index.borrow()
    }

    /// Resolves when everything up to `index` is visible to readers of this member.
    pub async fn reached(&self, index: u64) -> Result<(), Stopping> {
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
        let (mark, applied) = AppliedMark::new(3);
        applied.reached(3).await.expect("there already");
        let waiting = tokio::spawn({
            let applied = applied.clone();
            async move { applied.reached(5).await }
        });
        mark.raise(4);
        mark.raise(2);
        assert_eq!(applied.index(), 4, "a watermark never falls");
        mark.raise(7);
        waiting.await.expect("joins").expect("reached");
        drop(mark);
        assert!(applied.reached(8).await.is_err());
    }
}
