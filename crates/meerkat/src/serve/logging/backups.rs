//! Looks after the logs that were set aside, on a thread of its own: removes those that there are too many
//! of, and compresses the others.
//!
//! No line waits for it. A backup is removed for its compressed form only when that is whole on the disk;
//! what is cut short is done again by the next process.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::log_file::now;
use super::rotation::{self, Rotation};

/// Tells the thread that there may be something to do. Never waits.
#[derive(Debug)]
pub struct Keeper(Option<SyncSender<()>>);

impl Keeper {
    /// Starts the thread, unless the configuration leaves it nothing to do but what an earlier one left.
    pub fn start(directory: PathBuf, log: String, rotation: Rotation) -> io::Result<Keeper> {
        if !rotation.tends_backups() {
            // What cannot be removed is in nobody's way.
            drop(tend(&directory, &log, rotation));
            return Ok(Keeper(None));
        }
        // One call waits while another is answered: it will find all there is.
        let (sender, calls) = sync_channel(1);
        let work = move || meerkat_fault::part("member", || answer(&calls, &directory, &log, rotation));
        std::thread::Builder::new().name("meerkat-log-backups".to_owned()).spawn(work)?;
        Ok(Keeper(Some(sender)))
    }

    pub fn call(&self) {
        if let Some(sender) = &self.0 {
            // Full: it is called already.
            let _ = sender.try_send(());
        }
    }
}

fn answer(calls: &Receiver<()>, directory: &Path, log: &str, rotation: Rotation) {
    while calls.recv().is_ok() {
        if let Err(error) = tend(directory, log, rotation) {
            tracing::warn!(
                error = %error, directory = %directory.display(), "cannot look after the backups of the log"
            );
        }
    }
}

/// Does what can be done, and tells of the first thing that cannot.
fn tend(directory: &Path, log: &str, rotation: Rotation) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            found.extend(entry.file_name().into_string());
        }
    }
    let upkeep = rotation.upkeep(log, &found, now(rotation.local_time));
    let removed = upkeep.remove.iter().map(|name| fs::remove_file(directory.join(name)));
    let compressed = upkeep.compress.iter().map(|name| compress(directory, name));
    removed.chain(compressed).fold(Ok(()), Result::and)
}

fn compress(directory: &Path, backup: &str) -> io::Result<()> {
    let (from, to) = (directory.join(backup), directory.join(rotation::compressed_name(backup)));
    // Under its name it is there whole or not at all, wherever a process may end.
    let part = directory.join(rotation::part_name(backup));
    let written = write_compressed(&from, &part).and_then(|()| fs::rename(&part, &to));
    if written.is_err() {
        drop(fs::remove_file(&part));
    }
    written?;
    fs::remove_file(from)
}

fn write_compressed(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mode = source.metadata()?.mode();
    // What is there already is what is left of an earlier try.
    let target = File::options().write(true).create(true).truncate(true).mode(mode).open(to)?;
    let mut encoder = GzEncoder::new(BufWriter::new(target), Compression::default());
    io::copy(&mut BufReader::new(&mut source), &mut encoder)?;
    let target = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    target.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const KEEP_TWO: &str = r#"{"maxbackups": 2, "compress": true}"#;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> =
            names.map(|entry| entry.expect("there").file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    }

    fn unpacked(file: &Path) -> String {
        let mut text = String::new();
        let packed = File::open(file).expect("there");
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("whole");
        text
    }

    #[test]
    fn backups_that_stay_are_compressed_and_others_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let stamps = ["2026-01-01T00-00-00.000", "2026-01-02T00-00-00.000", "2026-01-03T00-00-00.000"];
        for stamp in stamps {
            fs::write(at(&format!("a-{stamp}.log")), format!("{stamp}\n").repeat(1_000)).expect("written");
        }
        fs::write(at("a.log"), "now").expect("written");
        // What an earlier process was stopped in.
        fs::write(at(&format!("a-{}.log.gz", stamps[2])), "half").expect("written");
        fs::write(at(&format!("a-{}.log.gz.part", stamps[0])), "half").expect("written");
        let rotation = Rotation::from_json(KEEP_TWO).expect("a configuration");
        tend(directory.path(), "a.log", rotation).expect("done");
        let kept: Vec<String> = stamps[1..].iter().map(|stamp| format!("a-{stamp}.log.gz")).collect();
        assert_eq!(names(directory.path()), [kept[0].as_str(), kept[1].as_str(), "a.log"]);
        for (name, stamp) in kept.iter().zip(&stamps[1..]) {
            assert_eq!(unpacked(&at(name)), format!("{stamp}\n").repeat(1_000));
        }
        tend(directory.path(), "a.log", rotation).expect("nothing is left to do");
        assert_eq!(names(directory.path()).len(), 3);
    }

    #[test]
    fn what_a_killed_process_left_goes_at_the_start_even_if_backups_are_let_be() {
        let directory = tempfile::tempdir().expect("a directory");
        let backup = "a-2026-01-01T00-00-00.000.log";
        for name in [backup, &format!("{backup}.gz.part"), "a-notes.log.gz.part"] {
            fs::write(directory.path().join(name), "half").expect("written");
        }
        let rotation = Rotation::from_json("{}").expect("a configuration");
        let keeper = Keeper::start(directory.path().to_owned(), "a.log".to_owned(), rotation);
        assert!(keeper.is_ok_and(|keeper| keeper.0.is_none()));
        assert_eq!(names(directory.path()), [backup, "a-notes.log.gz.part"]);
    }

    #[test]
    fn a_backup_that_cannot_be_compressed_stays_and_keeps_no_other_waiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let (stuck, other) = ("a-2026-01-02T00-00-00.000.log", "a-2026-01-01T00-00-00.000.log");
        fs::write(at(stuck), "stuck").expect("written");
        fs::write(at(other), "other").expect("written");
        fs::create_dir(at(&format!("{stuck}.gz"))).expect("in the way");
        let rotation = Rotation::from_json(KEEP_TWO).expect("a configuration");
        assert!(tend(directory.path(), "a.log", rotation).is_err());
        assert_eq!(fs::read(at(stuck)).expect("kept"), b"stuck");
        assert_eq!(unpacked(&at(&format!("{other}.gz"))), "other");
    }
}
