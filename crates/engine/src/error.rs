//! What can go wrong with a disk, by what the caller can do about it.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The directory cannot be used as it is. Nothing was changed in it.
    #[error("cannot open the database in {path}: {reason}. {next_step}")]
    Open { path: PathBuf, reason: String, next_step: &'static str },
    /// A read met a damaged or unreadable file. Other reads may still work.
    #[error("cannot read the database in {path}: {reason}")]
    Read { path: PathBuf, reason: String },
    /// A write or flush failed. What is on disk is unchanged and whole; stop the process and let a
    /// restart replay the log.
    #[error("cannot write the database in {path}: {reason}")]
    Write { path: PathBuf, reason: String },
    /// An earlier write or flush failed. Nothing is written any more.
    #[error("the database in {path} takes no more writes since: {reason}. Fix the disk and restart")]
    Poisoned { path: PathBuf, reason: String },
}
