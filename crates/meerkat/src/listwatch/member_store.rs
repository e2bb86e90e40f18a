//! The store of the member that the door runs in.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use meerkat_server::LocalStore;
use meerkat_server::local_store::{
    LocalAsker, LocalBatch, LocalChange, LocalError, LocalRow, LocalWrite, LocalWritten,
};
use meerkat_watchcache::store::{
    Awaited, Batch, By, Change, Page, Pass, Row, RowChange, Span, Store, StoreError, Write, Written,
};

/// A member's own store, as the door wants it.
#[derive(Clone)]
pub struct MemberStore {
    store: LocalStore,
}

impl MemberStore {
    pub fn new(store: LocalStore) -> MemberStore {
        MemberStore { store }
    }
}

impl Store for MemberStore {
    fn now(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        async { self.store.now().await.map_err(failure) }.boxed()
    }

    fn read(&self, span: Span, revision: Option<u64>) -> BoxFuture<'_, Result<Page, StoreError>> {
        async move {
            let Span { prefix, from, limit } = span;
            let page = self.store.read(prefix, from, limit, revision).await.map_err(failure)?;
            let rows = page.rows.into_iter().map(row).collect();
            Ok(Page { rows, revision: page.revision, more: page.more })
        }
        .boxed()
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<(Option<Row>, u64), StoreError>> {
        async move {
            let (found, revision) = self.store.get(key).await.map_err(failure)?;
            Ok((found.map(row), revision))
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        async move {
            let change = match write.change {
                Change::Put { value, lease } => LocalWrite::Put { value, lease },
                Change::Delete => LocalWrite::Delete,
            };
            let asker = match write.by {
                By::Door => LocalAsker::Member,
                By::Somebody(Pass { user, rules }) => LocalAsker::User { name: user, rules },
            };
            match self.store.write(write.key, write.expected, change, asker).await.map_err(failure)? {
                LocalWritten::Done { revision } => Ok(Written::Done { revision }),
                LocalWritten::Otherwise { found, revision } => {
                    Ok(Written::Otherwise { found: found.map(row), revision })
                }
            }
        }
        .boxed()
    }

    fn watch(
        &self,
        prefix: Bytes,
        after: u64,
        awaited: Awaited,
    ) -> BoxStream<'static, Result<Batch, StoreError>> {
        let watch = self.store.watch(&prefix, after, awaited).into_stream();
        watch.map(|item| item.map(batch).map_err(failure)).boxed()
    }

    fn grant(&self, ttl_s: u64) -> BoxFuture<'_, Result<i64, StoreError>> {
        async move { self.store.grant(ttl_s).await.map_err(failure) }.boxed()
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<bool, StoreError>> {
        async move { self.store.renew(lease).await.map_err(failure) }.boxed()
    }
}

fn row(row: LocalRow) -> Row {
    Row { key: row.key, value: row.value, modified: row.modified, lease: row.lease }
}

fn batch(batch: LocalBatch) -> Batch {
    let change = |change: LocalChange| RowChange { key: change.key, after: change.after.map(row) };
    Batch { revision: batch.revision, changes: batch.changes.into_iter().map(change).collect() }
}

fn failure(error: LocalError) -> StoreError {
    match error {
        LocalError::Compacted { oldest } => StoreError::Compacted { oldest },
        LocalError::Future { asked } => StoreError::Future { asked },
        LocalError::TooLarge => StoreError::TooLarge,
        LocalError::OtherRules => StoreError::OtherRules,
        LocalError::Forbidden(refusal) => StoreError::Forbidden(refusal.to_string()),
        LocalError::Unavailable(reason) => StoreError::Unavailable(reason),
        LocalError::NoLeader => StoreError::CutOff(error.to_string()),
        LocalError::Unknown(reason) => StoreError::Unknown(reason),
    }
}
