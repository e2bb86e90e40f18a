//! A key range of the store as a source of objects.
//!
//! The first page of a list is a linearizable read, so a list never goes back behind what this client
//! has seen; the others are read at the revision of the first. The watch is the client's own: it moves
//! between members and goes on where it was without the informer noticing, and fails only when
//! history is gone or the request is refused.

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};

use super::list_watch::{ListWatch, Page, PageRequest, SourceError};
use crate::watch::{Changes, WatchError};
use crate::{Client, Error, EtcdError, Key, KeyRange, Keys, Revision};

/// The keys of one range, through a [`Client`]. Made by [`Informer::builder`](super::Informer::builder).
#[derive(Clone, Debug)]
pub struct KeySource {
    client: Client,
    keys: Keys,
}

impl KeySource {
    /// These keys of that cluster.
    pub fn new(client: &Client, keys: impl Into<Keys>) -> KeySource {
        KeySource { client: client.clone(), keys: keys.into() }
    }
}

impl ListWatch for KeySource {
    type Watch = BoxStream<'static, Result<Changes, SourceError>>;

    async fn list(&self, request: PageRequest) -> Result<Page, SourceError> {
        let range = self.keys.range().map_err(failed)?;
        let keys = match &request.after {
            None => self.keys.clone(),
            Some(after) => rest(range, after).into(),
        };
        let mut get = self.client.get(keys).limit(request.limit);
        if let Some(at) = request.at {
            get = get.revision(at);
        }
        let answer = get.await.map_err(failed)?;
        // The header of a pinned read has the newest revision, not the one that was read.
        let revision = request.at.unwrap_or(answer.revision);
        Ok(Page { revision, kvs: answer.kvs, more: answer.more })
    }

    fn watch(&self, from: Revision) -> Self::Watch {
        let watch = self.client.watch(self.keys.clone()).from(from).marks().start();
        watch.map(|item| item.map_err(lost)).boxed()
    }
}

/// What of `range` lies above `after`.
fn rest(range: &KeyRange, after: &[u8]) -> KeyRange {
    let mut next = BytesMut::with_capacity(after.len() + 1);
    next.put_slice(after);
    next.put_u8(0);
    let Some(first) = Key::new(Bytes::from(next)) else { return range.clone() };
    match range.end() {
        Some(end) => KeyRange::Span { first, end },
        None => KeyRange::From(first),
    }
}

fn failed(error: Error) -> SourceError {
    if error.etcd() == Some(EtcdError::Compacted) {
        return SourceError::Compacted;
    }
    SourceError::Failed(Box::new(error))
}

fn lost(error: WatchError) -> SourceError {
    match error {
        WatchError::Compacted { .. } => SourceError::Compacted,
        other => SourceError::Failed(Box::new(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: Keys, after: &'static [u8], first: &[u8], range_end: &[u8]) {
        let rest = rest(keys.range().expect("a range"), after);
        assert_eq!((rest.first().as_bytes(), rest.range_end().as_ref()), (first, range_end));
    }

    #[test]
    fn the_next_page_begins_right_behind_the_last_key() {
        check(Keys::prefix("a/"), b"a/7", b"a/7\0", b"a0");
        check(Keys::all(), b"z", b"z\0", b"\0");
        check(Keys::from("k"), b"k", b"k\0", b"\0");
        check(Keys::one("k"), b"k", b"k\0", b"k\0");
    }
}
