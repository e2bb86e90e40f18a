//! When revisions were made and keys were changed, by the times that all members agree on.
//!
//! Both answers are linearizable: they see every write acknowledged before the question.

use super::super::status;
use meerkat_proto::pb::admin as pb;
use meerkat_proto::pb::etcdserver::RangeRequest;
use meerkat_raft::RaftNode;
use meerkat_state::{KeyTime, Pinned, ReadError};
use meerkat_types::{RangeQuery, Revision};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tonic::Status;

/// Such questions read at once. They are an operator's, and give way to everybody else's.
const READS_MAX: usize = 2;

pub(super) struct Times {
    raft: Arc<RaftNode>,
    reads: Semaphore,
}

impl Times {
    pub(super) fn new(raft: Arc<RaftNode>) -> Times {
        Times { raft, reads: Semaphore::new(READS_MAX) }
    }

    pub(super) async fn revision_at_time(
        &self,
        request: pb::RevisionAtTimeRequest,
    ) -> Result<pb::RevisionAtTimeResponse, Status> {
        self.read(move |pinned| {
            let found = pinned.revision_at_time(request.unix_ms)?;
            Ok(pb::RevisionAtTimeResponse {
                revision: found.revision.get(),
                unix_ms: found.stamp_ms.unwrap_or(0),
                compacted_revision: Revision::compacted_to_wire(pinned.compacted_revision()),
                before_history: found.before_history,
                current_revision: pinned.current_revision().get(),
            })
        })
        .await
    }

    pub(super) async fn key_times(
        &self,
        request: pb::KeyTimesRequest,
    ) -> Result<pb::KeyTimesResponse, Status> {
        // Keys and limit mean here what they mean in a range, and are refused for the same reasons.
        let pb::KeyTimesRequest { key, range_end, limit } = request;
        let range = RangeRequest { key, range_end, limit, ..RangeRequest::default() };
        let RangeQuery { keys, limit, .. } = RangeQuery::try_from(range).map_err(status::bad_request)?;
        self.read(move |pinned| {
            let found = pinned.key_times(&keys, limit)?;
            Ok(pb::KeyTimesResponse {
                revision: found.revision.get(),
                times: found.times.into_iter().map(key_time).collect(),
                more: found.more,
            })
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Pinned) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Status> {
        self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
        // Never closed, so waiting cannot fail.
        let _turn = self.reads.acquire().await;
        let pinned = self.raft.reader().pin();
        let read = meerkat_raft::threads::spawn_blocking(move || read(&pinned));
        read.await.map_err(|error| status::worker_lost(&error))?.map_err(|error| status::read(&error))
    }
}

fn key_time(time: KeyTime) -> pb::KeyTime {
    pb::KeyTime {
        key: time.key,
        create_revision: time.created.get(),
        mod_revision: time.modified.get(),
        created_unix_ms: time.created_ms,
        modified_unix_ms: time.modified_ms,
    }
}
