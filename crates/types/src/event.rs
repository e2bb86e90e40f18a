//! What a write transaction changed, as watchers are told it.

use crate::{KeyValue, Revision};
use bytes::Bytes;
use std::sync::Arc;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// The key's state just before this event's revision; `None` if it did not exist.
    pub previous: Option<KeyValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    Put(KeyValue),
    Delete { key: Bytes, modified: Revision },
}

/// All events of one revision, in the order in which they happened. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    pub revision: Revision,
    /// The agreed time of this revision, in milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    pub events: Arc<[Event]>,
}
