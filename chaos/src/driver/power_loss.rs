//! What a loss of power takes: bytes that were written and never synced.
//!
//! The interposed library notes what each write destroys and which syncs have finished. After a
//! `kill -9` the kernel still holds every byte that the process wrote; `undo` puts back what was
//! there before, for all that was not synced or, as a disk caught in the middle of it would, for
//! some sectors of it. Never call it while the process may still write.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::StdRng;

use crate::Failure;

/// What a disk writes as one.
const SECTOR: u64 = 512;
const HEAD_WORDS: usize = 7;

/// How much of what was not synced is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it.
    All,
    /// Some sectors of it, in no order; the size of a file as of any moment.
    Torn,
}

/// A file, as long as its number is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

/// What a note says. `old` is what was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    Wrote { at: u64, length: u64, old: Vec<u8>, old_size: u64 },
    Resized { size: u64, old: Vec<u8>, old_size: u64 },
    Synced { upto: u64 },
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    file: FileId,
    deed: Deed,
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Files that lost something.
    pub files: usize,
    /// Bytes put back.
    pub bytes: u64,
}

/// Puts back, in all files below `dir`, what the journal says was not synced.
pub fn undo(journal: &Path, dir: &Path, loss: Loss, dice: &mut StdRng) -> Result<Lost, Failure> {
    let notes = parse(&std::fs::read(journal)?)?;
    let mut paths = HashMap::new();
    find_files(dir, &mut paths)?;
    let mut lost = Lost::default();
    let mut files: Vec<(&PathBuf, Vec<(u64, &Deed)>)> =
        unsynced(&notes).into_iter().filter_map(|(file, deeds)| Some((paths.get(&file)?, deeds))).collect();
    // The dice must fall the same way whatever numbers the files have.
    files.sort_by_key(|(path, _)| *path);
    for (path, deeds) in files {
        let bytes = undo_file(path, &deeds, loss, dice)?;
        lost.files += usize::from(0 < bytes);
        lost.bytes += bytes;
    }
    Ok(lost)
}

fn find_files(dir: &Path, paths: &mut HashMap<FileId, PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            find_files(&entry.path(), paths)?;
        } else if meta.is_file() {
            paths.insert(FileId { device: meta.dev(), inode: meta.ino() }, entry.path());
        }
    }
    Ok(())
}

/// Reads the journal. A note cut short is the last one, and the deed it speaks of was never done.
fn parse(bytes: &[u8]) -> Result<Vec<Note>, Failure> {
    let mut notes = Vec::new();
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_at_checked(HEAD_WORDS * 8) {
        let mut words = [0; HEAD_WORDS];
        for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        let [kind, device, inode, at, length, old_size, extra] = words;
        let length = usize::try_from(length).map_err(|_| Failure::harness("a note of no length"))?;
        let Some((old, next)) = behind.split_at_checked(length) else { break };
        let old = old.to_vec();
        let deed = match kind {
            1 => Deed::Wrote { at, length: extra, old, old_size },
            2 => Deed::Wrote { at, length: extra, old: Vec::new(), old_size },
            3 => Deed::Resized { size: at, old, old_size },
            4 => Deed::Synced { upto: extra },
            5 => Deed::Gone,
            other => return Err(Failure::harness(format!("the journal holds a note of kind {other}"))),
        };
        notes.push(Note { file: FileId { device, inode }, deed });
        rest = next;
    }
    Ok(notes)
}

/// The deeds that no sync made durable, with their places in the journal, for each file still there.
fn unsynced(notes: &[Note]) -> HashMap<FileId, Vec<(u64, &Deed)>> {
    let mut files: HashMap<FileId, Vec<(u64, &Deed)>> = HashMap::new();
    for (place, note) in (0..).zip(notes) {
        let deeds = files.entry(note.file).or_default();
        match &note.deed {
            Deed::Synced { upto } => deeds.retain(|(place, _)| upto <= place),
            Deed::Gone => deeds.clear(),
            deed => deeds.push((place, deed)),
        }
    }
    files.retain(|_, deeds| !deeds.is_empty());
    files
}

/// Undoes deeds from the last to the first; answers how many bytes that put back or cut off.
fn undo_file(path: &Path, deeds: &[(u64, &Deed)], loss: Loss, dice: &mut StdRng) -> Result<u64, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut reached =
        Reached { loss, places: deeds.iter().map(|(place, _)| *place).collect(), sectors: HashMap::new() };
    // The size reached the disk as of some moment, as each sector did.
    let size_from = reached.draw(dice);
    let mut bytes = 0;
    for (place, deed) in deeds.iter().rev() {
        let size_is_lost = size_from <= *place;
        match deed {
            Deed::Wrote { at, length, old, old_size } => {
                for (from, to) in sectors(*at, at + length) {
                    if reached.from(from / SECTOR, dice) <= *place {
                        file.write_all_at(&piece(old, from - at, to - at), from)?;
                        bytes += to - from;
                    }
                }
                if *old_size < at + length && size_is_lost {
                    file.set_len(*old_size)?;
                }
            }
            Deed::Resized { size, old, old_size } if size_is_lost => {
                file.set_len(*old_size)?;
                file.write_all_at(old, *size)?;
                bytes += old_size.abs_diff(*size);
            }
            Deed::Resized { .. } | Deed::Synced { .. } | Deed::Gone => {}
        }
    }
    file.sync_all()?;
    Ok(bytes)
}

/// What was there before; zeros where nothing was.
fn piece(old: &[u8], from: u64, to: u64) -> Vec<u8> {
    let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(old.len());
    let mut bytes = old[at(from)..at(to)].to_vec();
    bytes.resize(usize::try_from(to - from).unwrap_or(0), 0);
    bytes
}

/// A range cut at the borders of sectors.
fn sectors(from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut at = from;
    while at < to {
        let end = ((at / SECTOR + 1) * SECTOR).min(to);
        pieces.push((at, end));
        at = end;
    }
    pieces
}

/// Which deeds on a sector did not reach the disk: those from some place in the journal on. All deeds
/// on one sector share it, since a sector holds what it held at one moment.
struct Reached {
    loss: Loss,
    places: Vec<u64>,
    sectors: HashMap<u64, u64>,
}

impl Reached {
    fn from(&mut self, sector: u64, dice: &mut StdRng) -> u64 {
        if let Some(from) = self.sectors.get(&sector) {
            return *from;
        }
        let from = self.draw(dice);
        self.sectors.insert(sector, from);
        from
    }

    fn draw(&self, dice: &mut StdRng) -> u64 {
        match self.loss {
            Loss::All => 0,
            Loss::Torn => match dice.random_range(0..4) {
                0 => 0,
                1 => self.places[dice.random_range(0..self.places.len())],
                _ => u64::MAX,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::interpose::{Control, Knob};
    use rand::SeedableRng;
    use std::process::Command;

    const FILE: FileId = FileId { device: 1, inode: 7 };

    fn wrote(at: u64, length: u64) -> Note {
        Note { file: FILE, deed: Deed::Wrote { at, length, old: vec![], old_size: 0 } }
    }

    #[test]
    fn only_what_no_later_sync_covers_is_unsynced() {
        let synced = |upto| Note { file: FILE, deed: Deed::Synced { upto } };
        let gone = Note { file: FILE, deed: Deed::Gone };
        let left = |notes: &[Note]| -> Vec<u64> {
            unsynced(notes)
                .get(&FILE)
                .map(|deeds| deeds.iter().map(|(place, _)| *place).collect())
                .unwrap_or_default()
        };
        assert_eq!(left(&[wrote(0, 5), wrote(5, 5)]), [0, 1]);
        assert_eq!(left(&[wrote(0, 5), wrote(5, 5), synced(1)]), [1], "written while the sync ran");
        assert!(left(&[wrote(0, 5), synced(1)]).is_empty());
        assert!(left(&[wrote(0, 5), gone.clone()]).is_empty());
        assert_eq!(left(&[wrote(0, 5), gone, wrote(0, 5)]), [2]);
    }

    #[test]
    fn a_range_is_cut_at_sectors() {
        assert_eq!(sectors(500, 1_100), [(500, 512), (512, 1_024), (1_024, 1_100)]);
        assert_eq!(sectors(0, 512), [(0, 512)]);
        assert!(sectors(3, 3).is_empty());
        assert_eq!(piece(b"abc", 1, 5), b"bc\0\0");
    }

    /// Writes under the library: first something that is synced, then something that is not.
    fn written() -> (tempfile::TempDir, Control) {
        let data = tempfile::tempdir().expect("a place");
        let control = Control::new(data.path()).expect("the library is made");
        control.set(Knob::Journal, 1).expect("set");
        let file = data.path().join("f").display().to_string();
        let lines = [
            format!("head -c 4096 /dev/zero | tr '\\0' a | dd of={file} bs=4096 conv=fsync"),
            format!("head -c 6144 /dev/zero | tr '\\0' b | dd of={file} bs=2048 seek=1 conv=notrunc"),
        ];
        for line in lines {
            let ended = Command::new("sh").args(["-c", &line]).envs(control.env()).output().expect("a shell");
            assert!(ended.status.success(), "{ended:?}");
        }
        assert_eq!(std::fs::read(&file).expect("a file").len(), 8_192);
        (data, control)
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_is_gone() {
        let (data, control) = written();
        let lost =
            undo(&control.journal(), data.path(), Loss::All, &mut StdRng::seed_from_u64(1)).expect("undone");
        assert_eq!(lost, Lost { files: 1, bytes: 6_144 });
        assert_eq!(std::fs::read(data.path().join("f")).expect("a file"), [b'a'; 4_096]);
    }

    #[test]
    fn a_torn_write_leaves_whole_sectors_of_the_old_and_the_new() {
        let mut mixed = 0;
        for seed in 0..8 {
            let (data, control) = written();
            undo(&control.journal(), data.path(), Loss::Torn, &mut StdRng::seed_from_u64(seed))
                .expect("undone");
            let bytes = std::fs::read(data.path().join("f")).expect("a file");
            assert_eq!(bytes[..2_048], [b'a'; 2_048], "synced, and not written since");
            for sector in bytes.chunks(SECTOR as usize) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is of one moment");
            }
            let kinds: std::collections::BTreeSet<u8> = bytes[2_048..].iter().copied().collect();
            mixed += usize::from(1 < kinds.len());
        }
        assert!(0 < mixed, "some of it is old and some new");
    }
}
