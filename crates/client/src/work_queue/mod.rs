//! A queue of keys to work on: each at most once, by one worker at a time, slower after failures.
//!
//! Made for reconcile loops. Whoever notices that a key may need work [adds](WorkQueue::add) it, as
//! often as it likes; a worker [takes](WorkQueue::get) it, looks at what is so now, and makes the
//! world agree. Because only keys wait here and not what happened to them, a hundred changes of one
//! key are one piece of work, and memory is bounded by the number of different keys.
//!
//! Never true: two workers with the same key; a key added and then not worked on (unless the queue is
//! shut down).

mod limiter;
mod queue;

use parking_lot::Mutex;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use limiter::RateLimits;
use queue::Queue;

/// See the [module](self). Clones are the same queue.
pub struct WorkQueue<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    /// Held for moments only, never across an await.
    queue: Mutex<Queue<K>>,
    /// Rung for one worker when a key became ready, and for all when a key was delayed: each of them
    /// sleeps until the earliest is due, because any of them may be cancelled before that.
    bell: Notify,
    /// Rung when the last piece of work of a queue that is shut down is done.
    drained: Notify,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue with the usual limits.
    pub fn new() -> WorkQueue<K> {
        WorkQueue::with_limits(RateLimits::default())
    }

    /// An empty queue with limits of your own.
    pub fn with_limits(limits: RateLimits) -> WorkQueue<K> {
        let queue = Mutex::new(Queue::new(limits, Instant::now().into_std()));
        WorkQueue { shared: Arc::new(Shared { queue, bell: Notify::new(), drained: Notify::new() }) }
    }

    /// Wants `key` worked on, as soon as there is a worker. If it is waiting already, nothing changes;
    /// if it is being worked on, it will be again afterwards.
    pub fn add(&self, key: K) {
        if self.shared.queue.lock().add(key) {
            self.shared.bell.notify_one();
        }
    }

    /// Wants `key` worked on after `delay`. If it is delayed already, the earlier time counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if self.shared.queue.lock().add_after(key, delay, Instant::now().into_std()) {
            self.ring_for_all();
        }
    }

    /// Wants `key` worked on again because it failed: later with each failure, and not sooner than all
    /// failures together allow. See [`RateLimits`].
    pub fn retry(&self, key: K) {
        if self.shared.queue.lock().retry(key, Instant::now().into_std()) {
            self.ring_for_all();
        }
    }

    /// Waits for a key to work on. Nothing when the queue is shut down and empty. May be dropped while
    /// it waits; no key is lost by that.
    pub async fn get(&self) -> Option<Work<K>> {
        loop {
            // Made before the lock is taken, so that no ringing after it is missed.
            let rung = self.shared.bell.notified();
            let due = {
                let mut queue = self.shared.queue.lock();
                queue.tick(Instant::now().into_std());
                if let Some(key) = queue.take() {
                    // One tick may have made several ready; the others are for other workers.
                    if 0 < queue.len() {
                        self.shared.bell.notify_one();
                    }
                    return Some(Work { key, queue: self.clone() });
                }
                if queue.is_over() {
                    // The next worker that waits must also see it.
                    self.shared.bell.notify_one();
                    return None;
                }
                queue.next_due()
            };
            match due {
                None => rung.await,
                Some(due) => tokio::select! {
                    () = rung => {}
                    () = sleep_until(due.into()) => {}
                },
            }
        }
    }

    /// Forgets the failures of `key`. To be called when work on it succeeded (as
    /// [`Work::succeeded`] does) or when the key is gone for good: until then they are remembered.
    pub fn forget(&self, key: &K) {
        self.shared.queue.lock().forget(key);
    }

    /// How often `key` has failed since it was last forgotten.
    pub fn retries(&self, key: &K) -> u32 {
        self.shared.queue.lock().retries(key)
    }

    /// How many keys are ready to be worked on.
    pub fn len(&self) -> usize {
        self.shared.queue.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in nothing more. Keys that are ready are still handed out; delayed keys are dropped.
    pub fn shut_down(&self) {
        let mut queue = self.shared.queue.lock();
        queue.shut_down();
        let drained = queue.is_drained();
        drop(queue);
        self.shared.bell.notify_one();
        if drained {
            self.shared.drained.notify_waiters();
        }
    }

    /// [Shuts down](WorkQueue::shut_down) and waits until the workers have done what was left.
    pub async fn drain(&self) {
        self.shut_down();
        loop {
            let drained = self.shared.drained.notified();
            if self.shared.queue.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    fn ring_for_all(&self) {
        self.shared.bell.notify_waiters();
    }

    fn done(&self, key: &K) {
        let mut queue = self.shared.queue.lock();
        let ready = queue.done(key);
        let (over, drained) = (queue.is_over(), queue.is_drained());
        drop(queue);
        if ready || over {
            self.shared.bell.notify_one();
        }
        if drained {
            self.shared.drained.notify_waiters();
        }
    }
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        WorkQueue::new()
    }
}

impl<K: Clone + Eq + Hash> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        WorkQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkQueue {{ ready: {} }}", self.len())
    }
}

/// A key to work on. While this lives nobody else has the key; when it is dropped the work counts as
/// done, also if the worker panicked or was cancelled.
#[must_use = "dropping it says that the work is done"]
pub struct Work<K: Clone + Eq + Hash> {
    key: K,
    queue: WorkQueue<K>,
}

impl<K: Clone + Eq + Hash> Work<K> {
    /// It worked: the failures of the key are forgotten.
    pub fn succeeded(self) {
        self.queue.forget(&self);
    }

    /// It failed: the key comes again after a wait that grows with each failure.
    pub fn failed(self) {
        self.queue.retry((*self).clone());
    }

    /// It is not finished: the key comes again after `delay`. That is no failure.
    pub fn again_after(self, delay: Duration) {
        self.queue.forget(&self);
        self.queue.add_after((*self).clone(), delay);
    }
}

impl<K: Clone + Eq + Hash> Deref for Work<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({:?})", self.key)
    }
}

#[cfg(test)]
#[path = "work_queue_tests.rs"]
mod tests;
