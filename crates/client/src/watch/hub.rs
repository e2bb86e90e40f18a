//! Where watches go: a client's streams, and how each hears from its watches.
//!
//! A client has at most [`STREAMS_MAX`] watch streams whatever the number of its watches, each with a
//! task of its own (`carrier`). The first [`WATCHES_FIRST`] share one; further streams are opened as
//! watches come, and beyond that all are loaded alike. A task ends when it had no watches for a while.
//!
//! An [`Inbox`] is how a watch speaks to its task without waiting: at most one entry for each watch
//! lies in it, so it is bounded by their number.

use super::WatchError;
use super::carrier::{self, Carrier};
use super::mailbox::{Budget, Mailbox};
use super::wire::Order;
use crate::Client;
use meerkat_types::WatchStart;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Streams of one client. A handful, so that one slow network path does not hold up all watches, and
/// each member's work is spread over its cores.
pub(crate) const STREAMS_MAX: usize = 8;
/// Watches a stream takes before another is opened.
pub(crate) const WATCHES_FIRST: usize = 256;

/// A watch's number in its client, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Serial(pub(crate) u64);

/// A watch on its way to its stream.
pub(crate) struct Start {
    pub(crate) order: Order,
    pub(crate) from: WatchStart,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// What a task is told.
pub(crate) enum News {
    Start(Start),
    /// The application has dropped this watch, or has read what a parked one waited for.
    Look(Serial),
    /// Somebody wants to know how far the watches have come.
    Progress,
}

/// What watches have to say to the task of their stream.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    wake: Notify,
    watches: AtomicUsize,
}

#[derive(Default)]
struct InboxState {
    news: Vec<News>,
    /// Progress is wanted, by however many.
    progress: bool,
    /// The task is ending and reads no more.
    closed: bool,
}

impl Inbox {
    /// False if the task is ending.
    fn start(&self, start: impl FnOnce() -> Start) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        state.news.push(News::Start(start()));
        self.watches.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.wake.notify_one();
        true
    }

    pub(crate) fn look_at(&self, serial: Serial) {
        let mut state = self.state.lock();
        if !state.closed {
            state.news.push(News::Look(serial));
            drop(state);
            self.wake.notify_one();
        }
    }

    pub(crate) fn want_progress(&self) {
        let mut state = self.state.lock();
        if !state.closed && !std::mem::replace(&mut state.progress, true) {
            drop(state);
            self.wake.notify_one();
        }
    }

    pub(crate) fn take(&self) -> Vec<News> {
        let mut state = self.state.lock();
        let mut news = std::mem::take(&mut state.news);
        if std::mem::take(&mut state.progress) {
            news.push(News::Progress);
        }
        news
    }

    /// Resolves when there may be news.
    pub(crate) async fn news(&self) {
        self.wake.notified().await;
    }

    /// Watches have left the stream.
    pub(crate) fn left(&self, watches: usize) {
        self.watches.fetch_sub(watches, Ordering::Relaxed);
    }

    /// Closes it if nothing is in it. True if it is closed.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.closed |= state.news.is_empty();
        state.closed
    }

    /// Closes it and returns what was in it.
    pub(crate) fn close(&self) -> Vec<News> {
        let mut state = self.state.lock();
        state.closed = true;
        std::mem::take(&mut state.news)
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

/// The streams of one client.
#[derive(Default)]
pub(crate) struct Hub {
    /// Guards the list only.
    streams: Mutex<Vec<Arc<Inbox>>>,
    serials: AtomicU64,
    budget: Arc<Budget>,
}

impl Hub {
    /// A watch that is over before it began.
    pub(crate) fn refuse(&self, why: WatchError) -> Arc<Mailbox> {
        let mailbox = Mailbox::new(Serial(0), 1, self.budget.clone(), Arc::default());
        mailbox.end(why);
        Arc::new(mailbox)
    }

    pub(crate) fn start(
        &self,
        client: &Client,
        order: Order,
        from: WatchStart,
        revisions_max: usize,
    ) -> Arc<Mailbox> {
        let serial = Serial(self.serials.fetch_add(1, Ordering::Relaxed));
        let mut streams = self.streams.lock();
        streams.retain(|inbox| !inbox.is_closed());
        let loads: Vec<usize> = streams.iter().map(|inbox| inbox.watches.load(Ordering::Relaxed)).collect();
        if let Some(index) = choose(&loads) {
            let home = &streams[index];
            let mailbox = Arc::new(Mailbox::new(serial, revisions_max, self.budget.clone(), home.clone()));
            let start = || Start { order: order.clone(), from, mailbox: mailbox.clone() };
            // It may have begun to end since it was listed; then this watch gets a stream of its own.
            if home.start(start) {
                return mailbox;
            }
        }
        let home = Arc::new(Inbox::default());
        let mailbox = Arc::new(Mailbox::new(serial, revisions_max, self.budget.clone(), home.clone()));
        home.start(|| Start { order, from, mailbox: mailbox.clone() });
        streams.push(home.clone());
        client.spawn(carrier::run(Carrier::new(client.clone(), home)));
        mailbox
    }
}

/// Which stream takes the next watch, by how many each has; `None` for a new one.
fn choose(loads: &[usize]) -> Option<usize> {
    let (index, least) = loads.iter().enumerate().min_by_key(|(_, load)| **load)?;
    (*least < WATCHES_FIRST || STREAMS_MAX <= loads.len()).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_watches_share_one_stream_and_many_a_handful() {
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[WATCHES_FIRST - 1]), Some(0));
        assert_eq!(choose(&[WATCHES_FIRST]), None);
        assert_eq!(choose(&[WATCHES_FIRST, 3]), Some(1));
        assert_eq!(choose(&[4_000; STREAMS_MAX]), Some(0));
        let mut loads = Vec::new();
        for _ in 0..10_000 {
            match choose(&loads) {
                Some(index) => loads[index] += 1,
                None => loads.push(1),
            }
        }
        assert_eq!(loads, [1_250; STREAMS_MAX]);
    }

    #[test]
    fn an_inbox_closes_only_when_it_is_empty() {
        let inbox = Inbox::default();
        inbox.look_at(Serial(1));
        assert!(!inbox.close_if_empty());
        assert_eq!(inbox.take().len(), 1);
        assert!(inbox.close_if_empty());
        inbox.look_at(Serial(1));
        assert_eq!(inbox.take().len(), 0);
    }
}
