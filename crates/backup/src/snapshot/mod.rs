//! What etcd keeps in which bucket, and the checksum behind it all.
//!
//! | bucket | key | value |
//! |---|---|---|
//! | `key` | revision, `_`, sub (8 bytes each, big endian), `t` for a deletion | protobuf KeyValue; of a deletion only the key |
//! | `lease` | id (8 bytes, big endian) | protobuf Lease: id, seconds to live, seconds left |
//! | `meta` | `finishedCompactRev`, `scheduledCompactRev` | a revision as in `key` |
//! | `meta` | `storageVersion` | the version of the layout as text, since etcd 3.6 |
//! | `auth`, `authUsers`, `authRoles`, `alarm` | | users, roles, permissions and alarms, see `other_rows` |
//! | `members`, `members_removed`, `cluster` | | of the cluster that was saved: a restore makes them anew |
//!
//! The 32 bytes behind the last page are the SHA-256 of all before them. A database is a multiple of
//! 512 bytes, so a file that is 32 bytes longer than one has its checksum.

mod checksum;
mod file;
mod other_rows;
mod protobuf;
mod rows;
mod status;
mod write;

pub use checksum::{CHECKSUM_BYTES, Checksum};
pub use file::{Events, HashCheck, SnapshotError, SnapshotFile};
pub use other_rows::{AlarmKind, AlarmRow, OtherRows, PermissionKind, PermissionRow, RoleRow, UserRow};
pub use rows::{Change, KeyValue, LeaseRow, Row, StoredEvent};
pub use status::SnapshotStatus;
pub use write::{Head, KeyRows, write};
