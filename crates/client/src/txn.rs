//! Transactions: compares, and what to do in either case, in one revision.

use crate::Client;
use crate::call::Attempt;
use crate::error::{Error, Fate};
use crate::keys::Keys;
use crate::kv::{
    Delete, DeleteResponse, DeleteSpec, Get, GetResponse, GetSpec, Put, PutResponse, PutSpec, Sending,
    client, deleted, got, put_done, revision,
};
use crate::namespace::Namespace;
use crate::retry::CallKind;
use bytes::Bytes;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::request_op::Request;
use meerkat_proto::pb::etcdserver::response_op::Response;
use meerkat_types::{KeyRange, LeaseId, Revision};
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

impl Client {
    /// Begins a transaction.
    ///
    /// ```no_run
    /// # async fn run(client: meerkat_client::Client) -> Result<(), meerkat_client::Error> {
    /// use meerkat_client::{Compare, Op};
    ///
    /// let done = client
    ///     .txn()
    ///     .when([Compare::key("seat").create_revision().equals(meerkat_client::Revision::new(0))])
    ///     .then([Op::put("seat", "mine")])
    ///     .otherwise([Op::get("seat")])
    ///     .await?;
    /// println!("got it: {}", done.succeeded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn txn(&self) -> Txn {
        Txn { client: self.clone(), asked: TxnSpec::default(), timeout: None }
    }
}

/// A transaction. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Txn {
    client: Client,
    asked: TxnSpec,
    timeout: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
struct TxnSpec {
    compares: Vec<Compare>,
    success: Vec<Op>,
    failure: Vec<Op>,
}

/// What a transaction answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnResponse {
    /// The revision after the transaction; the one before it if nothing was written.
    pub revision: Revision,
    /// All compares held, so `then` was done; otherwise `otherwise` was.
    pub succeeded: bool,
    /// One for each operation that was done, in order.
    pub results: Vec<OpResult>,
}

/// What one operation of a transaction answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpResult {
    /// Of a get.
    Get(GetResponse),
    /// Of a put.
    Put(PutResponse),
    /// Of a delete.
    Delete(DeleteResponse),
    /// Of a transaction within the transaction.
    Txn(TxnResponse),
}

impl OpResult {
    /// The answer of a get, if it was one.
    pub fn get(&self) -> Option<&GetResponse> {
        match self {
            OpResult::Get(got) => Some(got),
            OpResult::Put(_) | OpResult::Delete(_) | OpResult::Txn(_) => None,
        }
    }
}

impl Txn {
    /// What must hold for `then` to be done. All of it, on the state before the transaction.
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Txn {
        self.asked.compares.extend(compares);
        self
    }

    /// What to do if all compares hold.
    pub fn then<O: Into<Op>>(mut self, ops: impl IntoIterator<Item = O>) -> Txn {
        self.asked.success.extend(ops.into_iter().map(Into::into));
        self
    }

    /// What to do if one does not.
    pub fn otherwise<O: Into<Op>>(mut self, ops: impl IntoIterator<Item = O>) -> Txn {
        self.asked.failure.extend(ops.into_iter().map(Into::into));
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Txn {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<TxnResponse, Error> {
        let namespace = self.client.prefix();
        let wire = self.asked.wire(namespace)?;
        let kind = self.asked.kind();
        let send = |attempt: Attempt| {
            let request = attempt.request(wire.clone());
            async move { client(&attempt).txn(request).await }
        };
        let done = self.client.call(kind, self.timeout, send).await?;
        if done.doubt && !done.answer.succeeded {
            let text = "an attempt of this transaction got no answer, and its repetition found the guard broken: \
                        by that attempt or by someone else";
            return Err(Error::garbled(Fate::Unknown, text));
        }
        transacted(done.answer, namespace)
    }
}

impl IntoFuture for Txn {
    type Output = Result<TxnResponse, Error>;
    type IntoFuture = Sending<TxnResponse>;

    fn into_future(self) -> Sending<TxnResponse> {
        Box::pin(self.send())
    }
}

impl TxnSpec {
    fn wire(&self, namespace: &Namespace) -> Result<pb::TxnRequest, Error> {
        let ops = |ops: &[Op]| ops.iter().map(|op| op.wire(namespace)).collect::<Result<Vec<_>, _>>();
        Ok(pb::TxnRequest {
            compare: self.compares.iter().map(|compare| compare.wire(namespace)).collect::<Result<_, _>>()?,
            success: ops(&self.success)?,
            failure: ops(&self.failure)?,
        })
    }

    /// Whether it may be repeated when the outcome of an attempt is not known.
    fn kind(&self) -> CallKind {
        let mut all = self.success.iter().chain(&self.failure);
        if all.all(|op| matches!(op.0, OpKind::Get(_))) {
            return CallKind::Read;
        }
        if self.happens_once() { CallKind::Once } else { CallKind::Write }
    }

    /// Its own success breaks its guard for ever, and without success it writes nothing.
    ///
    /// Revisions never come back, so a guard `mod_revision == r` on a key that the success branch
    /// writes or deletes can hold once, and so can `create_revision == r` on one it deletes. A guard
    /// on zero ("does not exist") does come back when someone deletes the key, and so does a
    /// version; neither is enough.
    fn happens_once(&self) -> bool {
        let reads_only = self.failure.iter().all(|op| matches!(op.0, OpKind::Get(_)));
        reads_only && self.compares.iter().any(|compare| self.breaks(compare))
    }

    fn breaks(&self, compare: &Compare) -> bool {
        let Ok(KeyRange::One(key)) = compare.keys.range() else { return false };
        let holds_once = compare.result == CompareResult::Equal;
        let deletes = |op: &Op| match &op.0 {
            OpKind::Delete(delete) => delete.keys.range().is_ok_and(|range| range.contains(key.as_bytes())),
            OpKind::Get(_) | OpKind::Put(_) | OpKind::Txn(_) => false,
        };
        let puts = |op: &Op| matches!(&op.0, OpKind::Put(put) if put.key() == key.bytes());
        holds_once
            && match compare.operand {
                TargetUnion::ModRevision(revision) if 0 < revision => {
                    self.success.iter().any(|op| puts(op) || deletes(op))
                }
                TargetUnion::CreateRevision(revision) if 0 < revision => self.success.iter().any(deletes),
                TargetUnion::ModRevision(_)
                | TargetUnion::CreateRevision(_)
                | TargetUnion::Version(_)
                | TargetUnion::Value(_)
                | TargetUnion::Lease(_) => false,
            }
    }
}

/// One operation of a transaction.
///
/// Made with the functions here, or from a request: `client.get("k").limit(1).into()`. It is sent
/// within the namespace of the transaction it is part of.
#[derive(Clone, Debug)]
pub struct Op(OpKind);

#[derive(Clone, Debug)]
enum OpKind {
    Get(GetSpec),
    Put(PutSpec),
    Delete(DeleteSpec),
    Txn(TxnSpec),
}

impl Op {
    /// Reads keys.
    pub fn get(keys: impl Into<Keys>) -> Op {
        Op(OpKind::Get(GetSpec::new(keys.into())))
    }

    /// Writes a key.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Op {
        Op(OpKind::Put(PutSpec::new(key.into(), value.into())))
    }

    /// Writes a key that goes away with this lease.
    pub fn put_with_lease(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Op {
        Op(OpKind::Put(PutSpec::new(key.into(), value.into()).with_lease(lease)))
    }

    /// Deletes keys.
    pub fn delete(keys: impl Into<Keys>) -> Op {
        Op(OpKind::Delete(DeleteSpec { keys: keys.into(), previous: false }))
    }

    /// A transaction within the transaction.
    pub fn txn(txn: Txn) -> Op {
        Op(OpKind::Txn(txn.asked))
    }

    fn wire(&self, namespace: &Namespace) -> Result<pb::RequestOp, Error> {
        let request = match &self.0 {
            OpKind::Get(get) => Request::RequestRange(get.wire(namespace)?),
            OpKind::Put(put) => Request::RequestPut(put.wire(namespace)?),
            OpKind::Delete(delete) => Request::RequestDeleteRange(delete.wire(namespace)?),
            OpKind::Txn(txn) => Request::RequestTxn(txn.wire(namespace)?),
        };
        Ok(pb::RequestOp { request: Some(request) })
    }
}

impl From<Get> for Op {
    fn from(get: Get) -> Op {
        Op(OpKind::Get(get.asked))
    }
}

impl From<Put> for Op {
    fn from(put: Put) -> Op {
        Op(OpKind::Put(put.asked))
    }
}

impl From<Delete> for Op {
    fn from(delete: Delete) -> Op {
        Op(OpKind::Delete(delete.asked))
    }
}

impl From<Txn> for Op {
    fn from(txn: Txn) -> Op {
        Op::txn(txn)
    }
}

/// Something that must hold: of a key, or of every key of a range.
#[derive(Clone, Debug)]
pub struct Compare {
    keys: Keys,
    result: CompareResult,
    operand: TargetUnion,
}

/// Which keys are compared; say next what of them.
#[derive(Clone, Debug)]
#[must_use = "a comparison needs to say of what, and with what"]
pub struct CompareKeys(Keys);

/// What of the keys is compared; say next with what.
#[derive(Clone, Debug)]
#[must_use = "a comparison needs to say with what"]
pub struct CompareField<T> {
    keys: Keys,
    operand: fn(T) -> TargetUnion,
    of: PhantomData<T>,
}

impl Compare {
    /// Compares one key. A key that does not exist has version, revisions and lease of zero, and no
    /// value: no comparison of its value holds.
    pub fn key(key: impl Into<Bytes>) -> CompareKeys {
        CompareKeys(Keys::one(key))
    }

    /// Compares every key of a range.
    pub fn keys(keys: impl Into<Keys>) -> CompareKeys {
        CompareKeys(keys.into())
    }

    fn wire(&self, namespace: &Namespace) -> Result<pb::Compare, Error> {
        let range = namespace.wrap_range(self.keys.range()?);
        let target = match &self.operand {
            TargetUnion::Version(_) => CompareTarget::Version,
            TargetUnion::CreateRevision(_) => CompareTarget::Create,
            TargetUnion::ModRevision(_) => CompareTarget::Mod,
            TargetUnion::Value(_) => CompareTarget::Value,
            TargetUnion::Lease(_) => CompareTarget::Lease,
        };
        Ok(pb::Compare {
            result: self.result.into(),
            target: target.into(),
            range_end: range.range_end(),
            key: range.first().bytes().clone(),
            target_union: Some(self.operand.clone()),
        })
    }
}

impl CompareKeys {
    /// The number of writes since the key was created.
    pub fn version(self) -> CompareField<i64> {
        self.field(TargetUnion::Version)
    }

    /// The revision of the last write.
    pub fn mod_revision(self) -> CompareField<Revision> {
        self.field(|revision| TargetUnion::ModRevision(revision.get()))
    }

    /// The revision of the first write of this life of the key.
    pub fn create_revision(self) -> CompareField<Revision> {
        self.field(|revision| TargetUnion::CreateRevision(revision.get()))
    }

    /// The value, in byte order.
    pub fn value(self) -> CompareField<Bytes> {
        self.field(TargetUnion::Value)
    }

    /// The lease; `None` for a key without one.
    pub fn lease(self) -> CompareField<Option<LeaseId>> {
        self.field(|lease| TargetUnion::Lease(lease.map_or(0, LeaseId::get)))
    }

    /// The key exists.
    pub fn exists(self) -> Compare {
        self.create_revision().greater(Revision::new(0))
    }

    /// The key does not exist.
    pub fn missing(self) -> Compare {
        self.create_revision().equals(Revision::new(0))
    }

    fn field<T>(self, operand: fn(T) -> TargetUnion) -> CompareField<T> {
        CompareField { keys: self.0, operand, of: PhantomData }
    }
}

impl<T> CompareField<T> {
    /// Is the same as this.
    pub fn equals(self, operand: impl Into<T>) -> Compare {
        self.with(CompareResult::Equal, operand.into())
    }

    /// Is not the same as this.
    pub fn not_equals(self, operand: impl Into<T>) -> Compare {
        self.with(CompareResult::NotEqual, operand.into())
    }

    /// Is above this.
    pub fn greater(self, operand: impl Into<T>) -> Compare {
        self.with(CompareResult::Greater, operand.into())
    }

    /// Is below this.
    pub fn less(self, operand: impl Into<T>) -> Compare {
        self.with(CompareResult::Less, operand.into())
    }

    fn with(self, result: CompareResult, operand: T) -> Compare {
        Compare { keys: self.keys, result, operand: (self.operand)(operand) }
    }
}

fn transacted(wire: pb::TxnResponse, namespace: &Namespace) -> Result<TxnResponse, Error> {
    let missing =
        || Error::garbled(Fate::Unknown, "the answer to an operation of the transaction is missing");
    let result = |op: pb::ResponseOp| {
        Ok(match op.response.ok_or_else(missing)? {
            Response::ResponseRange(wire) => OpResult::Get(got(wire, namespace)?),
            Response::ResponsePut(wire) => OpResult::Put(put_done(wire, namespace)?),
            Response::ResponseDeleteRange(wire) => OpResult::Delete(deleted(wire, namespace)?),
            Response::ResponseTxn(wire) => OpResult::Txn(transacted(wire, namespace)?),
        })
    };
    let results = wire.responses.into_iter().map(result).collect::<Result<_, Error>>()?;
    Ok(TxnResponse { revision: revision(wire.header), succeeded: wire.succeeded, results })
}
