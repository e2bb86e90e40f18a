//! Reading and writing keys: get, put, delete, compact.
//!
//! A request is a builder: say what is wanted, then await it. What one of them asks for is kept
//! apart from the client that sends it, so that the same request can be an operation of a
//! transaction.

use crate::Client;
use crate::call::Attempt;
use crate::error::{Error, Fate};
use crate::keys::Keys;
use crate::namespace::Namespace;
use crate::retry::CallKind;
use bytes::Bytes;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::mvcc;
use meerkat_types::{Key, KeyValue, LeaseId, Revision};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

pub use meerkat_types::{Sort, SortOrder, SortTarget};

/// What awaiting a request turns it into.
pub type Sending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// What [`Client::get`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetResponse {
    /// The store's revision when it was read.
    pub revision: Revision,
    /// Which cluster answered; 0 if it does not say. A cluster that was restored from a backup may keep its
    /// number, and a revision that goes back tells of it.
    pub cluster_id: u64,
    /// What was found, in key order unless sorted otherwise.
    pub kvs: Vec<KeyValue>,
    /// How many keys are in the range, whatever the limit.
    pub count: u64,
    /// The limit cut the answer short.
    pub more: bool,
}

impl GetResponse {
    /// The first key-value: the one that was asked for, if one was asked for.
    pub fn first(&self) -> Option<&KeyValue> {
        self.kvs.first()
    }
}

/// What [`Client::put`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutResponse {
    /// The revision of this write.
    pub revision: Revision,
    /// What the key held before, if that was asked for and it existed.
    pub previous: Option<KeyValue>,
}

/// What [`Client::delete`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteResponse {
    /// The revision after the deletion; the one before it if nothing was deleted.
    pub revision: Revision,
    /// How many keys were deleted.
    pub deleted: u64,
    /// What they held, if that was asked for.
    pub previous: Vec<KeyValue>,
}

/// What [`Client::compact`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactResponse {
    /// The store's revision.
    pub revision: Revision,
}

impl Client {
    /// Reads keys. The answer is at least as new as every write answered before, unless
    /// [`Get::serializable`].
    pub fn get(&self, keys: impl Into<Keys>) -> Get {
        Get { client: self.clone(), asked: GetSpec::new(keys.into()), timeout: None }
    }

    /// Writes a key.
    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        Put { client: self.clone(), asked: PutSpec::new(key.into(), value.into()), timeout: None }
    }

    /// Deletes keys, all in one revision.
    pub fn delete(&self, keys: impl Into<Keys>) -> Delete {
        let asked = DeleteSpec { keys: keys.into(), previous: false };
        Delete { client: self.clone(), asked, timeout: None }
    }

    /// Forgets what was before a revision. Reads at that revision still work.
    pub fn compact(&self, revision: Revision) -> Compact {
        Compact { client: self.clone(), revision, physical: false, timeout: None }
    }
}

/// A read. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Get {
    client: Client,
    pub(crate) asked: GetSpec,
    timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct GetSpec {
    keys: Keys,
    wire: pb::RangeRequest,
}

impl GetSpec {
    pub(crate) fn new(keys: Keys) -> GetSpec {
        GetSpec { keys, wire: pb::RangeRequest::default() }
    }

    pub(crate) fn wire(&self, namespace: &Namespace) -> Result<pb::RangeRequest, Error> {
        let range = namespace.wrap_range(self.keys.range()?);
        let mut wire = self.wire.clone();
        wire.range_end = range.range_end();
        wire.key = range.first().bytes().clone();
        Ok(wire)
    }
}

impl Get {
    /// Reads the past: the state as of this revision.
    pub fn revision(mut self, revision: Revision) -> Get {
        self.asked.wire.revision = revision.get();
        self
    }

    /// At most this many key-values. Zero is no limit.
    pub fn limit(mut self, limit: u64) -> Get {
        self.asked.wire.limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self
    }

    /// Another order than by key, ascending.
    pub fn sort(mut self, order: SortOrder, target: SortTarget) -> Get {
        use pb::range_request::{SortOrder as WireOrder, SortTarget as WireTarget};
        self.asked.wire.sort_order = match order {
            SortOrder::None => WireOrder::None,
            SortOrder::Ascend => WireOrder::Ascend,
            SortOrder::Descend => WireOrder::Descend,
        }
        .into();
        self.asked.wire.sort_target = match target {
            SortTarget::Key => WireTarget::Key,
            SortTarget::Version => WireTarget::Version,
            SortTarget::Created => WireTarget::Create,
            SortTarget::Modified => WireTarget::Mod,
            SortTarget::Value => WireTarget::Value,
        }
        .into();
        self
    }

    /// Leaves the values out.
    pub fn keys_only(mut self) -> Get {
        self.asked.wire.keys_only = true;
        self
    }

    /// Only how many there are.
    pub fn count_only(mut self) -> Get {
        self.asked.wire.count_only = true;
        self
    }

    /// From what the asked member has, however old: cheaper, and possible without a majority.
    pub fn serializable(mut self) -> Get {
        self.asked.wire.serializable = true;
        self
    }

    /// Only key-values last modified within these revisions, both included.
    pub fn modified(mut self, first: Option<Revision>, last: Option<Revision>) -> Get {
        self.asked.wire.min_mod_revision = first.map_or(0, Revision::get);
        self.asked.wire.max_mod_revision = last.map_or(0, Revision::get);
        self
    }

    /// Only key-values created within these revisions, both included.
    pub fn created(mut self, first: Option<Revision>, last: Option<Revision>) -> Get {
        self.asked.wire.min_create_revision = first.map_or(0, Revision::get);
        self.asked.wire.max_create_revision = last.map_or(0, Revision::get);
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Get {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<GetResponse, Error> {
        let namespace = self.client.prefix();
        let wire = self.asked.wire(namespace)?;
        let kind = if wire.serializable { CallKind::LocalRead } else { CallKind::Read };
        let send = |attempt: Attempt| {
            let request = attempt.request(wire.clone());
            async move { client(&attempt).range(request).await }
        };
        let done = self.client.call(kind, self.timeout, send).await?;
        got(done.answer, namespace)
    }
}

impl IntoFuture for Get {
    type Output = Result<GetResponse, Error>;
    type IntoFuture = Sending<GetResponse>;

    fn into_future(self) -> Sending<GetResponse> {
        Box::pin(self.send())
    }
}

/// A write of one key. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Put {
    client: Client,
    pub(crate) asked: PutSpec,
    timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct PutSpec {
    wire: pb::PutRequest,
}

impl PutSpec {
    pub(crate) fn new(key: Bytes, value: Bytes) -> PutSpec {
        PutSpec { wire: pb::PutRequest { key, value, ..Default::default() } }
    }

    pub(crate) fn with_lease(mut self, lease: LeaseId) -> PutSpec {
        self.wire.lease = lease.get();
        self
    }

    pub(crate) fn key(&self) -> &Bytes {
        &self.wire.key
    }

    pub(crate) fn wire(&self, namespace: &Namespace) -> Result<pb::PutRequest, Error> {
        let key = Key::new(self.wire.key.clone()).ok_or_else(|| Error::refused_here(EtcdError::EmptyKey))?;
        Ok(pb::PutRequest { key: namespace.wrap_key(&key), ..self.wire.clone() })
    }
}

impl Put {
    /// The key goes away with this lease.
    pub fn lease(mut self, lease: LeaseId) -> Put {
        self.asked.wire.lease = lease.get();
        self
    }

    /// The answer says what the key held before.
    pub fn previous(mut self) -> Put {
        self.asked.wire.prev_kv = true;
        self
    }

    /// Leaves the key on the lease it has. The key must exist.
    pub fn keep_lease(mut self) -> Put {
        self.asked.wire.ignore_lease = true;
        self
    }

    /// Leaves the value as it is; the given one must be empty. The key must exist.
    pub fn keep_value(mut self) -> Put {
        self.asked.wire.ignore_value = true;
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Put {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<PutResponse, Error> {
        let namespace = self.client.prefix();
        let wire = self.asked.wire(namespace)?;
        let send = |attempt: Attempt| {
            let request = attempt.request(wire.clone());
            async move { client(&attempt).put(request).await }
        };
        let done = self.client.call(CallKind::Write, self.timeout, send).await?;
        put_done(done.answer, namespace)
    }
}

impl IntoFuture for Put {
    type Output = Result<PutResponse, Error>;
    type IntoFuture = Sending<PutResponse>;

    fn into_future(self) -> Sending<PutResponse> {
        Box::pin(self.send())
    }
}

/// A deletion. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Delete {
    client: Client,
    pub(crate) asked: DeleteSpec,
    timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct DeleteSpec {
    pub(crate) keys: Keys,
    pub(crate) previous: bool,
}

impl DeleteSpec {
    pub(crate) fn wire(&self, namespace: &Namespace) -> Result<pb::DeleteRangeRequest, Error> {
        let range = namespace.wrap_range(self.keys.range()?);
        Ok(pb::DeleteRangeRequest {
            range_end: range.range_end(),
            key: range.first().bytes().clone(),
            prev_kv: self.previous,
        })
    }
}

impl Delete {
    /// The answer says what the deleted keys held.
    pub fn previous(mut self) -> Delete {
        self.asked.previous = true;
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Delete {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<DeleteResponse, Error> {
        let namespace = self.client.prefix();
        let wire = self.asked.wire(namespace)?;
        let send = |attempt: Attempt| {
            let request = attempt.request(wire.clone());
            async move { client(&attempt).delete_range(request).await }
        };
        let done = self.client.call(CallKind::Write, self.timeout, send).await?;
        deleted(done.answer, namespace)
    }
}

impl IntoFuture for Delete {
    type Output = Result<DeleteResponse, Error>;
    type IntoFuture = Sending<DeleteResponse>;

    fn into_future(self) -> Sending<DeleteResponse> {
        Box::pin(self.send())
    }
}

/// A compaction. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Compact {
    client: Client,
    revision: Revision,
    physical: bool,
    timeout: Option<Duration>,
}

impl Compact {
    /// Answered only when the history is gone from disk.
    pub fn physical(mut self) -> Compact {
        self.physical = true;
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Compact {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<CompactResponse, Error> {
        let wire = pb::CompactionRequest { revision: self.revision.get(), physical: self.physical };
        let send = |attempt: Attempt| {
            let request = attempt.request(wire);
            async move { client(&attempt).compact(request).await }
        };
        let done = self.client.call(CallKind::Write, self.timeout, send).await?;
        Ok(CompactResponse { revision: revision(done.answer.header) })
    }
}

impl IntoFuture for Compact {
    type Output = Result<CompactResponse, Error>;
    type IntoFuture = Sending<CompactResponse>;

    fn into_future(self) -> Sending<CompactResponse> {
        Box::pin(self.send())
    }
}

pub(crate) fn client(attempt: &Attempt) -> KvClient<crate::balancer::Wire> {
    // An answer may be as long as the range is; how long, the caller's limit says.
    KvClient::new(attempt.wire.clone()).max_decoding_message_size(usize::MAX)
}

pub(crate) fn revision(header: Option<pb::ResponseHeader>) -> Revision {
    Revision::new(header.map_or(0, |header| header.revision))
}

pub(crate) fn got(wire: pb::RangeResponse, namespace: &Namespace) -> Result<GetResponse, Error> {
    let cluster_id = wire.header.as_ref().map_or(0, |header| header.cluster_id);
    let (revision, more, count) = (revision(wire.header), wire.more, counted(wire.count));
    let unreadable =
        |error| Error::garbled(Fate::NotDone, format!("key-values that cannot be read: {error}"));
    let kvs = stripped(wire.into_kvs().map_err(unreadable)?, namespace, Fate::NotDone)?;
    Ok(GetResponse { revision, cluster_id, kvs, count, more })
}

pub(crate) fn put_done(wire: pb::PutResponse, namespace: &Namespace) -> Result<PutResponse, Error> {
    let previous = stripped(wire.prev_kv.into_iter().collect(), namespace, Fate::Unknown)?.pop();
    Ok(PutResponse { revision: revision(wire.header), previous })
}

pub(crate) fn deleted(wire: pb::DeleteRangeResponse, namespace: &Namespace) -> Result<DeleteResponse, Error> {
    let previous = stripped(wire.prev_kvs, namespace, Fate::Unknown)?;
    Ok(DeleteResponse { revision: revision(wire.header), deleted: counted(wire.deleted), previous })
}

fn stripped(wire: Vec<mvcc::KeyValue>, namespace: &Namespace, fate: Fate) -> Result<Vec<KeyValue>, Error> {
    let foreign = || Error::garbled(fate, "the answer holds a key that was not asked for");
    wire.into_iter().map(|kv| namespace.strip(kv.into()).ok_or_else(foreign)).collect()
}

/// No store holds less than no keys.
fn counted(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
