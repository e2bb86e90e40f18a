//! A cluster far away, of Meerkat's or of etcd's, as the door wants it.

use super::remote_history::Witness;
use super::remote_watch::{self, row};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use meerkat_client::{Client, Compare, Error, EtcdError, Fate, GetResponse, Keys, LeaseId, Op, Revision};
use meerkat_watchcache::store::{
    Awaited, Batch, Change, History, Page, Row, Span, Store, StoreError, Write, Written,
};
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// A key that nobody writes: reading it tells the revision and moves no data.
const NO_KEY: &[u8] = b"\0";

/// A store over a client. Clones share the client and what is known of the cluster.
#[derive(Clone)]
pub struct RemoteStore {
    pub(super) client: Client,
    pub(super) witness: Arc<Witness>,
}

impl RemoteStore {
    pub fn new(client: Client) -> RemoteStore {
        RemoteStore { client, witness: Arc::new(Witness::new()) }
    }

    /// The newest revision; an error also if it is of another history than what was known before.
    pub(super) async fn current(&self) -> Result<u64, StoreError> {
        let answer = self.ask(self.client.get(NO_KEY).count_only(), 0).await?;
        Ok(unsigned(answer.revision))
    }

    /// A read that a majority stands behind. `asked`: at this revision.
    async fn ask(
        &self,
        read: impl IntoFuture<Output = Result<GetResponse, Error>>,
        asked: u64,
    ) -> Result<GetResponse, StoreError> {
        let before = self.witness.before();
        let answer = read.await.map_err(|error| read_failure(&error, asked))?;
        self.witness.answered(before, answer.cluster_id, unsigned(answer.revision))?;
        Ok(answer)
    }

    async fn page(&self, span: Span, at: Option<u64>) -> Result<Page, StoreError> {
        let asked = at.map(|at| signed(at).ok_or(StoreError::Future { asked: at })).transpose()?;
        let mut get = self.client.get(keys(&span)).limit(u64::try_from(span.limit).unwrap_or(u64::MAX));
        if let Some(at) = asked {
            get = get.revision(at);
        }
        let answer = self.ask(get, at.unwrap_or(0)).await?;
        Ok(Page {
            revision: at.unwrap_or_else(|| unsigned(answer.revision)),
            rows: answer.kvs.into_iter().map(row).collect(),
            more: answer.more,
        })
    }

    async fn change(&self, write: Write) -> Result<Written, StoreError> {
        let expected = signed(write.expected).ok_or(StoreError::Future { asked: write.expected })?;
        let change = match write.change {
            Change::Put { value, lease } => match LeaseId::from_wire(lease) {
                Some(lease) => Op::put_with_lease(write.key.clone(), value, lease),
                None => Op::put(write.key.clone(), value),
            },
            Change::Delete => Op::delete(Keys::one(write.key.clone())),
        };
        let before = self.witness.before();
        let done = self
            .client
            .txn()
            .when([Compare::key(write.key.clone()).mod_revision().equals(expected)])
            .then([change])
            .otherwise([Op::get(Keys::one(write.key))])
            .await
            .map_err(|error| write_failure(&error))?;
        let revision = unsigned(done.revision);
        let of_this = self.witness.answered(before, 0, revision);
        if done.succeeded {
            // Done is done. Whoever asks next learns of which history.
            return Ok(Written::Done { revision });
        }
        of_this?;
        let found = done.results.into_iter().next().and_then(|result| result.get().cloned());
        match found {
            Some(found) => Ok(Written::Otherwise { found: found.kvs.into_iter().next().map(row), revision }),
            None => Err(StoreError::Unknown("the answer of the transaction does not fit it".to_owned())),
        }
    }
}

impl Store for RemoteStore {
    fn now(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.current().boxed()
    }

    fn read(&self, span: Span, revision: Option<u64>) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.page(span, revision).boxed()
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<(Option<Row>, u64), StoreError>> {
        async move {
            let answer = self.ask(self.client.get(Keys::one(key)), 0).await?;
            Ok((answer.kvs.into_iter().next().map(row), unsigned(answer.revision)))
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.change(write).boxed()
    }

    fn watch(
        &self,
        prefix: Bytes,
        after: u64,
        awaited: Awaited,
    ) -> BoxStream<'static, Result<Batch, StoreError>> {
        remote_watch::watch(self.clone(), awaited, prefix, after)
    }

    fn history(&self) -> History {
        self.witness.history()
    }

    fn grant(&self, ttl_s: u64) -> BoxFuture<'_, Result<i64, StoreError>> {
        async move {
            let granted = self.client.leases().grant(Duration::from_secs(ttl_s)).await;
            granted.map(|granted| granted.id.get()).map_err(|error| write_failure(&error))
        }
        .boxed()
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move {
            let Some(lease) = LeaseId::from_wire(lease) else { return Ok(false) };
            let renewed = self.client.leases().renew(lease).await;
            renewed.map(|ttl| ttl.is_some()).map_err(|error| read_failure(&error, 0))
        }
        .boxed()
    }
}

/// The prefix from `from` on.
fn keys(span: &Span) -> Keys {
    use meerkat_client::{Key, KeyRange};
    let all = KeyRange::prefix(&span.prefix);
    let Some(from) = Key::new(span.from.clone()).filter(|from| all.first() < from) else {
        return all.into();
    };
    match all {
        // Behind the prefix: a span without keys, which is asked for all the same, for its revision.
        KeyRange::Span { end, .. } => Keys::span(from.into_bytes(), end),
        KeyRange::From(_) | KeyRange::One(_) => Keys::from(from.into_bytes()),
    }
}

pub(super) fn read_failure(error: &Error, asked: u64) -> StoreError {
    match error.etcd() {
        // How far it is compacted is not told.
        Some(EtcdError::Compacted) => StoreError::Compacted { oldest: asked.saturating_add(1) },
        Some(EtcdError::FutureRev) => StoreError::Future { asked },
        _ => StoreError::Unavailable(error.to_string()),
    }
}

fn write_failure(error: &Error) -> StoreError {
    match (error.etcd(), error.fate()) {
        (Some(EtcdError::RequestTooLarge), _) => StoreError::TooLarge,
        (Some(EtcdError::NoSpace), _) => StoreError::NoSpace,
        // A message that the transport itself finds too large.
        (None, Fate::Refused) if error.code() == Some(Code::ResourceExhausted) => StoreError::TooLarge,
        (_, Fate::Unknown) => StoreError::Unknown(error.to_string()),
        (_, Fate::Refused | Fate::NotDone) => StoreError::Unavailable(error.to_string()),
    }
}

pub(super) fn unsigned(revision: Revision) -> u64 {
    u64::try_from(revision.get()).unwrap_or(0)
}

pub(super) fn signed(revision: u64) -> Option<Revision> {
    i64::try_from(revision).ok().map(Revision::new)
}
