//! What the cache holds, and what handlers are told about it.

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

use crate::{KeyValue, LeaseId, Revision};

/// One key with its decoded value, as it was at some revision. Never changes: a newer state is a new
/// object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object<T> {
    /// The key.
    pub key: Bytes,
    /// What the decoder made of the value.
    pub value: T,
    /// When the key came into being.
    pub created: Revision,
    /// The write that this state comes from.
    pub modified: Revision,
    /// Writes since the key came into being, that one included.
    pub version: i64,
    /// The lease the key lives and dies with.
    pub lease: Option<LeaseId>,
}

impl<T> Object<T> {
    pub(crate) fn new(kv: &KeyValue, value: T) -> Object<T> {
        Object {
            key: kv.key.clone(),
            value,
            created: kv.created,
            modified: kv.modified,
            version: kv.version,
            lease: kv.lease,
        }
    }

    /// Whether `kv` is the very state this was made from.
    pub(crate) fn is(&self, kv: &KeyValue) -> bool {
        (self.created, self.modified, self.version, self.lease)
            == (kv.created, kv.modified, kv.version, kv.lease)
    }
}

/// What a handler is told about one key.
///
/// For each key a handler sees `Added` first, then any number of `Updated`, `Undecodable` and
/// `Resync`, then `Deleted`, after which the key may be `Added` again. What one says of the past
/// (`old`, `last`) is exactly what this handler was told before, so a handler can keep sums. A state
/// in between may be left out when the handler is slow; the final state never is.
pub enum Delta<T> {
    /// A key this handler has not been told of, or not since it went.
    Added(Arc<Object<T>>),
    /// The key has a new state.
    Updated {
        /// What this handler was last told.
        old: Arc<Object<T>>,
        /// What is so now.
        new: Arc<Object<T>>,
    },
    /// The key is gone.
    Deleted {
        /// What this handler was last told.
        last: Arc<Object<T>>,
        /// True if the delete itself was not seen: a fresh list did not have the key. States between
        /// `last` and the delete may have gone by.
        unseen: bool,
    },
    /// The key is still there, but its newest value cannot be decoded, and so it has left the cache
    /// (see [`Snapshot::rejected`](super::Snapshot::rejected)). What becomes of it is told: `Updated`
    /// when it can be decoded again, `Deleted` when it goes.
    Undecodable {
        /// What this handler was last told.
        last: Arc<Object<T>>,
        /// What the decoder said.
        reason: Arc<str>,
    },
    /// Nothing changed; it is time for a look at what is there.
    Resync(Arc<Object<T>>),
}

impl<T> Delta<T> {
    /// The key this is about.
    pub fn key(&self) -> &Bytes {
        &self.object().key
    }

    /// The newest state it tells of: that which is now or, if the key has gone, that which was last.
    pub fn object(&self) -> &Arc<Object<T>> {
        match self {
            Delta::Added(object) | Delta::Resync(object) => object,
            Delta::Updated { new, .. } => new,
            Delta::Deleted { last, .. } | Delta::Undecodable { last, .. } => last,
        }
    }
}

// By hand: an `Arc` can be cloned whatever is in it.
impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        match self {
            Delta::Added(object) => Delta::Added(Arc::clone(object)),
            Delta::Updated { old, new } => Delta::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Delta::Deleted { last, unseen } => Delta::Deleted { last: Arc::clone(last), unseen: *unseen },
            Delta::Undecodable { last, reason } => {
                Delta::Undecodable { last: Arc::clone(last), reason: Arc::clone(reason) }
            }
            Delta::Resync(object) => Delta::Resync(Arc::clone(object)),
        }
    }
}

/// Key and revision only: values may be long, or secret.
impl<T> fmt::Debug for Delta<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Delta::Added(_) => "Added",
            Delta::Updated { .. } => "Updated",
            Delta::Deleted { unseen: false, .. } => "Deleted",
            Delta::Deleted { unseen: true, .. } => "Deleted unseen",
            Delta::Undecodable { .. } => "Undecodable",
            Delta::Resync(_) => "Resync",
        };
        let object = self.object();
        write!(f, "{name}({}@{})", object.key.escape_ascii(), object.modified)
    }
}
