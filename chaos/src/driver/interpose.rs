//! Bad hardware for one member: a small library, made here, between it and its kernel.
//!
//! `interpose/faults.c` is compiled when it is needed and loaded into a member by `LD_PRELOAD`; a
//! `Control` then turns its faults on and off while the member runs. A program that does not call
//! the C library for its files and clocks, as those in Go do not, is not met.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::Failure;

const SOURCE: &str = include_str!("../../interpose/faults.c");
const COMPILER: &str = "cc";
/// Numbers in the control file.
const PLACES: u64 = 10;

/// What can be turned. The numbers are places in the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Every sync takes so many microseconds longer.
    SyncDelayMicros = 0,
    /// Every write takes so many microseconds longer.
    WriteDelayMicros = 1,
    /// Every sync fails with this error; 0 for none.
    SyncError = 2,
    /// Every write, and every growth of a file, fails with this error; 0 for none.
    WriteError = 3,
    /// The wall clock shows so many nanoseconds more.
    WallOffsetNanos = 4,
    /// The steady clock gains so many millionths.
    RatePerMillion = 5,
    /// Whether what is not synced is noted, see `power_loss`.
    Journal = 6,
    /// Every sync succeeds and does nothing: proof that a run can find what it looks for.
    SyncLies = 7,
}

const PID: u64 = 8;
const SYNCED: u64 = 9;

/// Whether a compiler is there; if not, what to do.
pub fn available() -> Result<(), String> {
    let found = Command::new(COMPILER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!(
            "there is no C compiler ({COMPILER}): install one to have faults of disks and clocks"
        )),
    }
}

/// The compiled library; all who use it at one time share it.
#[derive(Debug)]
struct Library {
    dir: TempDir,
}

impl Library {
    fn get() -> Result<Arc<Self>, Failure> {
        static MADE: Mutex<Weak<Library>> = Mutex::new(Weak::new());
        let mut made = MADE.lock();
        if let Some(library) = made.upgrade() {
            return Ok(library);
        }
        let library = Arc::new(Self::compile()?);
        *made = Arc::downgrade(&library);
        Ok(library)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("libfaults.so")
    }

    fn compile() -> Result<Self, Failure> {
        available().map_err(Failure::Missing)?;
        let library = Self { dir: tempfile::Builder::new().prefix("meerkat-faults-").tempdir()? };
        let source = library.dir.path().join("faults.c");
        std::fs::write(&source, SOURCE)?;
        let made = Command::new(COMPILER)
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .args([&library.path(), &source])
            .args(["-ldl", "-lpthread"])
            .output()?;
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(Failure::harness(format!("{COMPILER} cannot make the interposed library: {why}")));
        }
        Ok(library)
    }
}

/// The controls of one life of one member. Its files go when it is dropped; the member, if it still
/// runs, goes on with what was set last.
#[derive(Debug)]
pub struct Control {
    dir: TempDir,
    file: File,
    library: Arc<Library>,
    under: PathBuf,
}

impl Control {
    /// For a member whose data is in this directory. All faults are off.
    pub fn new(data_dir: &Path) -> Result<Self, Failure> {
        let library = Library::get()?;
        let dir = tempfile::Builder::new().prefix("meerkat-faults-").tempdir()?;
        let path = dir.path().join("control");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.set_len(PLACES * 8)?;
        Ok(Self { dir, file, library, under: data_dir.to_owned() })
    }

    /// What to start the member with.
    pub fn env(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library.path())),
            ("FAULTS_CONTROL".to_owned(), text(&self.dir.path().join("control"))),
            ("FAULTS_JOURNAL".to_owned(), text(&self.journal())),
            ("FAULTS_UNDER".to_owned(), text(&self.under)),
        ]
    }

    /// Where the member notes what is not synced.
    pub fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Turns a knob, at once.
    pub fn set(&self, knob: Knob, value: i64) -> Result<(), Failure> {
        Ok(self.file.write_all_at(&value.to_ne_bytes(), knob as u64 * 8)?)
    }

    /// All faults off. A steady clock that has gone wrong stays ahead or behind, at the right rate.
    pub fn release(&self) -> Result<(), Failure> {
        use Knob::{
            RatePerMillion, SyncDelayMicros, SyncError, WallOffsetNanos, WriteDelayMicros, WriteError,
        };
        [SyncDelayMicros, WriteDelayMicros, SyncError, WriteError, WallOffsetNanos, RatePerMillion]
            .into_iter()
            .try_for_each(|knob| self.set(knob, 0))
    }

    /// The process that the library was loaded into last; 0 before that.
    pub fn pid(&self) -> Result<u32, Failure> {
        Ok(u32::try_from(self.get(PID)?).unwrap_or(0))
    }

    /// How many syncs went through it: proof that the member is met.
    pub fn synced(&self) -> Result<i64, Failure> {
        self.get(SYNCED)
    }

    fn get(&self, place: u64) -> Result<i64, Failure> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, place * 8)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell line under the library, with what is set beforehand.
    fn run(control: &Control, line: &str) -> (bool, String) {
        let ended = Command::new("sh").args(["-c", line]).envs(control.env()).output().expect("a shell");
        (ended.status.success(), String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    }

    #[test]
    fn a_full_disk_is_full_only_below_the_data_directory() {
        let (data, other) = (tempfile::tempdir().expect("a place"), tempfile::tempdir().expect("a place"));
        let control = Control::new(data.path()).expect("the library is made");
        let [inside, outside] = [&data, &other].map(|dir| dir.path().join("file").display().to_string());
        assert!(run(&control, &format!("echo one > {inside}")).0);
        assert_ne!(control.pid().expect("a number"), 0);
        control.set(Knob::WriteError, libc::ENOSPC.into()).expect("set");
        assert!(!run(&control, &format!("echo two > {inside}")).0);
        assert!(run(&control, &format!("echo two > {outside}")).0);
        control.release().expect("released");
        assert!(run(&control, &format!("echo three > {inside}")).0);
    }

    #[test]
    fn a_sync_fails_and_is_slow_when_told_so() {
        let data = tempfile::tempdir().expect("a place");
        let control = Control::new(data.path()).expect("the library is made");
        let sync = format!("dd if=/dev/zero of={} bs=10 count=1 conv=fsync", data.path().join("f").display());
        assert!(run(&control, &sync).0);
        assert_eq!(control.synced().expect("a number"), 1);
        control.set(Knob::SyncError, libc::EIO.into()).expect("set");
        assert!(!run(&control, &sync).0);
        control.release().expect("released");
        control.set(Knob::SyncDelayMicros, 300_000).expect("set");
        let began = std::time::Instant::now();
        assert!(run(&control, &sync).0);
        assert!(std::time::Duration::from_millis(300) <= began.elapsed());
    }

    #[test]
    fn the_wall_clock_jumps() {
        let data = tempfile::tempdir().expect("a place");
        let control = Control::new(data.path()).expect("the library is made");
        let now = || run(&control, "date +%s").1.parse::<i64>().expect("seconds");
        let before = now();
        control.set(Knob::WallOffsetNanos, -86_400_000_000_000).expect("set");
        let jumped = before - now();
        assert!((86_300..=86_400).contains(&jumped), "{jumped}");
    }
}
