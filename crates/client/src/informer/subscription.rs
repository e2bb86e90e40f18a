//! One handler's side: its own queue, its own pace, its own resync.

use futures::{Stream, stream};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::object::Delta;
use super::shared::{Inbox, Shared};

/// Changes kept one by one for a handler before they are kept per key.
pub(crate) const QUEUE_DEFAULT: usize = 1024;
/// A resync passes the whole cache to the handler, so there is a limit to how often.
pub(crate) const RESYNC_SHORTEST: Duration = Duration::from_secs(1);

/// How a handler wants to be told. Made by [`Informer::subscription`](super::Informer::subscription).
#[must_use = "nothing is delivered until start() or handle()"]
pub struct SubscriptionBuilder<T> {
    pub(crate) shared: Arc<Shared<T>>,
    pub(crate) resync: Option<Duration>,
    pub(crate) queue: usize,
}

impl<T: Send + Sync + 'static> SubscriptionBuilder<T> {
    /// Has the whole cache delivered again as [`Delta::Resync`] this often (at least a second apart).
    /// No request is made for it. It helps handlers whose work can be undone by others.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period.max(RESYNC_SHORTEST));
        self
    }

    /// No resync, whatever the informer was built with.
    pub fn no_resync(mut self) -> Self {
        self.resync = None;
        self
    }

    /// How many changes are kept one by one (1024 unless told). A handler further behind than this is
    /// told the newest state of each key only. Nought: always only that.
    pub fn queue(mut self, changes: usize) -> Self {
        self.queue = changes;
        self
    }

    /// The subscription, to be read with [`Subscription::next`].
    pub fn start(self) -> Subscription<T> {
        let inbox = self.shared.join(self.queue);
        let resync = self.resync.map(|period| Resync { period, due: Instant::now() + period });
        Subscription { shared: self.shared, inbox, resync }
    }

    /// Runs `handler` on each change, one after the other, in a task of its own, until the guard is
    /// dropped or the informer stops.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn handle<F, Fut>(self, mut handler: F) -> Handling
    where
        F: FnMut(Delta<T>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let mut subscription = self.start();
        let task = tokio::spawn(async move {
            while let Some(delta) = subscription.next().await {
                handler(delta).await;
            }
        });
        Handling { task }
    }
}

/// What one handler is told. First the cache as it was when the subscription began, as
/// [`Delta::Added`]; then what changes.
///
/// Memory is bounded by the number of keys however slow the reader is: see
/// [`SubscriptionBuilder::queue`]. Neither the cache nor another handler waits for it.
pub struct Subscription<T> {
    shared: Arc<Shared<T>>,
    inbox: Arc<Inbox<T>>,
    resync: Option<Resync>,
}

#[derive(Clone, Copy)]
struct Resync {
    period: Duration,
    due: Instant,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    /// The next change. Nothing when the informer has stopped and everything has been told. May be
    /// dropped while it waits; no change is lost by that.
    pub async fn next(&mut self) -> Option<Delta<T>> {
        loop {
            self.resync_if_due();
            {
                let mut content = self.inbox.content.lock();
                if let Some(delta) = content.backlog.pop() {
                    return Some(delta);
                }
                if content.closed {
                    return None;
                }
            }
            // What is added from here on leaves a permit in the bell, so it cannot be missed.
            match self.resync {
                None => self.inbox.bell.notified().await,
                Some(Resync { due, .. }) => tokio::select! {
                    () = self.inbox.bell.notified() => {}
                    () = sleep_until(due) => {}
                },
            }
        }
    }

    /// Changes waiting: one by one, or one for each key when there are too many.
    pub fn backlog(&self) -> usize {
        self.inbox.content.lock().backlog.len()
    }

    /// States this subscription was not told, because a newer one of the same key took their place
    /// while it was behind.
    pub fn left_out(&self) -> u64 {
        self.inbox.content.lock().backlog.left_out()
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Delta<T>> + Send {
        stream::unfold(self, |mut subscription| async {
            let delta = subscription.next().await?;
            Some((delta, subscription))
        })
    }

    fn resync_if_due(&mut self) {
        let now = Instant::now();
        if let Some(resync) = &mut self.resync
            && resync.due <= now
        {
            resync.due = now + resync.period;
            self.shared.resync(&self.inbox);
        }
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.shared.leave(&self.inbox);
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription {{ backlog: {} }}", self.inbox.content.lock().backlog.len())
    }
}

impl<T> fmt::Debug for SubscriptionBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubscriptionBuilder {{ resync: {:?}, queue: {} }}", self.resync, self.queue)
    }
}

/// A running handler. Dropping it stops the handler where it next waits.
#[derive(Debug)]
#[must_use = "the handler stops when this is dropped"]
pub struct Handling {
    task: JoinHandle<()>,
}

impl Handling {
    /// Waits until the handler has been told everything and the informer has stopped. False if the
    /// handler panicked, which ends it, and nothing else.
    pub async fn finished(mut self) -> bool {
        (&mut self.task).await.is_ok()
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.task.abort();
    }
}
