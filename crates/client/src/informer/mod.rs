//! A cached, self-healing view of a range: list it once, follow its changes, and never ask twice.
//!
//! An [`Informer`] keeps a copy of a range in memory and keeps it right. Whatever happens to members,
//! connections and history, the cache is at every moment exactly what a list of the range at
//! [`Store::revision`] would give: not half a list, not half a transaction. One list and one watch
//! serve any number of handlers, each with a queue of its own, so a slow one holds up nobody.
//!
//! Handlers are told of edges ([`Delta`]), but should act on the level, which is what the [`Store`]
//! says: a state in between may be left out for a slow handler, the final state never is. The usual
//! shape is a handler that only adds keys to a [`WorkQueue`](crate::work_queue::WorkQueue), and
//! workers that take a key and make the world agree with the store.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use meerkat_client::{Informer, Keys};
//!
//! let ports = Informer::builder(&client, Keys::prefix("port/"))
//!     .decode(|kv| String::from_utf8_lossy(&kv.value).parse::<u16>())
//!     .indexer("privileged", |port| vec![(port.value < 1024).to_string()])
//!     .start();
//! ports.wait_for_sync().await?;
//! for port in ports.store().by_index("privileged", "true")? {
//!     println!("{:?} listens on {}", port.key, port.value);
//! }
//! # Ok(())
//! # }
//! ```

mod backlog;
mod backoff;
mod builder;
mod grpc;
#[cfg(feature = "listwatch")]
mod http;
mod list_watch;
mod machine;
mod object;
mod reflector;
mod shared;
mod status;
mod store;
mod subscription;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use builder::{Builder, Undecoded};
pub use grpc::KeySource;
#[cfg(feature = "listwatch")]
pub use http::{ObjectSource, Trail};
pub use list_watch::{ListWatch, Page, PageRequest, SourceError};
pub use object::{Delta, Object};
pub use status::{InformerStatus, Phase, Stopped};
pub use store::{Rejected, Snapshot, Store, UnknownIndex};
pub use subscription::{Handling, Subscription, SubscriptionBuilder};

#[cfg(feature = "listwatch")]
pub(crate) use backoff::Backoff;

use crate::{Client, Keys, Revision};
use shared::Shared;

/// See the [module](self). Clones are the same informer; it stops when the last is dropped, or with
/// [`Informer::stop`].
pub struct Informer<T> {
    running: Arc<Running<T>>,
}

struct Running<T> {
    shared: Arc<Shared<T>>,
    task: AbortHandle,
    resync: Option<Duration>,
}

impl Informer<()> {
    /// An informer of these keys.
    pub fn builder(client: &Client, keys: impl Into<Keys>) -> Undecoded<KeySource> {
        Informer::from_source(KeySource::new(client, keys))
    }

    /// An informer of whatever this source gives.
    pub fn from_source<S: ListWatch>(source: S) -> Undecoded<S> {
        Undecoded { source }
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// The readers' handle to the cache.
    pub fn store(&self) -> Store<T> {
        self.running.shared.store.clone()
    }

    /// A queue of changes for one handler, which starts with everything that is in the cache now.
    pub fn subscribe(&self) -> Subscription<T> {
        self.subscription().start()
    }

    /// The same, with a resync or a queue bound of its own.
    pub fn subscription(&self) -> SubscriptionBuilder<T> {
        SubscriptionBuilder {
            shared: Arc::clone(&self.running.shared),
            resync: self.running.resync,
            queue: subscription::QUEUE_DEFAULT,
        }
    }

    /// Runs `handler` on each change, one after the other, in a task of its own, until the guard is
    /// dropped or the informer stops. Everything that is in the cache now comes first.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn handle<F, Fut>(&self, handler: F) -> Handling
    where
        F: FnMut(Delta<T>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        self.subscription().handle(handler)
    }

    /// Waits until the cache has been filled for the first time. Bound it with `tokio::time::timeout`:
    /// it waits as long as no member answers.
    pub async fn wait_for_sync(&self) -> Result<(), Stopped> {
        self.wait_until(|status| status.revision.is_some()).await
    }

    /// Waits until the cache has reached this revision, for example that of a write just made in this
    /// range, so that what follows reads it.
    pub async fn wait_for_revision(&self, revision: Revision) -> Result<(), Stopped> {
        self.wait_until(|status| status.revision.is_some_and(|reached| revision <= reached)).await
    }

    /// How it is doing.
    pub fn status(&self) -> InformerStatus {
        self.running.shared.status.borrow().clone()
    }

    /// The same, to be followed.
    pub fn monitor(&self) -> watch::Receiver<InformerStatus> {
        self.running.shared.status.subscribe()
    }

    /// Stops it for all clones. Handlers are told what they have not been told yet, and then end. The
    /// store can still be read.
    pub async fn stop(&self) {
        self.running.task.abort();
        // Ends when the task has closed everything behind it.
        let mut monitor = self.monitor();
        let _ = monitor.wait_for(|status| status.phase == Phase::Stopped).await;
    }

    async fn wait_until(&self, reached: impl Fn(&InformerStatus) -> bool) -> Result<(), Stopped> {
        let mut monitor = self.monitor();
        let status = monitor.wait_for(|status| reached(status) || status.phase == Phase::Stopped).await;
        if status.is_ok_and(|status| reached(&status)) { Ok(()) } else { Err(Stopped) }
    }
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Informer { running: Arc::clone(&self.running) }
    }
}

impl<T> fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer {:?}", *self.running.shared.status.borrow())
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
