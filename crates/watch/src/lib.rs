//! The hub: every watcher gets every event of its range, in order, once, however slow it is.
//!
//! Apply publishes each revision once and goes on. From then on a watcher is a cursor, the next
//! revision it is owed, over one event log: the ring of recent revisions, and behind it the store's
//! history. The life of a watcher:
//!
//! ```text
//!           ┌──────────────► synced ──────┐
//!  placed ──┤                 ▲  │ fell   ├──► ended
//!           │         level   │  ▼ behind │
//!           └──────────────► catching up ─┘
//! ```
//!
//! Promised: nothing matching at or above a watcher's start is left out, told twice or told out of
//! order; a revision is told whole; a watcher whose history was compacted away is told so. Publishing
//! never waits for a watcher, and what watchers hold in memory is bounded, for each stream and for
//! all together.
//!
//! [`Core`] decides, without clock or threads; [`Hub`] is the lock around it, its two tasks, and the
//! handles of streams. This crate knows no wire format: who sends brings an [`Encode`].

mod catch_up;
mod check;
mod config;
mod core;
mod dispatch;
mod encoded;
mod group;
mod history;
mod hub;
mod members;
mod outbox;
mod place;
mod progress;
mod range_tree;
mod relief;
mod report;
mod ring;
mod stream;
mod watcher;

pub use catch_up::Step;
pub use config::WatchConfig;
pub use core::{Core, Counts};
pub use encoded::{Encode, Encoded, Form, Meter, Wire};
pub use history::{History, HistoryError, Horizon};
pub use hub::{Hub, WatchStream};
pub use meerkat_types::{Filter, WatchId, WatchRequest, WatchStart};
pub use outbox::{Delivery, Out, Taken};
pub use report::{Standing, Totals, WatcherReport};
pub use stream::{Control, End, Refused, SlowPolicy, StreamId, StreamOptions};
pub use watcher::WatchSpec;
