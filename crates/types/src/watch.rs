//! What a client asks to be told of.

use crate::{Event, EventKind, KeyRange, Revision};
use std::fmt;

/// A watcher's number on its stream, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(i64);

impl WatchId {
    pub const fn new(id: i64) -> WatchId {
        WatchId(id)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> WatchId {
        WatchId(self.0 + 1)
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kinds of events a watcher does not want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub no_put: bool,
    pub no_delete: bool,
}

impl Filter {
    pub fn admits(self, event: &Event) -> bool {
        match event.kind {
            EventKind::Put(_) => !self.no_put,
            EventKind::Delete { .. } => !self.no_delete,
        }
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// After whatever the store holds now.
    Live,
    At(Revision),
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// `None` lets the stream choose.
    pub id: Option<WatchId>,
    pub range: KeyRange,
    pub start: WatchStart,
    pub filter: Filter,
    pub previous: bool,
    pub fragment: bool,
    pub progress: bool,
}
