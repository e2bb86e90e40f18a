//! Why a watch ended.

use crate::Error;
use meerkat_types::Revision;

/// The last item of a watch that did not end by being dropped.
///
/// Lost connections, dead or leaderless members, expired tokens and slow readers are no errors: the
/// watch goes on by itself. What is left are things that only the application can decide.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Some of the history that was still owed has been compacted, so revisions may be missing.
    #[error(
        "revision {next} is compacted, the oldest there is is {oldest}: list the keys again, \
         then watch from the revision of the list + 1"
    )]
    Compacted {
        /// The oldest revision that can still be watched.
        oldest: Revision,
        /// The revision that was owed. Everything below it was delivered.
        next: Revision,
    },
    /// A member refused the watch, and every other one would.
    #[error("the watch was refused: {0}")]
    Refused(#[source] Error),
    /// The runtime the client was connected on is shutting down.
    #[error("the client's runtime is gone: connect and watch again from the last revision + 1")]
    Closed,
}
