//! Where the cache and its handlers meet.
//!
//! One lock keeps them in step: a change is shown to readers and added to every handler's backlog
//! under it, and a handler that joins takes the cache under it. So what a handler starts with and what
//! it is told afterwards fit together without gap or overlap. The lock is held for moments only, never
//! across an await and never while foreign code runs; handlers take from their backlogs without it.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

use super::backlog::Backlog;
use super::object::Delta;
use super::status::{InformerStatus, Phase};
use super::store::{Store, Writer};

/// What the informer, its task and its subscriptions hold in common.
pub(crate) struct Shared<T> {
    pub(crate) store: Store<T>,
    pub(crate) status: watch::Sender<InformerStatus>,
    /// Taken before an inbox's lock, never after.
    audience: Mutex<Audience<T>>,
}

struct Audience<T> {
    inboxes: Vec<Arc<Inbox<T>>>,
    closed: bool,
}

/// One handler's backlog, and the bell that says something was added to it.
pub(crate) struct Inbox<T> {
    pub(crate) content: Mutex<Content<T>>,
    pub(crate) bell: Notify,
}

pub(crate) struct Content<T> {
    pub(crate) backlog: Backlog<T>,
    /// Nothing more will be added.
    pub(crate) closed: bool,
}

impl<T> Shared<T> {
    pub(crate) fn new(store: Store<T>) -> Shared<T> {
        Shared {
            store,
            status: watch::Sender::new(InformerStatus::default()),
            audience: Mutex::new(Audience { inboxes: Vec::new(), closed: false }),
        }
    }

    /// Shows readers and handlers what `writer` has prepared.
    pub(crate) fn publish(&self, writer: &Writer<T>, deltas: &[Delta<T>]) {
        let audience = self.audience.lock();
        writer.publish();
        if deltas.is_empty() {
            return;
        }
        for inbox in &audience.inboxes {
            let mut content = inbox.content.lock();
            for delta in deltas {
                content.backlog.push(delta);
            }
            drop(content);
            inbox.bell.notify_one();
        }
    }

    /// A new inbox. The cache as it is now comes first in it.
    pub(crate) fn join(&self, log_max: usize) -> Arc<Inbox<T>> {
        let mut audience = self.audience.lock();
        let mut backlog = Backlog::new(log_max);
        let snapshot = self.store.snapshot();
        for object in snapshot.iter() {
            backlog.push(&Delta::Added(Arc::clone(object)));
        }
        // All handlers know the same, so that what comes next fits each of them.
        for (last, reason) in snapshot.in_doubt() {
            backlog.push(&Delta::Added(Arc::clone(last)));
            backlog.push(&Delta::Undecodable { last: Arc::clone(last), reason: Arc::clone(reason) });
        }
        let content = Mutex::new(Content { backlog, closed: audience.closed });
        let inbox = Arc::new(Inbox { content, bell: Notify::new() });
        audience.inboxes.push(Arc::clone(&inbox));
        inbox
    }

    pub(crate) fn leave(&self, inbox: &Arc<Inbox<T>>) {
        self.audience.lock().inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
    }

    /// Puts the cache as it is now into this inbox once more.
    pub(crate) fn resync(&self, inbox: &Inbox<T>) {
        let _in_step = self.audience.lock();
        let mut content = inbox.content.lock();
        if content.closed {
            return;
        }
        for object in self.store.snapshot().iter() {
            content.backlog.resync(object);
        }
    }

    /// Tells everybody that this was all.
    pub(crate) fn close(&self) {
        let mut audience = self.audience.lock();
        audience.closed = true;
        for inbox in &audience.inboxes {
            inbox.content.lock().closed = true;
            inbox.bell.notify_one();
        }
        drop(audience);
        self.status.send_modify(|status| status.phase = Phase::Stopped);
    }
}
