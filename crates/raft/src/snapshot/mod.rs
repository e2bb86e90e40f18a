//! Snapshots: a whole state as files, for a member too far behind for the log.
//!
//! `state_dir` owns the directories a state can live in and which of them counts; `transfer`
//! carries one to a peer and receives one from it. A snapshot to send is a checkpoint made for
//! that transfer and removed after it: the flushed state is snapshot enough for purging the log.

pub(crate) mod pins;
pub(crate) mod state_dir;
pub(crate) mod transfer;

use pins::{Delivery, Pin};
use std::path::{Path, PathBuf};

/// What openraft passes around as the content of a snapshot.
pub struct StateSnapshot(Content);

enum Content {
    /// Only described by its metadata: the state as it was last flushed, in place. What openraft
    /// is shown at start and after a flush; never sent.
    InPlace,
    /// A directory of files, removed with this value unless it was taken over by an install.
    Files { dir: PathBuf, pin: Option<Pin> },
}

impl StateSnapshot {
    pub(crate) fn in_place() -> StateSnapshot {
        StateSnapshot(Content::InPlace)
    }

    /// `pin` keeps the log that continues this snapshot from being purged while it is sent.
    pub(crate) fn files(dir: PathBuf, pin: Option<Pin>) -> StateSnapshot {
        StateSnapshot(Content::Files { dir, pin })
    }

    /// Where to say that the snapshot arrived.
    pub(crate) fn delivery(&self) -> Delivery {
        match &self.0 {
            Content::Files { pin: Some(pin), .. } => pin.delivery(),
            Content::Files { pin: None, .. } | Content::InPlace => Delivery::default(),
        }
    }

    pub(crate) fn dir(&self) -> Option<&Path> {
        match &self.0 {
            Content::InPlace => None,
            Content::Files { dir, .. } => Some(dir),
        }
    }
}

impl Drop for StateSnapshot {
    fn drop(&mut self) {
        let Content::Files { dir, .. } = &self.0 else { return };
        // An install renames the directory away first; then there is nothing left to remove.
        if let Err(error) = std::fs::remove_dir_all(dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %dir.display(), %error, "a snapshot's files could not be removed");
        }
    }
}
