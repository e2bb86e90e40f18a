//! One watch: what was asked for, and how far it has come.

use crate::group::Home;
use crate::stream::StreamId;
use meerkat_types::{Event, EventKind, Filter, KeyRange, Revision, WatchId};
use std::sync::Arc;

/// What is delivered to a watcher, and how.
#[derive(Debug)]
pub struct WatchSpec {
    pub id: WatchId,
    pub range: KeyRange,
    /// The revision asked for; `None` for whatever comes.
    pub start: Option<Revision>,
    pub filter: Filter,
    pub previous: bool,
    pub fragment: bool,
    pub progress: bool,
}

impl WatchSpec {
    pub fn wants(&self, event: &Event) -> bool {
        self.filter.admits(event) && self.range.contains(key_of(event))
    }
}

/// Which of the two kinds an event is.
pub(crate) fn kind_of(event: &Event) -> usize {
    match event.kind {
        EventKind::Put(_) => 0,
        EventKind::Delete { .. } => 1,
    }
}

pub(crate) fn key_of(event: &Event) -> &[u8] {
    match &event.kind {
        EventKind::Put(kv) => &kv.key,
        EventKind::Delete { key, .. } => key,
    }
}

/// ```text
///           ┌──────────────► Synced ──────┐
///  placed ──┤                 ▲  │ fell   ├──► Ended
///           │         level   │  ▼ behind │
///           └──────────────► CatchingUp ──┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Told of each revision as it is published.
    Synced(Home),
    /// Owed something that was published before; history has it.
    CatchingUp { home: Home, since_ms: u64 },
    /// Told its last word; only its number is still taken.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) spec: Arc<WatchSpec>,
    pub(crate) stream: StreamId,
    /// Nothing below this is owed any more. A synced watcher is owed nothing up to the frontier
    /// either.
    pub(crate) next: Revision,
    pub(crate) state: State,
    /// Changes whenever what was queued for this watcher no longer counts.
    pub(crate) epoch: u64,
    /// The last round of history in which its stream had no more room.
    pub(crate) held_back: u64,
    /// Whether it was told of anything since the last progress mark was due.
    pub(crate) told: bool,
}

impl Watcher {
    pub(crate) fn is_synced(&self) -> bool {
        matches!(self.state, State::Synced(_))
    }

    pub(crate) fn is_late(&self) -> bool {
        matches!(self.state, State::CatchingUp { .. })
    }
}
