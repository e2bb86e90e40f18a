//! Watching keys: a [`Stream`] of whole revisions that goes on whatever happens to members and
//! connections.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), meerkat_client::watch::WatchError> {
//! use meerkat_client::Keys;
//!
//! let mut watch = client.watch(Keys::prefix("cfg/")).start();
//! while let Some(changes) = watch.next().await {
//!     let changes = changes?;
//!     println!("at revision {}: {:?}", changes.revision, changes.events);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a watch promises:
//! * Every revision that touches its keys, from its start on, once, in order, and whole: all its events
//!   in one [`Changes`].
//! * When its member dies, freezes, is cut off or loses its leader, it goes on at another one from the
//!   revision after the last. That is no error and needs no code; [`Watch::status`] tells of it.
//! * When the application is slow, memory is bounded by the watch's buffer. The member is told to stop,
//!   and the watch goes on by itself, from where it was, when the application has read half of it. Other
//!   watches are not held up.
//! * It ends with an error only for what the application has to decide: see [`WatchError`].
//!
//! Inside, from the outside in: `hub` finds a stream for a watch, `carrier` keeps that stream open
//! somewhere, `multiplex` knows whose response is whose, `resume` knows what one watch is owed, and
//! `mailbox` holds what the application has not read yet.

mod carrier;
mod error;
mod hub;
mod mailbox;
mod multiplex;
mod pulse;
mod response;
mod resume;
mod status;
mod verdict;
mod wire;

pub use error::WatchError;
pub use response::{ResponseHeader, WatchCanceled, WatchResponse, WatchResponses};
pub use status::{WatchPhase, WatchStatus};

pub(crate) use hub::Hub;

use crate::{Client, Keys};
use futures::Stream;
use futures::future::poll_fn;
use mailbox::Mailbox;
use meerkat_types::{Event, Filter, Revision, WatchStart};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use wire::Order;

/// Revisions a watch buffers unless told otherwise. Enough for a burst, little enough for thousands of
/// watches.
const BUFFER_REVISIONS: usize = 128;

/// What one revision changed among the watched keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// When.
    pub revision: Revision,
    /// All events of this revision that the watch asked for, in order. None in a mark: see
    /// [`WatchBuilder::marks`].
    pub events: Vec<Event>,
}

impl Client {
    /// Watches keys. Say how, then [`WatchBuilder::start`].
    pub fn watch(&self, keys: impl Into<Keys>) -> WatchBuilder {
        WatchBuilder {
            client: self.clone(),
            keys: keys.into(),
            from: WatchStart::Live,
            previous: false,
            filter: Filter::default(),
            marks: false,
            buffer: BUFFER_REVISIONS,
        }
    }
}

/// A watch that is yet to start.
#[derive(Clone, Debug)]
#[must_use = "a watch begins with `start`"]
pub struct WatchBuilder {
    client: Client,
    keys: Keys,
    from: WatchStart,
    previous: bool,
    filter: Filter,
    marks: bool,
    buffer: usize,
}

impl WatchBuilder {
    /// The first revision wanted, past or future. Without this a watch begins with the revision after
    /// the one at which a member creates it; [`Watch::live`] tells when that has happened.
    ///
    /// After a list at revision R, watch from R + 1.
    pub fn from(mut self, first: Revision) -> WatchBuilder {
        // Zero means something else on the wire. What is below it members refuse as compacted.
        self.from = WatchStart::At(if first.get() == 0 { Revision::EMPTY_STORE } else { first });
        self
    }

    /// Also tells what each key held before the event, as far as it is not compacted.
    pub fn previous(mut self) -> WatchBuilder {
        self.previous = true;
        self
    }

    /// No deletes.
    pub fn only_puts(mut self) -> WatchBuilder {
        self.filter.no_delete = true;
        self
    }

    /// No puts.
    pub fn only_deletes(mut self) -> WatchBuilder {
        self.filter.no_put = true;
        self
    }

    /// Also yields marks: [`Changes`] without events, which say that everything up to their revision was
    /// delivered. One comes about every second while the watch is level with its member and the store
    /// moves on. From etcd before 3.5.8, whose marks cannot be relied on when asked for, they come as
    /// often as its `--experimental-watch-progress-notify-interval` says.
    pub fn marks(mut self) -> WatchBuilder {
        self.marks = true;
        self
    }

    /// How many revisions may wait to be read before the member is told to stop sending; at least one.
    /// 128 unless set. There is a bound in bytes as well, of 4 MiB.
    pub fn buffer(mut self, revisions: usize) -> WatchBuilder {
        self.buffer = revisions;
        self
    }

    /// Starts the watch, in the background.
    pub fn start(self) -> Watch {
        Watch { mailbox: self.mailbox(false) }
    }

    /// As [`WatchBuilder::start`], to be read response by response, with the headers of the members: for
    /// tools that show what servers say. Marks are those that a member sends by itself, with
    /// [`WatchBuilder::marks`], and those asked for with [`Watch::hurry`]. They are told as they come: etcd
    /// before 3.5.8 may send events after a mark that it covers.
    pub fn start_responses(self) -> WatchResponses {
        WatchResponses::new(self.mailbox(true))
    }

    fn mailbox(self, verbatim: bool) -> Arc<Mailbox> {
        let hub = &self.client.shared().watches;
        match self.keys.range() {
            Ok(range) => {
                let namespace = self.client.prefix().clone();
                let order = Order {
                    range: namespace.wrap_range(range),
                    namespace,
                    previous: self.previous,
                    filter: self.filter,
                    marks: self.marks,
                    verbatim,
                };
                hub.start(&self.client, order, self.from, self.buffer)
            }
            Err(error) => hub.refuse(WatchError::Refused(error)),
        }
    }
}

/// A running watch. Dropping it cancels it at the member.
///
/// After an error it is over, and yields nothing more.
#[must_use = "a watch that is dropped is cancelled"]
pub struct Watch {
    mailbox: Arc<Mailbox>,
}

impl Watch {
    /// The next revision; `None` when the watch is over. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Option<Result<Changes, WatchError>> {
        poll_fn(|context| self.mailbox.poll(context)).await
    }

    /// Done once a member has created the watch, or when it is over. What is written after that is seen
    /// by a watch that starts now, also if that member is lost meanwhile.
    pub async fn live(&self) {
        let mut monitor = self.monitor();
        let settled = |status: &WatchStatus| status.next.is_some() || status.phase == WatchPhase::Ended;
        // The other end is in the mailbox, which is held.
        drop(monitor.wait_for(settled).await);
    }

    /// Asks for a mark now rather than when the next one is due, of a watch with
    /// [`WatchBuilder::marks`]. A member that is behind with one of its stream's watches does not answer;
    /// whoever waits for a mark asks again after a moment.
    pub fn hurry(&self) {
        self.mailbox.want_mark();
    }

    /// How it is doing now.
    pub fn status(&self) -> WatchStatus {
        self.mailbox.status()
    }

    /// Follows how it is doing. A receiver that looks seldom sees the latest, not every step.
    pub fn monitor(&self) -> tokio::sync::watch::Receiver<WatchStatus> {
        self.mailbox.monitor()
    }
}

impl Stream for Watch {
    type Item = Result<Changes, WatchError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.mailbox.poll(context)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("status", &self.status()).finish()
    }
}
