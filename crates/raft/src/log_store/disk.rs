//! The few things the log asks of a file system, so that tests can make each of them fail.
//!
//! [`FsDisk`] is the real one: a directory on a local file system, locked against a second
//! process. Whoever implements [`LogDisk`] must keep its durability promises to the letter; the
//! log's recovery rests on them and on nothing else.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub trait LogDisk: Send + Sync {
    /// Names of all files there are.
    fn list(&self) -> io::Result<Vec<String>>;

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Makes a file that begins with `head` and is zeros up to `len`. On return all of it is
    /// durable; after a crash before that, the name is either absent or has all of it.
    fn create(&self, name: &str, len: u64, head: &[u8]) -> io::Result<Arc<dyn LogFile>>;

    /// Removes a file, durably.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// How an operator finds a file of this name.
    fn describe(&self, name: &str) -> String;

    /// How long the next sync takes, on a disk whose time is simulated.
    fn sync_takes(&self) -> Duration {
        Duration::ZERO
    }
}

pub trait LogFile: Send + Sync {
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Not durable before `sync_data`.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    /// Makes everything written before durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Turns everything from `at` to the end into zeros, durably.
    fn clear_from(&self, at: u64) -> io::Result<()>;
}

const LOCK_NAME: &str = "LOCK";
const UNFINISHED_SUFFIX: &str = ".tmp";

/// A directory of the local file system. Holds its lock until dropped.
pub struct FsDisk {
    dir: PathBuf,
    /// Kept open for its syncs: a name made, changed or removed is durable only after one.
    handle: File,
    _lock: File,
}

/// How long a process that is on its way out may still hold the lock: one killed a moment ago, or a
/// child that was forked from it and has not begun its own program yet.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

fn take_lock(lock: &File, dir: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let text = format!("the log in {} is in use by another process", dir.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            Err(TryLockError::Error(err)) => return Err(err),
        }
    }
}

impl FsDisk {
    /// Makes the directory if it is missing, and removes what an interrupted `create` left.
    pub fn open(dir: &Path) -> io::Result<FsDisk> {
        std::fs::create_dir_all(dir)?;
        match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all()?,
            Some(parent) => File::open(parent)?.sync_all()?,
            None => {}
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK_NAME))?;
        take_lock(&lock, dir)?;
        let disk = FsDisk { dir: dir.to_owned(), handle: File::open(dir)?, _lock: lock };
        for name in disk.list()?.iter().filter(|name| name.ends_with(UNFINISHED_SUFFIX)) {
            disk.remove(name)?;
        }
        Ok(disk)
    }
}

impl LogDisk for FsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.dir.join(name))?;
        Ok(Arc::new(FsFile { file }))
    }

    fn create(&self, name: &str, len: u64, head: &[u8]) -> io::Result<Arc<dyn LogFile>> {
        let unfinished = self.dir.join(format!("{name}{UNFINISHED_SUFFIX}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&unfinished)?;
        allocate(&file, len)?;
        file.write_all_at(head, 0)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, self.dir.join(name))?;
        self.handle.sync_all()?;
        Ok(Arc::new(FsFile { file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))?;
        self.handle.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

struct FsFile {
    file: File,
}

impl LogFile for FsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn clear_from(&self, at: u64) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        self.file.set_len(at)?;
        allocate(&self.file, len)?;
        self.file.sync_all()
    }
}

/// Reserves the blocks now: a full disk shows when a segment is made rather than in the middle of
/// it, and a sync need not change the file's size.
fn allocate(file: &File, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
