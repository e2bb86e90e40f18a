//! Choosing what an informer holds and how it reads it.

use bytes::Bytes;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use super::list_watch::ListWatch;
use super::object::Object;
use super::reflector::Reflector;
use super::shared::Shared;
use super::store::{Decode, IndexBy, Writer};
use super::subscription::RESYNC_SHORTEST;
use super::{Informer, Running};
use crate::KeyValue;

/// Objects asked for at a time.
const PAGE_SIZE_DEFAULT: u64 = 500;

/// An informer whose source is chosen, but not what becomes of the values.
#[derive(Debug)]
#[must_use = "an informer starts with start()"]
pub struct Undecoded<S> {
    pub(crate) source: S,
}

impl<S: ListWatch> Undecoded<S> {
    /// Values become what `decode` makes of them. It runs in the informer's task, once for each new
    /// state of a key, and should be quick.
    ///
    /// A value it refuses is kept out of the cache: the key's former state is removed, handlers are
    /// warned with [`Delta::Undecodable`](super::Delta::Undecodable), and the key with the reason is
    /// listed by [`Snapshot::rejected`](super::Snapshot::rejected) until it can be decoded or is
    /// deleted. The informer goes on. If `decode` panics the informer stops.
    pub fn decode<T, E: Display>(
        self,
        decode: impl Fn(&KeyValue) -> Result<T, E> + Send + Sync + 'static,
    ) -> Builder<S, T> {
        let decode: Decode<T> = Box::new(move |kv| decode(kv).map_err(|error| error.to_string()));
        Builder {
            source: self.source,
            decode,
            indexers: Vec::new(),
            resync: None,
            page_size: PAGE_SIZE_DEFAULT,
            seed: None,
        }
    }

    /// Values stay the bytes they are.
    pub fn bytes(self) -> Builder<S, Bytes> {
        self.decode(|kv| Ok::<Bytes, std::convert::Infallible>(kv.value.clone()))
    }

    /// Values are text. Those that are not UTF-8 are refused, as [`Undecoded::decode`] says.
    pub fn text(self) -> Builder<S, String> {
        self.decode(|kv| std::str::from_utf8(&kv.value).map(str::to_owned))
    }
}

/// An informer before it starts.
#[must_use = "an informer starts with start()"]
pub struct Builder<S, T> {
    source: S,
    decode: Decode<T>,
    indexers: Vec<(String, IndexBy<T>)>,
    resync: Option<Duration>,
    page_size: u64,
    seed: Option<u64>,
}

impl<S: ListWatch, T: Send + Sync + 'static> Builder<S, T> {
    /// Keeps an index: `values` gives the values under which an object is to be found (any number,
    /// also none) by [`Store::by_index`](super::Store::by_index). An index is never out of step with
    /// the objects. A name given twice replaces the first.
    pub fn indexer(
        mut self,
        name: impl Into<String>,
        values: impl Fn(&Object<T>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        self.indexers.retain(|(other, _)| *other != name);
        self.indexers.push((name, Box::new(values)));
        self
    }

    /// How often each handler has the whole cache delivered again, unless it says otherwise: see
    /// [`SubscriptionBuilder::resync`](super::SubscriptionBuilder::resync). Never, unless told.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period.max(RESYNC_SHORTEST));
        self
    }

    /// How many objects to ask for at a time when listing (500 unless told).
    pub fn page_size(mut self, objects: u64) -> Self {
        self.page_size = objects.max(1);
        self
    }

    /// Fixes the draws by which waits are spread, so that a test can be repeated.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts listing and watching in a task of its own.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(self) -> Informer<T> {
        let writer = Writer::new(self.decode, self.indexers);
        let shared = Arc::new(Shared::new(writer.store().clone()));
        let reflector = Reflector {
            source: self.source,
            writer,
            shared: Arc::clone(&shared),
            page_size: self.page_size,
            seed: self.seed.unwrap_or_else(rand::random),
        };
        let task = tokio::spawn(reflector.run()).abort_handle();
        Informer { running: Arc::new(Running { shared, task, resync: self.resync }) }
    }
}

impl<S, T> std::fmt::Debug for Builder<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder {{ indexers: {}, page_size: {} }}", self.indexers.len(), self.page_size)
    }
}
