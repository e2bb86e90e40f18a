//! A disk in memory that knows what a crash would leave of it, and that can be made to fail.
//!
//! A write is pending until its file is synced. A crash keeps everything synced, and of the pending
//! writes whatever the test asks for: a prefix of their bytes, or any set of 512-byte sectors, as a
//! real disk would. Creating and removing files is durable at once, as `LogDisk` promises.

use meerkat_raft::log_store::disk::{LogDisk, LogFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<Content>>>,
    fault: Option<Fault>,
    syncs_held: bool,
    /// Syncs that wait to be released.
    syncs_waiting: usize,
}

#[derive(Default)]
struct Content {
    synced: Vec<u8>,
    pending: Vec<Pending>,
    /// What a reader sees: synced, with everything pending on top.
    current: Vec<u8>,
}

struct Pending {
    at: usize,
    bytes: Vec<u8>,
}

/// Which step fails, with which error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub step: Step,
    pub code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Create,
    /// Half of the bytes are written first.
    Write,
    Sync,
    Remove,
}

impl SimDisk {
    /// Every such step fails from now on.
    pub fn fail(&self, fault: Fault) {
        self.lock().fault = Some(fault);
    }

    /// Syncs wait until they are released.
    pub fn hold_syncs(&self) {
        self.lock().syncs_held = true;
    }

    pub fn release_syncs(&self) {
        self.lock().syncs_held = false;
        self.shared.released.notify_all();
    }

    /// Blocks until a held sync waits: everything taken for it is written by then.
    pub fn wait_for_held_sync(&self) {
        let mut state = self.lock();
        while state.syncs_waiting == 0 {
            state = self.shared.released.wait(state).expect("state");
        }
    }

    /// What is left after a crash that keeps this many bytes of the pending writes, in their order.
    pub fn crash_keeping_bytes(&self, mut keep: usize) -> SimDisk {
        self.crash(|pending| {
            let kept = pending.bytes.len().min(keep);
            keep -= kept;
            vec![Pending { at: pending.at, bytes: pending.bytes[..kept].to_vec() }]
        })
    }

    /// What is left after a crash that keeps the sectors `keep` chooses.
    pub fn crash_keeping_sectors(&self, mut keep: impl FnMut() -> bool) -> SimDisk {
        self.crash(|pending| sectors(pending).into_iter().filter(|_| keep()).collect())
    }

    /// The last file by name: the segment being written.
    pub fn last_file(&self) -> String {
        self.names().pop().expect("there is a file")
    }

    pub fn names(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        lock(&self.lock().files[name]).current.clone()
    }

    pub fn pending_bytes(&self) -> usize {
        let state = self.lock();
        let pending = |file: &Arc<Mutex<Content>>| -> usize {
            lock(file).pending.iter().map(|write| write.bytes.len()).sum()
        };
        state.files.values().map(pending).sum()
    }

    /// Replaces a file, behind the back of the log.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.lock();
        let file = state.files.entry(name.to_owned()).or_default();
        *lock(file) = Content { synced: bytes.clone(), pending: Vec::new(), current: bytes };
    }

    /// Whoever has the file open can still read it, as on a real disk.
    pub fn delete(&self, name: &str) {
        self.lock().files.remove(name);
    }

    /// A disk of its own with the same files.
    pub fn copy(&self) -> SimDisk {
        self.crash_keeping_bytes(usize::MAX)
    }

    fn crash(&self, mut keep: impl FnMut(&Pending) -> Vec<Pending>) -> SimDisk {
        let after = SimDisk::default();
        for (name, file) in &self.lock().files {
            let file = lock(file);
            let mut bytes = file.synced.clone();
            for kept in file.pending.iter().flat_map(&mut keep) {
                overlay(&mut bytes, &kept);
            }
            after.put(name, bytes);
        }
        after
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("state")
    }

    fn check(&self, step: Step) -> io::Result<()> {
        match self.lock().fault {
            Some(fault) if fault.step == step => Err(io::Error::from_raw_os_error(fault.code)),
            _ => Ok(()),
        }
    }
}

fn overlay(bytes: &mut Vec<u8>, write: &Pending) {
    let end = write.at + write.bytes.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[write.at..end].copy_from_slice(&write.bytes);
}

fn sectors(write: &Pending) -> Vec<Pending> {
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < write.bytes.len() {
        let at = write.at + from;
        let to = write.bytes.len().min(from + SECTOR_BYTES - at % SECTOR_BYTES);
        pieces.push(Pending { at, bytes: write.bytes[from..to].to_vec() });
        from = to;
    }
    pieces
}

impl LogDisk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let content = self.lock().files.get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn create(&self, name: &str, len: u64, head: &[u8]) -> io::Result<Arc<dyn LogFile>> {
        self.check(Step::Create)?;
        let mut bytes = head.to_vec();
        bytes.resize(usize::try_from(len).expect("test files are small"), 0);
        self.put(name, bytes);
        self.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check(Step::Remove)?;
        self.delete(name);
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("sim/{name}")
    }
}

struct SimFile {
    disk: SimDisk,
    content: Arc<Mutex<Content>>,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut Content) -> T) -> T {
        act(&mut lock(&self.content))
    }
}

fn lock(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().expect("content")
}

impl LogFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|file| file.current.len() as u64))
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let checked = self.disk.check(Step::Write);
        let written = if checked.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        let write = Pending { at: usize::try_from(at).expect("small file"), bytes: written.to_vec() };
        self.with(|file| {
            overlay(&mut file.current, &write);
            file.pending.push(write);
        });
        checked
    }

    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.with(|file| {
            let at = usize::try_from(at).expect("small file");
            let found = file.current.get(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(found);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.syncs_waiting += 1;
        self.disk.shared.released.notify_all();
        while state.syncs_held {
            state = self.disk.shared.released.wait(state).expect("state");
        }
        state.syncs_waiting -= 1;
        drop(state);
        self.disk.check(Step::Sync)?;
        self.with(|file| {
            file.pending.clear();
            file.synced.clone_from(&file.current);
        });
        Ok(())
    }

    fn clear_from(&self, at: u64) -> io::Result<()> {
        self.with(|file| {
            let at = usize::try_from(at).expect("small file");
            file.current[at..].fill(0);
            file.pending.clear();
            file.synced.clone_from(&file.current);
        });
        Ok(())
    }
}
