//! Everything that happened, as a watcher of one member is told it.
//!
//! Watches all keys from the first revision on, with previous values. What no server may do (split a
//! revision over two responses, break off, cancel) is found at once, without a second server.

use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::WatchResponse;
use meerkat_proto::pb::mvcc::Event;

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::outcome::describe;
use crate::watch::WatchSpec;
use crate::watch::stream::{Next, WatchStream};

/// Within which time an event that happened must have been told.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// One watcher and what it was told.
#[derive(Debug)]
pub struct Events {
    stream: WatchStream,
    all: Vec<Event>,
}

impl Events {
    /// Watches a member.
    pub async fn watch(endpoint: &Endpoint) -> Result<Self, Failure> {
        let stream = endpoint.watch(&[])?;
        stream.send(WatchSpec { prev_kv: true, ..WatchSpec::of_all() }.request(1)).await;
        Ok(Self { stream, all: Vec::new() })
    }

    /// What it was told so far.
    pub fn all(&self) -> &[Event] {
        &self.all
    }

    /// Listens until a revision has been told.
    pub async fn hear(&mut self, revision: i64) -> Result<(), Failure> {
        let deadline = Instant::now() + TOLD_WITHIN;
        while self.last_revision() < revision {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::broken(format!(
                    "a watcher was told of revision {} but not of {revision} within {TOLD_WITHIN:?}",
                    self.last_revision()
                )));
            }
            match self.stream.next(left).await {
                Next::Nothing => {}
                Next::Response(response) => self.take(*response)?,
                Next::Ended(status) => {
                    let why = status.map_or_else(|| "no reason".to_owned(), |status| describe(&status));
                    return Err(Failure::broken(format!("a watch ended by itself: {why}")));
                }
            }
        }
        Ok(())
    }

    /// Listens for a while, for what nobody is owed.
    pub async fn listen(&mut self, lasting: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + lasting;
        while Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Next::Response(response) = self.stream.next(left).await {
                self.take(*response)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, response: WatchResponse) -> Result<(), Failure> {
        if response.canceled {
            return Err(Failure::broken(format!("a watcher was canceled: {:?}", response.cancel_reason)));
        }
        if let Some(first) = response.events.first()
            && revision_of(first) <= self.last_revision()
        {
            return Err(Failure::broken(format!(
                "revision {} was told in two parts, or after {}",
                revision_of(first),
                self.last_revision()
            )));
        }
        self.all.extend(response.events);
        Ok(())
    }

    fn last_revision(&self) -> i64 {
        // Revision 1 is the empty store, of which there is nothing to tell.
        self.all.last().map_or(1, revision_of)
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
