//! openraft's own suite for log stores, against the log on a real file system.
//!
//! The suite wants a state machine beside the log. [`Machine`] is the least that it accepts: it
//! remembers what was applied last, and nothing of it is under test here.

use crate::log_driver::{CLUSTER, MEMBER};
use futures::{Stream, StreamExt};
use meerkat_raft::log_store::{LogOptions, LogStore};
use meerkat_raft::type_config::{LogId, SnapshotMeta, StoredMembership, TypeConfig};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::SnapshotOf;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageError};
use std::io;
use tempfile::TempDir;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().expect("temporary directory");
        // Two or three entries to a segment, and none of them in memory once synced.
        let options =
            LogOptions { segment_bytes: 512, cache_bytes: 0, ..LogOptions::new(dir.path(), CLUSTER, MEMBER) };
        let log = LogStore::open(options).expect("an empty directory opens");
        Ok((dir, log, Machine::default()))
    }
}

#[derive(Clone, Default)]
struct Machine {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMeta>,
}

impl Machine {
    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }
}

/// Builds at once, so that the machine can know of it.
struct Built(SnapshotMeta);

impl RaftSnapshotBuilder<TypeConfig> for Built {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, ()>> {
        Ok(SnapshotOf::<TypeConfig, ()> { meta: self.0.clone(), snapshot: () })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Built;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, _) = item?;
            self.applied = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Built {
        self.snapshot = Some(self.meta());
        Built(self.meta())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> io::Result<()> {
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, ()>>> {
        Ok(self.snapshot.clone().map(|meta| SnapshotOf::<TypeConfig, ()> { meta, snapshot: () }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_accepts_the_log() {
    Suite::<TypeConfig, LogStore, Machine, Builder, TempDir>::test_all(Builder)
        .await
        .expect("openraft's suite");
}
