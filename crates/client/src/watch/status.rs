//! How a watch is doing, for those who look at it from outside.

use meerkat_types::Revision;
use std::sync::Arc;
use std::time::Duration;

/// A moment in the life of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The member that serves it; `None` while between members.
    pub endpoint: Option<Arc<str>>,
    /// The last revision handed to the application, be it with events or as a mark.
    pub last: Option<Revision>,
    /// The first revision not received yet; `None` until a watch from now on was created.
    pub next: Option<Revision>,
    /// How often it lost the stream that served it.
    pub losses: u64,
    /// Why it lost the last one, or could not get one.
    pub last_loss: Option<Arc<str>>,
    /// How often it went on on another stream after losing one.
    pub resumes: u64,
    /// The revision it went on from after the last loss.
    pub resumed_from: Option<Revision>,
    /// How long the last loss lasted, from noticing it to being created again.
    pub last_gap: Option<Duration>,
    /// How often it was taken off its stream because the application did not keep up.
    pub parked: u64,
    /// What it is doing.
    pub phase: WatchPhase,
}

/// What a watch is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchPhase {
    /// Looking for a member, or waiting for one to create it.
    #[default]
    Connecting,
    /// A member serves it.
    Live,
    /// Its buffer is full. It goes on by itself once the application has read half of it.
    Parked,
    /// Its last item has been queued.
    Ended,
}
