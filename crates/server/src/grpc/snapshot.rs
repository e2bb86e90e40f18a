//! Maintenance.Snapshot: this member's store as an etcd snapshot file, in pieces.
//!
//! The store is read from one pinned point and written to a file that has no name, on the disk of the
//! data directory: writers are not held up, memory is bounded, and nothing is left behind by whatever
//! ends the call. The pieces come from that file. A member works for at most [`BUILDS_MAX`] callers at
//! once, since each takes the room of a store on disk; others wait.

use super::status;
use crate::saved_rules;
use crate::version::STORAGE_VERSION;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use meerkat_backup::snapshot::{CHECKSUM_BYTES, Checksum, Head, KeyRows, LeaseRow, write};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_raft::{RaftNode, threads};
use meerkat_state::{Pinned, ReadError};
use meerkat_types::Lease;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;

/// What etcd sends at once, and what its clients are known to take.
const PIECE_BYTES: usize = 32 << 10;
/// Pieces read from disk in one go.
const READ_PIECES: usize = 32;
const BUILDS_MAX: usize = 2;

static BUILDS: Semaphore = Semaphore::const_new(BUILDS_MAX);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("a file for it cannot be written in the data directory: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the caller has gone")]
    Gone,
}

pub(crate) type Pieces = BoxStream<'static, Result<pb::SnapshotResponse, Status>>;

/// The whole answer. Building begins when it is first polled, so that the caller hears at once that it
/// was accepted.
pub(crate) fn stream(raft: Arc<RaftNode>) -> Pieces {
    let built = stream::once(async move {
        let permit = BUILDS.acquire().await.map_err(|_| status::snapshot(&SnapshotError::Gone))?;
        let pinned = raft.reader().pin();
        let database = raft.database();
        let left = Left::default();
        let gone = left.0.clone();
        let building = threads::spawn_blocking(move || build(&pinned, database.path(), &gone));
        let built = building.await.map_err(|error| status::worker_lost(&error))?;
        let (file, bytes) = built.map_err(|error| status::snapshot(&error))?;
        Ok::<_, Status>(pieces(file, bytes, permit))
    });
    built.try_flatten().boxed()
}

/// Tells the builder when the caller has gone: dropped with the answer.
#[derive(Default)]
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn build(pinned: &Pinned, database: &Path, gone: &AtomicBool) -> Result<(File, u64), SnapshotError> {
    let applied = pinned.applied();
    let compacted = pinned.compacted_revision().get();
    let head = Head {
        compacted: (0 < compacted).then_some(compacted),
        applied_term: applied.map_or(0, |at| at.term),
        applied_index: applied.map_or(0, |at| at.index),
        leases: pinned.leases()?.iter().map(lease_row).collect(),
        other: saved_rules::to_rows(pinned.auth(), pinned.alarms().map(|(alarm, _)| alarm)),
    };
    // Beside the state's directory, which is cleared of whatever is unknown at every start.
    let dir = database.parent().unwrap_or(database);
    let (mut file, bytes) = write(nameless(dir)?, &head, |keys| write_history(pinned, keys, gone))?;
    file.seek(SeekFrom::Start(0))?;
    Ok((file, bytes))
}

fn lease_row(lease: &Lease) -> LeaseRow {
    let remaining = lease.remaining.map_or(0, |left| left.as_secs() + u64::from(0 < left.subsec_nanos()));
    LeaseRow {
        id: lease.id.get(),
        ttl_seconds: lease.ttl.seconds(),
        remaining_seconds: i64::try_from(remaining).unwrap_or(i64::MAX),
    }
}

fn write_history(pinned: &Pinned, keys: &mut KeyRows<'_>, gone: &AtomicBool) -> Result<(), SnapshotError> {
    let mut failed = None;
    pinned.each_event(|event| {
        let put = match event.key_value {
            _ if gone.load(Ordering::Relaxed) => Err(SnapshotError::Gone),
            Some(bytes) => keys.put(event.revision, event.sub, bytes).map_err(SnapshotError::from),
            None => keys.delete(event.revision, event.sub, event.key).map_err(SnapshotError::from),
        };
        match put {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// A file that is gone when it is closed.
fn nameless(dir: &Path) -> io::Result<File> {
    let tag: u64 = rand::random();
    let path = dir.join(format!("backup-{tag:016x}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// What is left to send.
struct Sending {
    file: File,
    left: u64,
    sum: Checksum,
    _permit: SemaphorePermit<'static>,
}

fn pieces(file: File, bytes: u64, permit: SemaphorePermit<'static>) -> Pieces {
    let sending = Sending { file, left: bytes, sum: Checksum::default(), _permit: permit };
    let groups = stream::try_unfold(Some(sending), |sending| async move {
        let Some(sending) = sending else { return Ok::<_, Status>(None) };
        let read = threads::spawn_blocking(move || sending.next_group()).await;
        let (group, sending) = read
            .map_err(|error| status::worker_lost(&error))?
            .map_err(|error| status::snapshot(&SnapshotError::Io(error)))?;
        Ok(Some((stream::iter(group.into_iter().map(Ok)), sending)))
    });
    groups.try_flatten().boxed()
}

impl Sending {
    /// The next pieces, and what is left after them; with the last comes the checksum.
    fn next_group(mut self) -> io::Result<(Vec<pb::SnapshotResponse>, Option<Sending>)> {
        let mut group = Vec::with_capacity(READ_PIECES + 1);
        while 0 < self.left && group.len() < READ_PIECES {
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let mut piece = vec![0; len];
            self.file.read_exact(&mut piece)?;
            self.sum.update(&piece);
            self.left -= len as u64;
            group.push(message(piece.into(), self.left));
        }
        if 0 < self.left {
            return Ok((group, Some(self)));
        }
        let sum: [u8; CHECKSUM_BYTES] = self.sum.of_all();
        group.push(message(Bytes::copy_from_slice(&sum), 0));
        Ok((group, None))
    }
}

fn message(blob: Bytes, remaining_bytes: u64) -> pb::SnapshotResponse {
    // Not with the header: it has the revision of now, and the file has its own.
    pb::SnapshotResponse { header: None, remaining_bytes, blob, version: STORAGE_VERSION.to_owned() }
}
