//! One file that lines are appended to, and that is set aside when it has grown enough.
//!
//! A line is in one file and whole: it is never begun in one and ended in the next. Nothing that was
//! written is written over: a name that is taken is not given to a backup. A file that cannot be set aside
//! goes on growing, and is tried again later.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::backups::Keeper;
use super::rotation::{self, Rotation};

/// Of a file that is not rotated, and of one that is, as in etcd.
const MODE: u32 = 0o644;
const MODE_ROTATED: u32 = 0o600;
/// Of directories that are made for the latter.
const MODE_DIRECTORY: u32 = 0o755;

/// How long a file that could not be set aside grows before it is tried again.
const ROTATION_RETRY: Duration = Duration::from_secs(60);

pub struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// The last line in the file has no end: what follows begins on a line of its own.
    is_torn: bool,
    rotating: Option<Rotating>,
}

struct Rotating {
    rotation: Rotation,
    keeper: Keeper,
    not_before: Option<Instant>,
}

impl LogFile {
    /// Opens a file to append to it. Directories are made only for one that is rotated, as in etcd.
    pub fn open(path: &Path, rotation: Option<Rotation>) -> io::Result<LogFile> {
        let mode = match rotation {
            Some(_) => MODE_ROTATED,
            None => MODE,
        };
        if rotation.is_some() {
            make_directory(path)?;
        }
        let file = append_to(path, mode)?;
        let found = file.metadata()?;
        // A device has no size and no place for backups beside it.
        let rotating = match (rotation, path.file_name().and_then(|name| name.to_str())) {
            (Some(rotation), Some(name)) if found.is_file() => {
                let keeper = Keeper::start(directory(path), name.to_owned(), rotation)?;
                keeper.call();
                Some(Rotating { rotation, keeper, not_before: None })
            }
            _ => None,
        };
        let (size, is_torn) =
            if found.is_file() { (found.len(), ends_within_a_line(path)) } else { (0, false) };
        Ok(LogFile { path: path.to_owned(), file, size, is_torn, rotating })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the file aside if it has no room for a line of that length.
    ///
    /// # Errors
    /// If that was due and cannot be done: the file that is open goes on.
    pub fn make_room(&mut self, line: usize, now: Instant) -> io::Result<()> {
        let Some(rotating) = &mut self.rotating else { return Ok(()) };
        let is_early = rotating.not_before.is_some_and(|time| now < time);
        if is_early || !rotating.rotation.is_due(self.size, line as u64) {
            return Ok(());
        }
        match set_aside(&self.path, &self.file, rotating.rotation.local_time) {
            Ok(next) => {
                self.file = next;
                (self.size, self.is_torn) = (0, false);
                rotating.not_before = None;
                rotating.keeper.call();
                Ok(())
            }
            Err(error) => {
                rotating.not_before = Some(now + ROTATION_RETRY);
                Err(error)
            }
        }
    }

    /// Writes a whole line, or says why there is only a part of it, or nothing.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.put(b"\n")?;
            self.is_torn = false;
        }
        self.put(line)
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.size += written as u64;
                    bytes = &bytes[written..];
                    self.is_torn = !bytes.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(mode).open(path)
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(MODE_DIRECTORY).create(directory(path))
}

/// Gives the file another name and opens a new one in its place, with its mode and owner. What is open
/// can be written to until the new one is there, whatever happens.
fn set_aside(path: &Path, open: &File, local_time: bool) -> io::Result<File> {
    let found = open.metadata()?;
    make_directory(path)?;
    let backup = free_name(path, local_time)?;
    let moved = match fs::rename(path, &backup) {
        Ok(()) => true,
        // Somebody took it away: there is nothing to set aside.
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let next = append_to(path, found.mode()).inspect_err(|_| {
        if moved {
            // So that who follows the log by its name goes on seeing it.
            drop(fs::rename(&backup, path));
        }
    })?;
    let made = next.metadata()?;
    if (made.uid(), made.gid()) != (found.uid(), found.gid()) {
        // Only the owner of all may give a file away; a log of the wrong owner is better than none.
        drop(fchown(&next, Some(found.uid()), Some(found.gid())));
    }
    Ok(next)
}

/// The first name from now on that no backup has, compressed or not.
fn free_name(path: &Path, local_time: bool) -> io::Result<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut time = now(local_time);
    loop {
        let backup = rotation::backup_name(name, time);
        let compressed = path.with_file_name(rotation::compressed_name(&backup));
        let backup = path.with_file_name(backup);
        if !backup.try_exists()? && !compressed.try_exists()? {
            return Ok(backup);
        }
        time = time.saturating_add(SignedDuration::from_millis(1));
    }
}

/// A process before this one may have been stopped in the midst of a line.
fn ends_within_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    // Empty, or not for us to read.
    last().is_ok_and(|last| last != b'\n')
}

/// What the clock on the wall says: in UTC, or in this machine's zone if that is asked for.
pub fn now(local_time: bool) -> DateTime {
    wall_clock(Timestamp::now(), local_time)
}

fn wall_clock(time: Timestamp, local_time: bool) -> DateTime {
    let zone = if local_time { TimeZone::system() } else { TimeZone::UTC };
    zone.to_datetime(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(bytes_max: u64) -> Option<Rotation> {
        let read = Rotation::from_json("{}").expect("defaults");
        Some(Rotation { bytes_max, ..read })
    }

    fn say(log: &mut LogFile, line: &str) {
        log.make_room(line.len(), Instant::now()).expect("room");
        log.append(line.as_bytes()).expect("written");
    }

    /// The log and its backups, oldest first, the log last.
    fn texts(directory: &Path) -> Vec<String> {
        let mut names: Vec<PathBuf> =
            fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("there").path()).collect();
        names.sort_unstable();
        names.iter().map(|name| fs::read_to_string(name).expect("text")).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o777
    }

    #[test]
    fn a_file_is_appended_to_and_an_unfinished_line_is_ended_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.log");
        for round in ["one\n", "two\n"] {
            say(&mut LogFile::open(&path, None).expect("open"), round);
        }
        fs::write(&path, "one\ntwo\ntor").expect("written");
        let mut log = LogFile::open(&path, None).expect("open");
        say(&mut log, "three\n");
        say(&mut log, "four\n");
        assert_eq!(fs::read_to_string(&path).expect("text"), "one\ntwo\ntor\nthree\nfour\n");
        assert_eq!(mode(&path) & 0o600, 0o600);
    }

    #[test]
    fn directories_are_made_only_for_what_is_rotated() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("made/for/it.log");
        let refusal = LogFile::open(&path, None).err().expect("no directory");
        assert_eq!(refusal.kind(), io::ErrorKind::NotFound);
        let _log = LogFile::open(&path, rotation(100)).expect("made");
        assert_eq!(mode(&path), 0o600);
        assert!(LogFile::open(directory.path(), rotation(100)).is_err(), "a directory is no log");
    }

    #[test]
    fn lines_are_whole_and_in_order_over_all_files_however_quickly_they_are_rotated() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.log");
        let mut log = LogFile::open(&path, rotation(64)).expect("open");
        let lines: Vec<String> = (0..500).map(|at| format!("line {at} {}\n", "x".repeat(at % 40))).collect();
        lines.iter().for_each(|line| say(&mut log, line));
        let texts = texts(directory.path());
        assert!(texts.len() > 100, "many in a millisecond, and none over another");
        assert!(texts.iter().all(|text| text.ends_with('\n') && text.len() <= 64));
        assert_eq!(texts.concat(), lines.concat());
    }

    #[test]
    fn a_line_longer_than_a_file_may_be_stands_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = LogFile::open(&directory.path().join("a.log"), rotation(8)).expect("open");
        let long = format!("{}\n", "x".repeat(20));
        for line in ["a\n", &long, "b\n"] {
            say(&mut log, line);
        }
        assert_eq!(texts(directory.path()), ["a\n", &long, "b\n"]);
    }

    #[test]
    fn what_was_there_counts_and_keeps_its_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.log");
        fs::write(&path, "12345678\n").expect("written");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("set");
        let mut log = LogFile::open(&path, rotation(10)).expect("open");
        say(&mut log, "9\n");
        assert_eq!(texts(directory.path()), ["12345678\n", "9\n"]);
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn a_file_that_cannot_be_set_aside_goes_on() {
        let directory = tempfile::tempdir().expect("a directory");
        // Good for a name, but not with the time in it.
        let path = directory.path().join("x".repeat(250));
        let mut log = LogFile::open(&path, rotation(4)).expect("open");
        let start = Instant::now();
        say(&mut log, "one\n");
        log.make_room(4, start).expect_err("no such name");
        log.append(b"two\n").expect("written all the same");
        log.make_room(4, start).expect("not tried again at once");
        log.make_room(4, start + ROTATION_RETRY).expect_err("but after a while");
        assert_eq!(texts(directory.path()), ["one\ntwo\n"]);
    }

    #[test]
    fn a_log_that_was_taken_away_is_begun_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("logs/a.log");
        let mut log = LogFile::open(&path, rotation(4)).expect("open");
        say(&mut log, "one\n");
        fs::remove_dir_all(path.parent().expect("one")).expect("removed");
        say(&mut log, "two\n");
        assert_eq!(fs::read_to_string(&path).expect("text"), "two\n");
    }

    #[test]
    fn a_device_is_never_set_aside() {
        let mut log = LogFile::open(Path::new("/dev/null"), rotation(1)).expect("open");
        say(&mut log, "one\n");
        say(&mut log, "two\n");
        assert!(Path::new("/dev/null").exists());
        let mut full = LogFile::open(Path::new("/dev/full"), None).expect("open");
        assert_eq!(full.append(b"one\n").err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    }

    /// A time; given to a process that is only to say what its zone makes of it.
    const ASKED: &str = "WALL_CLOCK_ASKED_FOR";

    /// A process reads its zone once, so each row has one of its own: this test again.
    #[test]
    fn a_zone_is_ahead_of_utc_or_behind_and_may_change_with_the_season() {
        if let Ok(time) = std::env::var(ASKED) {
            let time: Timestamp = time.parse().expect("a time");
            println!("[{} {}]", wall_clock(time, false), wall_clock(time, true));
            return;
        }
        let path =
            concat!(module_path!(), "::a_zone_is_ahead_of_utc_or_behind_and_may_change_with_the_season");
        let (_, name) = path.split_once("::").expect("the name of the crate, and the test's");
        let check = |zone: &str, time: &str, expected: &str| {
            let mut child = std::process::Command::new(std::env::current_exe().expect("this one"));
            child.args([name, "--exact", "--nocapture"]).env("TZ", zone).env(ASKED, format!("{time}Z"));
            let said = String::from_utf8(child.output().expect("it runs").stdout).expect("text");
            assert!(said.contains(&format!("[{time} {expected}]")), "{zone} at {time}: {said}");
        };
        let (january, july) = ("2025-01-01T00:00:00", "2025-07-01T00:00:00");
        check("UTC0", january, january);
        check("IST-5:30", january, "2025-01-01T05:30:00");
        check("NST3:30", january, "2024-12-31T20:30:00");
        check("EST5EDT,M3.2.0,M11.1.0", january, "2024-12-31T19:00:00");
        check("EST5EDT,M3.2.0,M11.1.0", july, "2025-06-30T20:00:00");
    }
}
