//! The replicated state machine: same commands in, same bytes and answers out, on every member.
//!
//! For: applying the agreed log to an MVCC store, and reading from it, now or at an older revision.
//!
//! Always true:
//! * What [`Machine::apply`] does depends on the log alone: no clock, no randomness, no hash order,
//!   no size of a file, and not on how the log is cut into batches.
//! * Data, revision, applied position, membership and digest change in one engine batch, so what a
//!   crash leaves is the state after some entry, whole.
//! * Readers use an immutable [`Pinned`] point and never wait for apply.
//!
//! A caller must never apply entries out of order, and never let two machines write one database.

mod alarm;
mod applied;
mod apply;
mod auth;
mod digest;
mod error;
mod import;
mod lease;
mod machine;
mod member_row;
mod mvcc;
mod reader;
mod schema;
mod txn;

pub use applied::{Applied, LeaseChange, LogEntry, Payload};
pub use auth::{AuthBook, Need, User, needs, needs_of_txn};
pub use digest::{DIGEST_MARK_ENTRIES, DIGEST_VERSION, Digest};
pub use error::{ReadError, StateError};
pub use import::{Import, ImportEnd, ImportError, ImportedEvent, ImportedVersion};
pub use machine::Machine;
pub use mvcc::compaction::{Compactor, Progress};
pub use mvcc::export::ExportedEvent;
pub use mvcc::hash::{HashKv, StoredHash};
#[doc(hidden)]
pub use mvcc::past::ReadStrategy;
pub use mvcc::times::{KeyTime, KeyTimes, RevisionAtTime};
pub use reader::{Pages, Pinned, StateReader};
pub use schema::{
    FORMAT_VERSION, SnapshotInfo, local_get, local_put, persisted_applied, persisted_info, snapshot_info,
    snapshot_info_at,
};
