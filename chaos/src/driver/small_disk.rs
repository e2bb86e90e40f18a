//! A data directory on a small file system of its own, which can be filled and freed.
//!
//! The file system is one in memory, mounted over the directory; what was there moves into it, and
//! back when it is retired. Needs the right to mount. Dropped in any other way, it is unmounted with
//! all it holds: the run has failed by then. What a program leaves mounted that was killed is unmounted
//! by the next one: each mount has its maker's process in its name.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// What a mount is called, before the process of its maker.
const SOURCE: &str = "meerkat-chaos-";
const BALLAST: &str = "ballast";
const BALLAST_PIECE: usize = 64 << 10;

/// A small disk in place of a directory. Whoever uses the directory must be stopped whenever one is
/// made or retired.
#[derive(Debug)]
pub struct SmallDisk {
    dir: PathBuf,
    mounted: bool,
}

/// Whether file systems can be mounted here; if not, what to do.
pub fn available() -> Result<(), String> {
    unmount_what_the_dead_left();
    let tried = tempfile::tempdir().map_err(Failure::from).and_then(|dir| {
        mount(dir.path(), 1 << 20)?;
        unmount(dir.path())
    });
    tried.map_err(|why| format!("no file system can be mounted here ({why}): run as root to have full disks"))
}

impl SmallDisk {
    /// Moves a directory to a disk of its own, with so many bytes to spare.
    pub fn under(dir: &Path, spare_bytes: u64) -> Result<Self, Failure> {
        let aside = aside(dir);
        std::fs::rename(dir, &aside)?;
        std::fs::create_dir(dir)?;
        mount(dir, bytes_in(&aside)? + spare_bytes)?;
        let disk = Self { dir: dir.to_owned(), mounted: true };
        copy_all(&aside, dir)?;
        std::fs::remove_dir_all(&aside)?;
        Ok(disk)
    }

    /// Fills it to the last byte; answers with how many.
    pub fn fill(&self) -> Result<u64, Failure> {
        let mut ballast = File::create(self.dir.join(BALLAST))?;
        let (mut filled, mut length) = (0, BALLAST_PIECE);
        while 0 < length {
            match ballast.write(&vec![b'.'; length]) {
                Ok(written) => filled += written as u64,
                Err(error) if error.kind() == ErrorKind::StorageFull => length /= 2,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Gives back what was filled.
    pub fn free(&self) -> Result<(), Failure> {
        match std::fs::remove_file(self.dir.join(BALLAST)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Moves the directory back to where it was.
    pub fn retire(mut self) -> Result<(), Failure> {
        self.free()?;
        let aside = aside(&self.dir);
        std::fs::create_dir(&aside)?;
        copy_all(&self.dir, &aside)?;
        unmount(&self.dir)?;
        self.mounted = false;
        std::fs::remove_dir(&self.dir)?;
        Ok(std::fs::rename(&aside, &self.dir)?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.mounted {
            // Nobody is left to be told.
            let _ = unmount(&self.dir);
        }
    }
}

fn aside(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".aside");
    name.into()
}

/// What the files of a directory take.
pub fn bytes_in(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        // What a file takes is rounded up to pages; a directory takes one.
        bytes +=
            if meta.is_dir() { 4096 + bytes_in(&entry.path())? } else { meta.len().next_multiple_of(4096) };
    }
    Ok(bytes)
}

fn copy_all(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy_all(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Whatever cannot be unmounted now, the next one may.
fn unmount_what_the_dead_left() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let runs = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    for dir in left_by_the_dead(&mounts, runs) {
        let _ = unmount(&dir);
    }
}

/// The directories of mounts of this kind whose makers do not run any more.
fn left_by_the_dead(mounts: &str, runs: impl Fn(u32) -> bool) -> Vec<PathBuf> {
    let left = |line: &str| {
        let mut fields = line.split(' ');
        let maker = fields.next()?.strip_prefix(SOURCE)?.parse().ok()?;
        let dir = fields.next()?;
        (!runs(maker)).then(|| dir.into())
    };
    mounts.lines().filter_map(left).collect()
}

fn mount(dir: &Path, bytes: u64) -> Result<(), Failure> {
    let target = path(dir)?;
    let source = CString::new(format!("{SOURCE}{}", std::process::id())).map_err(std::io::Error::other)?;
    let options = CString::new(format!("size={bytes},mode=0700")).map_err(std::io::Error::other)?;
    // SAFETY: all pointers are to strings that end in a zero and live until the call returns.
    let failed = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
    };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

fn unmount(dir: &Path) -> Result<(), Failure> {
    let target = path(dir)?;
    // SAFETY: the pointer is to a string that ends in a zero and lives until the call returns. Lazily,
    // since a process that was killed a moment ago may still hold a file open.
    let failed = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

fn path(dir: &Path) -> Result<CString, Failure> {
    Ok(CString::new(dir.as_os_str().as_bytes()).map_err(std::io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_this_kind_whose_makers_are_gone_are_left_by_the_dead() {
        let mounts = "meerkat-chaos-7 /tmp/a tmpfs rw 0 0\nmeerkat-chaos-8 /tmp/b tmpfs rw 0 0\n\
                      none /tmp/c tmpfs rw 0 0\nmeerkat-chaos-x /tmp/d tmpfs rw 0 0\n";
        assert_eq!(left_by_the_dead(mounts, |pid| pid == 7), [PathBuf::from("/tmp/b")]);
    }

    #[test]
    fn a_small_disk_fills_up_frees_and_gives_everything_back() {
        if let Err(why) = available() {
            println!("SKIPPED small disk: {why}");
            return;
        }
        let home = tempfile::tempdir().expect("a place");
        let dir = home.path().join("data");
        std::fs::create_dir_all(dir.join("below")).expect("a directory");
        std::fs::write(dir.join("below/file"), b"kept").expect("a file");
        let disk = SmallDisk::under(&dir, 1 << 20).expect("a small disk");
        assert_eq!(std::fs::read(dir.join("below/file")).expect("moved"), b"kept");
        let filled = disk.fill().expect("filled");
        assert!((1 << 19..2 << 20).contains(&filled), "{filled}");
        let full = std::fs::write(dir.join("more"), [1; 8_192]).expect_err("there is no room");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        disk.free().expect("freed");
        std::fs::write(dir.join("more"), [1; 8_192]).expect("there is room again");
        disk.retire().expect("moved back");
        assert_eq!(std::fs::read(dir.join("below/file")).expect("moved"), b"kept");
        assert_eq!(std::fs::metadata(dir.join("more")).expect("kept").len(), 8_192);
    }
}
