//! What stops the machine, and what a reader is told.

use meerkat_engine::EngineError;
use meerkat_types::Refusal;
use std::path::PathBuf;

/// The member cannot go on with this database. Never an answer to a client.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A durable step failed, outside the database or by an armed fault point.
    #[error("a durable step failed: {0}")]
    Io(#[from] std::io::Error),
    /// A row does not read as what it should be.
    #[error(
        "a {row} row of the database is damaged; move the data directory away and let this member catch up from the others"
    )]
    Damaged { row: &'static str },
    #[error(
        "the database in {path} has format {found}, and this release knows up to {known}: start the release that wrote it"
    )]
    NewerFormat { path: PathBuf, found: u64, known: u64 },
    #[error(
        "the database in {path} has format {found} of a version before the first release, and this one reads format {known} only: begin with an empty data directory, or start the version that wrote it"
    )]
    OlderFormat { path: PathBuf, found: u64, known: u64 },
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The question cannot be answered, here or anywhere: tell the client.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This member's disk failed the reader; another member may answer.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<EngineError> for ReadError {
    fn from(error: EngineError) -> ReadError {
        ReadError::State(StateError::Engine(error))
    }
}

pub(crate) const fn damaged(row: &'static str) -> StateError {
    StateError::Damaged { row }
}
