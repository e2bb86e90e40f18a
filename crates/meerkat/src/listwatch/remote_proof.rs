//! Proof that nothing is otherwise under a prefix, by reading, where no mark says so.
//!
//! etcd before 3.5.8 gives marks that cannot be relied on, and the client drops them. But a prefix in
//! which no key was written since a revision, and which holds as many keys as it did then, is as it was:
//! a key can only come by a write, and one that went would be missing in the count.

use super::remote_store::{read_failure, signed, unsigned};
use bytes::Bytes;
use meerkat_client::{Client, Keys};
use meerkat_watchcache::store::StoreError;

/// What a prefix held at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) revision: u64,
    keys: u64,
}

/// `None` if something happened after `told` up to `to`, of which the watch will tell.
pub(super) async fn stayed(
    client: &Client,
    prefix: &Bytes,
    told: u64,
    known: Option<Held>,
    to: u64,
) -> Result<Option<Held>, StoreError> {
    let before = match known.filter(|held| held.revision == told) {
        Some(held) => held,
        None => held(client, prefix, told).await?,
    };
    let (Some(first), Some(at)) = (signed(told.saturating_add(1)), signed(to)) else { return Ok(None) };
    let look = client.get(Keys::prefix(prefix)).modified(Some(first), None).keys_only().limit(1).revision(at);
    let found = look.await.map_err(|error| read_failure(&error, to))?;
    let after = Held { revision: to, keys: found.count };
    Ok((found.kvs.is_empty() && before.keys == after.keys).then_some(after))
}

async fn held(client: &Client, prefix: &Bytes, at: u64) -> Result<Held, StoreError> {
    let keys = match signed(at) {
        // Before everything; on the wire it would mean now.
        Some(revision) if 0 < unsigned(revision) => {
            let count = client.get(Keys::prefix(prefix)).count_only().revision(revision).await;
            count.map_err(|error| read_failure(&error, at))?.count
        }
        Some(_) | None => 0,
    };
    Ok(Held { revision: at, keys })
}
