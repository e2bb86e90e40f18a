//! One watcher's place: what waits for it, and who is to be woken.
//!
//! Everything in a seat is under its own lock, which is held for the time it takes to move some lines.

use super::Item;
use crate::cacher::filter::Filter;
use crate::cacher::frame::Mark;
use crate::cacher::interest::WatcherId;
use crate::cacher::park::{End, Flow, Line, Offer, State};
use crate::cacher::ring::Ring;
use parking_lot::Mutex;
use std::task::{Context, Poll, Waker};

/// Whom to wake when no lock is held any more.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

pub(super) struct Seat {
    pub(super) id: WatcherId,
    pub(super) filter: Filter,
    /// What it knew when it came.
    pub(super) after: u64,
    /// For those who asked for bookmarks.
    pub(super) bookmarks: Option<BookmarkWish>,
    desk: Mutex<Desk>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BookmarkWish {
    pub(super) deadline_ms: u64,
    /// The revision to be reached before its first objects are complete, if it asked to be told.
    pub(super) initial_end: Option<u64>,
}

struct Desk {
    flow: Flow,
    queue: Vec<Item>,
    end: Option<End>,
    /// Its first objects are told, and it was level once.
    has_joined: bool,
    waker: Option<Waker>,
}

/// What came of a step of catching up.
pub(super) struct Refilled {
    pub(super) state: State,
    pub(super) joins: bool,
}

pub(super) enum Next {
    Items {
        items: Vec<Item>,
        made_room: bool,
    },
    /// It is parked and has read all: what follows is in the ring.
    Refill,
    Over,
}

impl Seat {
    pub(super) fn new(id: WatcherId, filter: Filter, bookmarks: Option<BookmarkWish>, flow: Flow) -> Seat {
        let desk = Desk { flow, queue: Vec::new(), end: None, has_joined: false, waker: None };
        let after = desk.flow.position();
        Seat { id, filter, after, bookmarks, desk: Mutex::new(desk) }
    }

    /// All lines of one revision.
    pub(super) fn offer(
        &self,
        revision: u64,
        lines: impl ExactSizeIterator<Item = Line>,
        wakers: &mut Wakers,
    ) -> Offer {
        let mut desk = self.desk.lock();
        let offer = desk.flow.offer(revision, lines.len());
        if offer == Offer::Take {
            desk.put(lines, wakers);
        }
        offer
    }

    /// Whether nothing more is to be waited for: the lines are queued, or nobody wants them.
    pub(super) fn retry(&self, lines: &mut Vec<Line>, wakers: &mut Wakers) -> bool {
        self.desk.lock().retry(lines, wakers)
    }

    /// As [`retry`](Self::retry), and parks it if there is still no room. Under one lock: whoever reads in
    /// between would find nothing to do, and nobody would wake it.
    pub(super) fn retry_or_park(&self, lines: &mut Vec<Line>, now_ms: u64, wakers: &mut Wakers) -> bool {
        let mut desk = self.desk.lock();
        if desk.retry(lines, wakers) {
            return true;
        }
        desk.flow.park(now_ms);
        if desk.flow.wants_refill() {
            wakers.0.extend(desk.waker.take());
        }
        false
    }

    /// One step from the ring.
    pub(super) fn refill(&self, ring: &Ring, now_ms: u64) -> Refilled {
        let mut desk = self.desk.lock();
        let lines = desk.flow.refill(ring, &self.filter, now_ms);
        // It is the watcher itself that asks: there is nobody to be woken.
        desk.queue.extend(lines.into_iter().map(Item::Line));
        let state = desk.flow.state();
        let joins = state == State::Live && !desk.has_joined;
        desk.has_joined |= joins;
        Refilled { state, joins }
    }

    /// Whether it went out.
    pub(super) fn bookmark(&self, mark: Mark, dispatched: u64, wakers: &mut Wakers) -> bool {
        let mut desk = self.desk.lock();
        let Some(revision) = desk.flow.bookmark(mark, dispatched) else { return false };
        desk.queue.push(Item::Bookmark { revision, mark });
        wakers.0.extend(desk.waker.take());
        true
    }

    /// Whether it is given up.
    pub(super) fn tick(&self, now_ms: u64) -> bool {
        let mut desk = self.desk.lock();
        desk.flow.tick(now_ms);
        matches!(desk.flow.state(), State::Forgotten(_))
    }

    /// A forgotten one goes as its flow says.
    pub(super) fn forget(&self, wakers: &mut Wakers) {
        let mut desk = self.desk.lock();
        let end = desk.flow.end().unwrap_or(End::AtOnce);
        desk.end(end, wakers);
    }

    /// The feed ends. What was queued is true and is told, but not half of the first objects.
    pub(super) fn end(&self, wakers: &mut Wakers) {
        let mut desk = self.desk.lock();
        let end = if desk.has_joined { End::AfterQueue } else { End::AtOnce };
        desk.end(end, wakers);
    }

    /// As [`end`](Self::end), and its client is told to begin anew. One that was still shown the first
    /// objects begins anew by itself.
    pub(super) fn expire(&self, wakers: &mut Wakers) {
        let mut desk = self.desk.lock();
        if !desk.has_joined {
            return desk.end(End::AtOnce, wakers);
        }
        desk.queue.push(Item::Expired);
        desk.end(End::AfterQueue, wakers);
    }

    pub(super) fn ends_at_once(&self) -> bool {
        self.desk.lock().end == Some(End::AtOnce)
    }

    pub(super) fn poll_next(&self, now_ms: u64, cx: &mut Context<'_>) -> Poll<Next> {
        let mut desk = self.desk.lock();
        if !desk.queue.is_empty() {
            let items = std::mem::take(&mut desk.queue);
            let made_room = matches!(desk.flow.state(), State::Blocked { .. });
            // The last word of one that ends was never counted.
            if desk.end.is_none() {
                desk.flow.sent(items.len(), now_ms);
            }
            return Poll::Ready(Next::Items { items, made_room });
        }
        if desk.end.is_some() {
            return Poll::Ready(Next::Over);
        }
        if desk.flow.wants_refill() {
            return Poll::Ready(Next::Refill);
        }
        desk.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Desk {
    fn retry(&mut self, lines: &mut Vec<Line>, wakers: &mut Wakers) -> bool {
        if self.end.is_some() {
            return true;
        }
        let fits = self.flow.retry();
        if fits {
            self.put(lines.drain(..), wakers);
        }
        fits
    }

    fn put(&mut self, lines: impl Iterator<Item = Line>, wakers: &mut Wakers) {
        self.queue.extend(lines.map(Item::Line));
        wakers.0.extend(self.waker.take());
    }

    fn end(&mut self, end: End, wakers: &mut Wakers) {
        if end == End::AtOnce {
            self.queue.clear();
        }
        self.end = Some(end);
        wakers.0.extend(self.waker.take());
    }
}
