//! The line in which clients wait for one name: what the Lock and the Election service have in common.
//!
//! Everything here is a call that the client could have made itself, made in its name: through the same
//! router as its own calls, with its metadata and the extensions of its connection. So whatever is checked
//! there (permissions, a learner, a missing leader, sizes) is checked here, and nothing can be reached
//! through a lock that its caller could not reach without one.
//!
//! Always true: a caller that goes away while it waits leaves no key behind, even if it goes while the
//! request that writes the key is under way; and nobody is told that it is first whose own key is gone.

use super::status;
use bytes::Bytes;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use meerkat_proto::pb::mvcc::{KeyValue, event::EventType};
use meerkat_raft::tasks::spawn_brief;
use pb::{compare, range_request, request_op, response_op, watch_request};
use tokio::sync::oneshot;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status, Streaming};

/// What a lease is given that the server takes for the caller, as etcd's sessions.
const SESSION_TTL_SECONDS: i64 = 60;

/// Makes calls in the name of a client.
#[derive(Clone)]
pub(crate) struct Caller {
    inner: axum::Router,
    metadata: MetadataMap,
    extensions: Extensions,
}

/// Where a lease stands in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: Bytes,
    pub(crate) created: i64,
    pub(crate) lease: i64,
    /// The answer's header: of the entry if there was nobody to wait for, of the last look otherwise.
    pub(crate) entered: pb::ResponseHeader,
    pub(crate) reached: pb::ResponseHeader,
}

/// What [`stand`] is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    pub(crate) name: Bytes,
    pub(crate) lease: i64,
    pub(crate) value: Bytes,
    /// Whether a key that stands there already is given this value.
    pub(crate) set_value: bool,
    /// What is said to a caller whose key was lost while it waited.
    pub(crate) lost: fn() -> Status,
}

/// Where the keys of a line are.
pub(crate) fn prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// The key of one lease in a line: lower-case hexadecimal without padding, as Go prints it.
fn key(name: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    [name, b"/", format!("{sign}{:x}", lease.unsigned_abs()).as_bytes()].concat().into()
}

/// The first key after all that begin with `prefix`, which ends in a slash.
fn prefix_end(prefix: &Bytes) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

/// Whoever stands at one end of a line: the first, or the last of those created up to a revision.
pub(crate) enum End {
    First,
    LastUpTo(i64),
}

fn line(prefix: &Bytes, end: &End) -> pb::RangeRequest {
    let (order, max_create_revision) = match end {
        End::First => (range_request::SortOrder::Ascend, 0),
        End::LastUpTo(revision) => (range_request::SortOrder::Descend, *revision),
    };
    pb::RangeRequest {
        key: prefix.clone(),
        range_end: prefix_end(prefix),
        limit: 1,
        sort_order: order.into(),
        sort_target: range_request::SortTarget::Create.into(),
        max_create_revision,
        ..Default::default()
    }
}

fn created_at(key: &Bytes, revision: i64) -> pb::Compare {
    pb::Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(compare::TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

fn put(key: &Bytes, value: Bytes, lease: i64) -> pb::RequestOp {
    let put = pb::PutRequest { key: key.clone(), value, lease, ..Default::default() };
    pb::RequestOp { request: Some(request_op::Request::RequestPut(put)) }
}

fn get(range: pb::RangeRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(request_op::Request::RequestRange(range)) }
}

fn delete(key: &Bytes) -> pb::RequestOp {
    let delete = pb::DeleteRangeRequest { key: key.clone(), ..Default::default() };
    pb::RequestOp { request: Some(request_op::Request::RequestDeleteRange(delete)) }
}

fn one(key: &Bytes) -> pb::RangeRequest {
    pb::RangeRequest { key: key.clone(), ..Default::default() }
}

impl Caller {
    pub(crate) fn of<T>(inner: &axum::Router, request: Request<T>) -> (Caller, T) {
        let (metadata, extensions, message) = request.into_parts();
        (Caller { inner: inner.clone(), metadata, extensions }, message)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }

    fn kv(&self) -> KvClient<axum::Router> {
        KvClient::new(self.inner.clone()).max_decoding_message_size(usize::MAX)
    }

    async fn range(&self, range: pb::RangeRequest) -> Result<(pb::ResponseHeader, Option<KeyValue>), Status> {
        let answer = self.kv().range(self.request(range)).await.map_err(status::inner)?.into_inner();
        let header = answer.header.unwrap_or_default();
        Ok((header, answer.kvs().first().cloned()))
    }

    pub(crate) async fn at_end(
        &self,
        prefix: &Bytes,
        end: &End,
    ) -> Result<(pb::ResponseHeader, Option<KeyValue>), Status> {
        self.range(line(prefix, end)).await
    }

    async fn txn(&self, txn: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        Ok(self.kv().txn(self.request(txn)).await.map_err(status::inner)?.into_inner())
    }

    pub(crate) async fn delete(&self, key: Bytes) -> Result<pb::ResponseHeader, Status> {
        let delete = pb::DeleteRangeRequest { key, ..Default::default() };
        let answer = self.kv().delete_range(self.request(delete)).await.map_err(status::inner)?;
        Ok(answer.into_inner().header.unwrap_or_default())
    }

    /// Writes the key's value if it is still the key that was created at `created`; the header of the
    /// answer and whether it was.
    pub(crate) async fn proclaim(
        &self,
        key: &Bytes,
        created: i64,
        value: Bytes,
        lease: i64,
    ) -> Result<(pb::ResponseHeader, bool), Status> {
        self.guarded(key, created, put(key, value, lease)).await
    }

    /// Removes the key if it is still the key that was created at `created`.
    pub(crate) async fn resign(&self, key: &Bytes, created: i64) -> Result<pb::ResponseHeader, Status> {
        Ok(self.guarded(key, created, delete(key)).await?.0)
    }

    async fn guarded(
        &self,
        key: &Bytes,
        created: i64,
        op: pb::RequestOp,
    ) -> Result<(pb::ResponseHeader, bool), Status> {
        let compare = vec![created_at(key, created)];
        let txn = pb::TxnRequest { compare, success: vec![op], failure: Vec::new() };
        let answer = self.txn(txn).await?;
        Ok((answer.header.unwrap_or_default(), answer.succeeded))
    }

    /// The lease itself, or a new one in place of none. A new one is not renewed: the caller has to.
    pub(crate) async fn lease(&self, lease: i64) -> Result<i64, Status> {
        if lease != 0 {
            return Ok(lease);
        }
        let grant = self.request(pb::LeaseGrantRequest { ttl: SESSION_TTL_SECONDS, id: 0 });
        let granted = LeaseClient::new(self.inner.clone()).lease_grant(grant).await;
        Ok(granted.map_err(status::inner)?.into_inner().id)
    }

    /// A watch of `range` from `revision` on, until the stream that is returned is dropped.
    pub(crate) async fn watch(&self, create: pb::WatchCreateRequest) -> Result<Watching, Status> {
        let (requests, receiver) = tokio::sync::mpsc::channel(1);
        let create = watch_request::RequestUnion::CreateRequest(create);
        // The channel is new and has room for one.
        let _ = requests.try_send(pb::WatchRequest { request_union: Some(create) });
        let requests_stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut client = WatchClient::new(self.inner.clone()).max_decoding_message_size(usize::MAX);
        let answers = client.watch(self.request(requests_stream)).await.map_err(status::inner)?;
        Ok(Watching { answers: answers.into_inner(), _requests: requests })
    }
}

/// A watch under way.
pub(crate) struct Watching {
    answers: Streaming<pb::WatchResponse>,
    /// Its end would be the end of the client's half of the stream.
    _requests: tokio::sync::mpsc::Sender<pb::WatchRequest>,
}

/// Why a watch tells nothing more.
pub(crate) enum WatchEnd {
    /// What it was to tell is gone: look again.
    Compacted,
    Refused(Status),
}

impl Watching {
    /// The next answer that has events.
    pub(crate) async fn next(&mut self) -> Result<pb::WatchResponse, WatchEnd> {
        loop {
            let answer =
                self.answers.message().await.map_err(|error| WatchEnd::Refused(status::inner(error)))?;
            match answer {
                None => return Err(WatchEnd::Refused(status::lost_watcher())),
                Some(answer) if answer.compact_revision != 0 => return Err(WatchEnd::Compacted),
                Some(answer) if answer.canceled => {
                    return Err(WatchEnd::Refused(status::watch_refused(&answer.cancel_reason)));
                }
                Some(answer) if answer.events.is_empty() => {}
                Some(answer) => return Ok(answer),
            }
        }
    }
}

/// Stands in line until nobody is before this caller.
///
/// The work is a task of its own, which learns that the caller is gone by its end of a channel: it then
/// finishes the request that is under way, whose outcome would not be known otherwise, and gives the place
/// up.
pub(crate) async fn stand(caller: Caller, ask: Stand) -> Result<Place, Status> {
    let (mut tell, told) = oneshot::channel();
    let work = spawn_brief(async move {
        let outcome = enter_and_wait(&caller, &ask, &mut tell).await;
        let Err(Ok((place, leaves))) = tell.send(outcome) else { return };
        if leaves {
            give_up(&caller, &place.key, place.created).await;
        }
    });
    let outcome = told.await;
    match outcome {
        Ok(outcome) => outcome.map(|(place, _)| place),
        Err(_) => Err(match work.await {
            Err(error) => status::worker_lost(&error),
            Ok(()) => status::lost_watcher(),
        }),
    }
}

type Told = oneshot::Sender<Result<(Place, bool), Status>>;

/// The place, and whether it is to be given up if nobody hears of it: not if the lease stood first before.
async fn enter_and_wait(caller: &Caller, ask: &Stand, told: &mut Told) -> Result<(Place, bool), Status> {
    let lease = caller.lease(ask.lease).await?;
    let (mut place, existed, first) = enter(caller, ask, lease).await?;
    if first {
        return Ok((place, !existed));
    }
    let line = prefix(&ask.name);
    let waited = tokio::select! {
        () = told.closed() => Err(status::caller_gone()),
        waited = wait(caller, &line, place.created - 1) => waited,
    };
    let looked = match waited {
        Ok(()) => caller.range(one(&place.key)).await,
        Err(error) => Err(error),
    };
    match looked {
        Ok((header, Some(kv))) if kv.create_revision == place.created => {
            place.reached = header;
            Ok((place, true))
        }
        Ok(_) => Err((ask.lost)()),
        Err(error) => {
            give_up(caller, &place.key, place.created).await;
            Err(error)
        }
    }
}

/// Writes the key, or finds it written: the place, whether it was there, and whether it is first.
async fn enter(caller: &Caller, ask: &Stand, lease: i64) -> Result<(Place, bool, bool), Status> {
    let key = key(&ask.name, lease);
    let owner = || get(line(&prefix(&ask.name), &End::First));
    let answer = caller
        .txn(pb::TxnRequest {
            compare: vec![created_at(&key, 0)],
            success: vec![put(&key, ask.value.clone(), lease), owner()],
            failure: vec![get(one(&key)), owner()],
        })
        .await?;
    let entered = answer.header.unwrap_or_default();
    let mut found = answer.responses.into_iter().filter_map(|op| match op.response {
        Some(response_op::Response::ResponseRange(range)) => Some(range.kvs().first().cloned()),
        _ => None,
    });
    let own = if answer.succeeded { None } else { found.next().flatten() };
    let owner = found.next().flatten();
    let created = own.as_ref().map_or(entered.revision, |kv| kv.create_revision);
    let place = Place { key, created, lease, entered, reached: entered };
    if let Some(own) = own.as_ref().filter(|own| ask.set_value && own.value != ask.value) {
        match caller.proclaim(&own.key, created, ask.value.clone(), lease).await {
            Ok((_, true)) => {}
            Ok((_, false)) => return Err((ask.lost)()),
            Err(error) => {
                give_up(caller, &own.key, created).await;
                return Err(error);
            }
        }
    }
    let first = owner.is_none_or(|owner| owner.create_revision == created);
    Ok((place, own.is_some(), first))
}

/// Waits until no key of the line was created at `last` or before.
async fn wait(caller: &Caller, prefix: &Bytes, last: i64) -> Result<(), Status> {
    loop {
        let (header, before) = caller.at_end(prefix, &End::LastUpTo(last)).await?;
        let Some(before) = before else { return Ok(()) };
        wait_deleted(caller, before.key, header.revision + 1).await?;
    }
}

/// Returns early if it cannot know: the caller looks again.
async fn wait_deleted(caller: &Caller, key: Bytes, start_revision: i64) -> Result<(), Status> {
    let create = pb::WatchCreateRequest { key, start_revision, ..Default::default() };
    let mut watching = caller.watch(create).await?;
    loop {
        match watching.next().await {
            Ok(answer) if answer.events.iter().any(|event| event.r#type() == EventType::Delete) => {
                return Ok(());
            }
            Ok(_) => {}
            Err(WatchEnd::Compacted) => return Ok(()),
            Err(WatchEnd::Refused(error)) => return Err(error),
        }
    }
}

/// As well as that works: the lease bounds how long the key can stay if it does not.
async fn give_up(caller: &Caller, key: &Bytes, created: i64) {
    if let Err(error) = caller.resign(key, created).await {
        tracing::info!(%error, "a place in a line could not be given up; it goes with its lease");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_etcds_own_clients() {
        assert_eq!(key(b"n", 0x4d), Bytes::from_static(b"n/4d"));
        assert_eq!(key(b"", -5), Bytes::from_static(b"/-5"));
        assert_eq!(key(b"n", i64::MIN), Bytes::from_static(b"n/-8000000000000000"));
        assert_eq!(prefix_end(&prefix(b"n")), Bytes::from_static(b"n0"));
    }
}
