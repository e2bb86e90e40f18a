//! Which directory holds the state.
//!
//! `state/CURRENT` names one of its sibling directories; the file is replaced by an atomic rename,
//! so a crash at any moment leaves the old state or the new one, whole. Everything else in the
//! directory is a leftover and is removed at start.

use crate::identity::{sync_dir, write_durably};
use meerkat_fault as fault;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const CURRENT: &str = "CURRENT";

#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Finds or makes the state of `member_dir`, and clears away what a crash left behind.
    pub(crate) fn open(member_dir: &Path) -> io::Result<StateDir> {
        let dir = StateDir { root: member_dir.join("state") };
        fs::create_dir_all(&dir.root)?;
        sync_dir(member_dir)?;
        if !dir.root.join(CURRENT).exists() {
            dir.refuse_unless_empty()?;
            write_durably(&dir.root, CURRENT, b"1")?;
        }
        dir.remove_leftovers()?;
        Ok(dir)
    }

    /// Where the state is now.
    pub(crate) fn current(&self) -> io::Result<PathBuf> {
        Ok(self.root.join(self.current_number()?.to_string()))
    }

    /// A path for a new state or checkpoint, not yet there and not yet current. `purpose` keeps
    /// concurrent ones apart and tells a reader of the directory what it is.
    pub(crate) fn scratch(&self, purpose: &str) -> PathBuf {
        let tag: u64 = rand::random();
        self.root.join(format!("{purpose}-{tag:016x}"))
    }

    /// Makes the files in `incoming`, already synced, the state. Returns where they are then. The
    /// replaced state stays until `remove_replaced`.
    pub(crate) fn replace_with(&self, incoming: &Path) -> io::Result<PathBuf> {
        let next = self.current_number()? + 1;
        let target = self.root.join(next.to_string());
        fs::rename(incoming, &target)?;
        sync_dir(&self.root)?;
        fault::point("before_snapshot_rename")?;
        write_durably(&self.root, CURRENT, next.to_string().as_bytes())?;
        fault::point("after_snapshot_rename")?;
        Ok(target)
    }

    /// Removes a state that is no longer current. Its readers may still have files open; only the
    /// names go.
    pub(crate) fn remove_replaced(&self, old: &Path) {
        if let Err(error) = fs::remove_dir_all(old) {
            tracing::warn!(dir = %old.display(), %error, "the replaced state could not be removed; the next start will");
        }
    }

    fn refuse_unless_empty(&self) -> io::Result<()> {
        if fs::read_dir(&self.root)?.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir())) {
            let text = format!(
                "{} has states but no CURRENT; restore the data directory from a backup",
                self.root.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }

    fn current_number(&self) -> io::Result<u64> {
        let path = self.root.join(CURRENT);
        let text = fs::read_to_string(&path)?;
        text.trim().parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} does not name a state; restore the data directory from a backup", path.display()),
            )
        })
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        let current = self.current()?;
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path == current || path.file_name().is_some_and(|name| name == CURRENT) {
                continue;
            }
            tracing::info!(path = %path.display(), "removing what an interrupted snapshot left behind");
            if path.is_dir() {
                fs::remove_dir_all(&path)?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_state_is_current_and_leftovers_go_at_the_next_start() {
        let member = tempfile::tempdir().expect("temp dir");
        let dir = StateDir::open(member.path()).expect("opens");
        let first = dir.current().expect("current");
        fs::create_dir(&first).expect("creates");
        let incoming = dir.scratch("incoming");
        fs::create_dir(&incoming).expect("creates");
        fs::write(incoming.join("data"), b"new").expect("writes");
        let second = dir.replace_with(&incoming).expect("replaces");
        assert_eq!(dir.current().expect("current"), second);
        dir.remove_replaced(&first);
        assert!(!first.exists());
        fs::create_dir(dir.scratch("incoming")).expect("creates");
        let reopened = StateDir::open(member.path()).expect("opens");
        assert_eq!(fs::read(reopened.current().expect("current").join("data")).expect("reads"), b"new");
        assert_eq!(fs::read_dir(member.path().join("state")).expect("lists").count(), 2);
    }

    #[test]
    fn states_without_current_are_not_thrown_away() {
        let member = tempfile::tempdir().expect("temp dir");
        let dir = StateDir::open(member.path()).expect("opens");
        fs::create_dir(dir.current().expect("current")).expect("creates");
        fs::remove_file(member.path().join("state/CURRENT")).expect("removes");
        assert!(StateDir::open(member.path()).is_err());
        assert!(member.path().join("state/1").exists());
    }

    #[test]
    fn a_crash_before_the_rename_keeps_the_old_state() {
        let member = tempfile::tempdir().expect("temp dir");
        let dir = StateDir::open(member.path()).expect("opens");
        fs::create_dir(dir.current().expect("current")).expect("creates");
        // As `replace_with` leaves it when it stops before CURRENT is replaced.
        fs::create_dir(member.path().join("state/2")).expect("creates");
        let reopened = StateDir::open(member.path()).expect("opens");
        assert!(reopened.current().expect("current").ends_with("1"));
        assert!(!member.path().join("state/2").exists());
    }
}
