//! What lies behind the ring: the store's own record of every revision.

use meerkat_types::{HistoryAnswer, HistoryQuery, Revision};

/// Where history begins and ends, both of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The newest revision that readers of this member see.
    pub current: Revision,
    /// The oldest revision that can be read; `None` if all can.
    pub oldest: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// Some of the revisions asked for are gone.
    Compacted,
    /// The disk does not answer.
    Failed(String),
}

/// Never called with the hub's lock held, but for [`History::horizon`], which must not block.
pub trait History: Send + Sync + 'static {
    fn horizon(&self) -> Horizon;
    fn read(&self, query: &HistoryQuery) -> Result<HistoryAnswer, HistoryError>;
}
