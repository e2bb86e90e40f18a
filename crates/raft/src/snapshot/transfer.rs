//! A state's files over the wire, in chunks that each carry a checksum.
//!
//! Always true: at most a few chunks are in memory on either side; a received state has every
//! byte that was announced, each chunk verified, and is synced before it is offered for install.

use super::StateSnapshot;
use crate::identity::sync_dir;
use crate::log_store::codec;
use crate::measured::SnapshotSyncs;
use crate::network::service::ReceiveError;
use crate::network::wire;
use crate::threads;
use crate::type_config::{TypeConfig, Vote};
use bytes::Bytes;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::snapshot_chunk::Part;
use openraft::type_config::alias::SnapshotOf;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Large enough that framing costs nothing, small enough to hold a few.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS_AHEAD: usize = 4;

/// A file of the engine holds 64 MiB: a state of this many would not fit any disk.
const FILES_MAX: usize = 1 << 20;
/// An engine has a handful. They cost the sender nothing, and the receiver a sync each.
const EMPTY_FILES_MAX: usize = 1 << 10;

/// The chunks that carry `snapshot`. A read error ends the stream early, which the receiver sees
/// as an incomplete state and refuses.
pub(crate) fn chunks(
    vote: &Vote,
    snapshot: SnapshotOf<TypeConfig, StateSnapshot>,
) -> io::Result<ReceiverStream<pb::SnapshotChunk>> {
    let dir = snapshot.snapshot.dir().map(Path::to_owned);
    let dir = dir.ok_or_else(|| io::Error::other("a state that is only described cannot be sent"))?;
    let last = snapshot.meta.last_log_id.as_ref().map(wire::log_id_to_wire);
    let files = list(&dir)?;
    let header = pb::SnapshotHeader {
        ballot: Some(wire::vote_to_wire(vote)),
        last,
        membership: codec::encode_membership(&snapshot.meta.last_membership),
        files: files.clone(),
    };
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    crate::threads::spawn_blocking_part("raft", move || {
        // Lives as long as the transfer: dropping it removes the files and the pin.
        let _snapshot = snapshot;
        if let Err(error) = send_all(&dir, header, &files, &sender) {
            tracing::warn!(%error, "sending a snapshot stopped");
        }
    });
    Ok(ReceiverStream::new(receiver))
}

fn list(dir: &Path) -> io::Result<Vec<pb::SnapshotFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name =
            entry.file_name().into_string().map_err(|_| io::Error::other("a file name is not text"))?;
        files.push(pb::SnapshotFile { name, bytes: entry.metadata()?.len() });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn send_all(
    dir: &Path,
    header: pb::SnapshotHeader,
    files: &[pb::SnapshotFile],
    sender: &mpsc::Sender<pb::SnapshotChunk>,
) -> io::Result<()> {
    send(sender, Part::Header(header))?;
    for (number, file) in files.iter().enumerate() {
        let mut reader = File::open(dir.join(&file.name))?;
        let mut offset = 0;
        while offset < file.bytes {
            let mut data =
                vec![0; CHUNK_BYTES.min(usize::try_from(file.bytes - offset).unwrap_or(CHUNK_BYTES))];
            reader.read_exact(&mut data)?;
            let read = data.len() as u64;
            let chunk = pb::FileChunk {
                file: u32::try_from(number).map_err(io::Error::other)?,
                offset,
                checksum: crc32c::crc32c(&data),
                data: Bytes::from(data),
            };
            send(sender, Part::File(chunk))?;
            offset += read;
        }
    }
    Ok(())
}

fn send(sender: &mpsc::Sender<pb::SnapshotChunk>, part: Part) -> io::Result<()> {
    let chunk = pb::SnapshotChunk { part: Some(part) };
    // On a task nothing may block, and the states of a simulation are few chunks.
    let sent = if threads::are_tasks() {
        sender.try_send(chunk).is_ok()
    } else {
        sender.blocking_send(chunk).is_ok()
    };
    sent.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, "the receiver went away"))
}

/// A state being received into a directory of its own.
pub(crate) struct Receiving {
    dir: PathBuf,
    /// Removes the directory, however receiving ends, unless the whole state arrived.
    state: StateSnapshot,
    files: Vec<pb::SnapshotFile>,
    /// File being written, and how much of it is there.
    open: Option<(usize, File, u64)>,
    /// Files that are complete.
    done: usize,
    syncs: Arc<SnapshotSyncs>,
}

impl Receiving {
    pub(crate) fn begin(
        dir: PathBuf,
        files: Vec<pb::SnapshotFile>,
        syncs: Arc<SnapshotSyncs>,
    ) -> Result<Receiving, ReceiveError> {
        check_announced(&files).map_err(ReceiveError::Refused)?;
        let state = StateSnapshot::files(dir.clone(), None);
        fs::create_dir_all(&dir)?;
        let mut receiving = Receiving { dir, state, files, open: None, done: 0, syncs };
        receiving.open_next()?;
        Ok(receiving)
    }

    /// Takes the next chunk; refuses what is out of place or damaged.
    pub(crate) fn take(&mut self, chunk: pb::FileChunk) -> Result<(), ReceiveError> {
        if crc32c::crc32c(&chunk.data) != chunk.checksum {
            return Err(ReceiveError::Refused(format!(
                "file {} at {}: the checksum does not match",
                chunk.file, chunk.offset
            )));
        }
        let Some((number, file, written)) = &mut self.open else {
            return Err(ReceiveError::Refused("more data than was announced".into()));
        };
        let announced = self.files[*number].bytes;
        let end = *written + chunk.data.len() as u64;
        if chunk.file as usize != *number || chunk.offset != *written || announced < end {
            return Err(ReceiveError::Refused(format!(
                "expected file {number} at {written} of {announced}, got file {} at {}",
                chunk.file, chunk.offset
            )));
        }
        file.write_all(&chunk.data)?;
        *written = end;
        if *written == announced {
            sync(file, &self.syncs)?;
            self.done += 1;
            self.open = None;
            self.open_next()?;
        }
        Ok(())
    }

    /// The whole state, durable. Fails when anything announced is missing.
    pub(crate) fn finish(self) -> Result<StateSnapshot, ReceiveError> {
        if self.done != self.files.len() {
            return Err(ReceiveError::Refused(format!(
                "the state is incomplete: {} of {} files arrived",
                self.done,
                self.files.len()
            )));
        }
        let began = Instant::now();
        sync_dir(&self.dir)?;
        self.syncs.directories.observe(began.elapsed());
        Ok(self.state)
    }

    /// Opens the next file that has content; files announced empty are made on the way.
    fn open_next(&mut self) -> io::Result<()> {
        while self.done < self.files.len() {
            let announced = &self.files[self.done];
            let file = File::create(self.dir.join(&announced.name))?;
            if announced.bytes > 0 {
                self.open = Some((self.done, file, 0));
                return Ok(());
            }
            sync(&file, &self.syncs)?;
            self.done += 1;
        }
        Ok(())
    }
}

fn sync(file: &File, syncs: &SnapshotSyncs) -> io::Result<()> {
    let began = Instant::now();
    file.sync_all()?;
    syncs.files.observe(began.elapsed());
    Ok(())
}

/// What a sender announces comes from outside: it must stay inside the directory, and within reason.
fn check_announced(files: &[pb::SnapshotFile]) -> Result<(), String> {
    let empty = files.iter().filter(|file| file.bytes == 0).count();
    if FILES_MAX < files.len() || EMPTY_FILES_MAX < empty {
        return Err(format!("{} files, {empty} of them empty, are too many", files.len()));
    }
    let mut names = HashSet::new();
    for file in files {
        let name = file.name.as_str();
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        if !is_plain || !names.insert(name) {
            return Err(format!("file name {name:?} is not acceptable"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn file(name: &str, bytes: u64) -> pb::SnapshotFile {
        pb::SnapshotFile { name: name.into(), bytes }
    }

    fn chunk(file: u32, offset: u64, data: &'static [u8]) -> pb::FileChunk {
        pb::FileChunk { file, offset, data: Bytes::from_static(data), checksum: crc32c::crc32c(data) }
    }

    fn receiving(root: &Path) -> Receiving {
        receiving_with(root, Arc::default())
    }

    fn receiving_with(root: &Path, syncs: Arc<SnapshotSyncs>) -> Receiving {
        let files = vec![file("a", 5), file("empty", 0), file("b", 2)];
        Receiving::begin(root.join("incoming"), files, syncs).expect("begins")
    }

    #[test]
    fn a_whole_state_arrives() {
        let root = tempfile::tempdir().expect("temp dir");
        let syncs = Arc::<SnapshotSyncs>::default();
        let mut receiving = receiving_with(root.path(), syncs.clone());
        for part in [chunk(0, 0, b"hel"), chunk(0, 3, b"lo"), chunk(2, 0, b"yo")] {
            receiving.take(part).expect("taken");
        }
        let state = receiving.finish().expect("whole");
        let count = |syncs: &Histogram| syncs.buckets().map(|(_, count)| count).sum::<u64>();
        assert_eq!((count(&syncs.files), count(&syncs.directories)), (3, 1), "each sync is counted");
        let dir = state.dir().expect("files").to_owned();
        assert_eq!(fs::read(dir.join("a")).expect("reads"), b"hello");
        assert_eq!(fs::read(dir.join("empty")).expect("reads"), b"");
        drop(state);
        assert!(!dir.exists(), "a snapshot that nobody installed leaves nothing behind");
    }

    #[test]
    fn damaged_missing_or_misplaced_data_is_refused() {
        let root = tempfile::tempdir().expect("temp dir");
        let mut damaged = chunk(0, 0, b"hel");
        damaged.checksum ^= 1;
        assert!(receiving(root.path()).take(damaged).is_err());
        assert!(receiving(root.path()).take(chunk(0, 1, b"hel")).is_err());
        assert!(receiving(root.path()).take(chunk(2, 0, b"yo")).is_err());
        assert!(receiving(root.path()).take(chunk(0, 0, b"hello!")).is_err());
        let mut short = receiving(root.path());
        short.take(chunk(0, 0, b"hello")).expect("taken");
        assert!(short.finish().is_err());
        assert!(!root.path().join("incoming").exists(), "what was refused leaves nothing behind");
    }

    #[test]
    fn a_file_name_cannot_leave_the_directory() {
        let root = tempfile::tempdir().expect("temp dir");
        for name in ["../x", "/etc/x", "", "a/b", ".", ".."] {
            assert!(
                Receiving::begin(root.path().join("i"), vec![file(name, 1)], Arc::default()).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_announced_twice_or_without_measure_is_refused() {
        let empty = |number: usize| file(&format!("{number}"), 0);
        let named = |number: usize| file(&format!("{number}"), 1);
        assert!(check_announced(&[file("a", 1), file("b", 1)]).is_ok());
        assert!(check_announced(&[file("a", 1), file("a", 2)]).is_err());
        assert!(check_announced(&(0..EMPTY_FILES_MAX).map(empty).collect::<Vec<_>>()).is_ok());
        assert!(check_announced(&(0..=EMPTY_FILES_MAX).map(empty).collect::<Vec<_>>()).is_err());
        assert!(check_announced(&(0..=EMPTY_FILES_MAX).map(named).collect::<Vec<_>>()).is_ok());
        assert!(check_announced(&(0..=FILES_MAX).map(named).collect::<Vec<_>>()).is_err());
    }
}
