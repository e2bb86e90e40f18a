//! RangeStream: a Range answer in chunks, so that a list of any size costs the memory of one chunk.
//!
//! Always true: all chunks read one pinned state; put together they are the answer that Range
//! would have given; header, count and `more` come with the last chunk and only there.

use super::status;
use futures::StreamExt;
use futures::stream::BoxStream;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::KvList;
use meerkat_state::{Pages, Pinned, ReadError};
use meerkat_types::{KvPage, RangeQuery};
use tonic::Status;

/// Keys of the first chunk, so that a client has something early. It doubles from chunk to chunk;
/// the weight of a chunk bounds it.
const FIRST_CHUNK_KEYS: usize = 10;
const CHUNK_KEYS_MAX: usize = 1 << 20;

struct Chunks {
    pages: Pages,
    header: pb::ResponseHeader,
    /// What one chunk should weigh.
    chunk_bytes: usize,
    chunk_keys: usize,
    /// Keys the client's limit still allows.
    left: usize,
    count_only: bool,
}

/// The chunks of `query`, all of `pinned`. Fails at once if the revision asked for cannot be read.
pub(crate) fn chunks(
    pinned: &Pinned,
    query: &RangeQuery,
    header: pb::ResponseHeader,
    chunk_bytes: usize,
) -> Result<BoxStream<'static, Result<pb::RangeStreamResponse, Status>>, Status> {
    let pages = pinned.pages(query).map_err(|error| status::read(&error))?;
    let chunks = Chunks {
        pages,
        header,
        chunk_bytes,
        chunk_keys: FIRST_CHUNK_KEYS,
        left: query.limit.unwrap_or(usize::MAX),
        count_only: query.count_only,
    };
    let stream = futures::stream::unfold(Some(chunks), |chunks| async move {
        let mut chunks = chunks?;
        let read = meerkat_raft::threads::spawn_blocking(move || {
            let response = chunks.next();
            (response, chunks)
        });
        match read.await {
            Err(error) => Some((Err(status::worker_lost(&error)), None)),
            Ok((Err(error), _)) => Some((Err(status::read(&error)), None)),
            Ok((Ok(response), chunks)) => {
                let last = response.header.is_some();
                let response = pb::RangeStreamResponse { range_response: Some(response) };
                Some((Ok(response), (!last).then_some(chunks)))
            }
        }
    });
    Ok(stream.boxed())
}

impl Chunks {
    /// The next chunk; the one with a header is the last.
    fn next(&mut self) -> Result<pb::RangeResponse, ReadError> {
        let kvs = if self.count_only { None } else { self.read()? };
        let kvs = kvs.unwrap_or(KvPage::empty());
        self.left -= kvs.len();
        let cut = !self.pages.is_finished();
        if !self.count_only && cut && self.left > 0 {
            return Ok(pb::RangeResponse { kvs: KvList::from(kvs), ..Default::default() });
        }
        Ok(pb::RangeResponse {
            header: Some(self.header),
            more: cut && !self.count_only,
            count: i64::try_from(self.pages.count()?).unwrap_or(i64::MAX),
            kvs: KvList::from(kvs),
        })
    }

    fn read(&mut self) -> Result<Option<KvPage>, ReadError> {
        let keys = self.chunk_keys.min(self.left);
        self.chunk_keys = (self.chunk_keys * 2).min(CHUNK_KEYS_MAX);
        self.pages.next_page(keys, self.chunk_bytes)
    }
}
