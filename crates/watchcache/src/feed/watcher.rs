//! One client's watch, as its connection reads it.

use super::Item;
use super::seat::{Next, Seat};
use super::shared::Shared;
use crate::cacher::entry::Entry;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

/// First objects that are handed out at once.
const CHUNK: usize = 500;

/// One client's watch. Dropping it ends it.
pub struct Watcher {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    /// The objects that were there, as long as not all are told.
    initial: std::vec::IntoIter<Entry>,
    deadline: Pin<Box<Sleep>>,
}

impl Watcher {
    pub(super) fn new(shared: Arc<Shared>, seat: Arc<Seat>, initial: Vec<Entry>, deadline: Sleep) -> Watcher {
        Watcher { shared, seat, initial: initial.into_iter(), deadline: Box::pin(deadline) }
    }

    /// All that waits, at least one item; `None` when the watch is over. May be dropped and called
    /// again: nothing gets lost.
    pub async fn next(&mut self) -> Option<Vec<Item>> {
        if self.initial.len() > 0 {
            let is_over = self.is_late() || self.seat.ends_at_once();
            return if is_over { None } else { Some(self.chunk()) };
        }
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Next::Items { items, made_room } => {
                    if made_room {
                        self.shared.room.notify_one();
                    }
                    return Some(items);
                }
                Next::Refill => {
                    let now_ms = self.shared.now_ms();
                    self.shared.locked(|hub, wakers| hub.refill(&self.seat, now_ms, wakers));
                    // A long way through the ring is gone in steps.
                    tokio::task::consume_budget().await;
                }
                Next::Over => return None,
            }
        }
    }

    /// The timer itself knows only if somebody waits for it.
    fn is_late(&self) -> bool {
        self.deadline.deadline() <= Instant::now()
    }

    fn chunk(&mut self) -> Vec<Item> {
        let chunk = self.initial.by_ref().take(CHUNK).map(Item::Initial).collect();
        if self.initial.len() == 0 {
            self.initial = Vec::new().into_iter();
        }
        chunk
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        if self.is_late() {
            return Poll::Ready(Next::Over);
        }
        let next = self.seat.poll_next(self.shared.now_ms(), cx);
        if next.is_pending() && self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Next::Over);
        }
        next
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.locked(|hub, _| hub.remove(self.seat.id));
    }
}

#[cfg(test)]
impl Watcher {
    /// The revision of the state that it began with, or after which its changes begin.
    pub(super) fn began_after(&self) -> u64 {
        self.seat.after
    }
}
