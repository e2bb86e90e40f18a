//! Objects read and written: what the rules decide, done to the store as one compare-and-swap.
//!
//! ```text
//!   kinds        which kinds are served: the built-in ones, and those of the definitions in the store
//!   read         one object, a list: from the feed's cache, or from the store where it has no answer
//!   admission    whether something new may come to be where it is to be
//!   rules        one request's decisions: form, owners of fields, write rules. Pure
//!   judge        what the schema of a custom kind says of the outcome, off the door's thread
//!   definition   what a CustomResourceDefinition has beyond that. Pure
//!   swap         read, decide, write; decide again if somebody was quicker
//!   leave        in whose name it is written; asked for again if users or roles changed
//!   create, update, patch, delete, collection      the verbs
//!   pods         bindings and evictions
//!   event_lease  the lease that an event goes with
//!   failure      what a client is told when the store fails
//! ```
//!
//! Always true:
//! - A write is acknowledged only after the store did it, and what it was decided from was there until then.
//! - What is decided from a cached copy is written only if that copy is still current; a refusal, or that
//!   there is nothing to do, is told only after a look at the store.
//! - A write is done by the users and roles that let its asker in, or not at all.
//! - A write whose outcome is unknown is told as done only if the store has exactly what was to be written.

mod admission;
mod collection;
mod create;
mod definition;
mod delete;
mod event_lease;
mod failure;
mod judge;
mod kinds;
mod leave;
mod patch;
mod pods;
mod read;
mod rules;
mod secret;
mod swap;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use event_lease::expires;
pub use kinds::Kinds;
pub use leave::{Leave, Writer};

use crate::write_options::{ApplyOptions, WriteOptions};
use crate::write_rules::Endpoint;
use event_lease::EventLeases;
use meerkat_kubernetes::negotiation::PatchForm;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_watchcache::feed::Feeds;
use meerkat_watchcache::store::Store;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// What a request is about, and in whose name.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub kind: &'a Arc<Kind>,
    /// Empty for a kind of the whole cluster, and for a list over all namespaces.
    pub namespace: &'a str,
    /// Empty if the request names none.
    pub name: &'a str,
    pub writer: Writer<'a>,
}

/// The part of an object that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Of(Endpoint),
    Scale,
}

/// A patch, read: a JSON patch's list, or an object.
pub enum Patch {
    Of { form: PatchForm, body: Value, options: WriteOptions },
    Apply { body: Value, options: ApplyOptions },
}

/// What a write came to, in the form of the request's kind and version.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub object: Value,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
    /// 201 and not 200.
    pub created: bool,
}

/// What can be chosen of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an event is kept after its last write.
    pub event_ttl_s: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { event_ttl_s: 3_600 }
    }
}

pub struct Storage {
    store: Arc<dyn Store>,
    feeds: Arc<Feeds>,
    kinds: Kinds,
    event_leases: EventLeases,
    /// Who hold objects against their schemas.
    judges: Arc<Semaphore>,
    /// The last revision in which a namespace was written here.
    namespaces_written: AtomicU64,
}

impl Storage {
    /// To be called inside a runtime: from now on the definitions are followed, until it is dropped.
    pub fn new(store: Arc<dyn Store>, feeds: Arc<Feeds>) -> Arc<Storage> {
        Storage::with(store, feeds, Settings::default())
    }

    pub fn with(store: Arc<dyn Store>, feeds: Arc<Feeds>, settings: Settings) -> Arc<Storage> {
        let kinds = Kinds::follow(store.clone(), feeds.clone());
        let event_leases = EventLeases::new(store.clone(), settings.event_ttl_s);
        let namespaces_written = AtomicU64::new(0);
        let judges = judge::judges();
        Arc::new(Storage { store, feeds, kinds, event_leases, judges, namespaces_written })
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    pub fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    Timestamp { seconds, nanos: since.subsec_nanos() }
}
