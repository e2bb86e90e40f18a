//! The vocabulary: names for everything the other crates talk about, and nothing that acts.
//!
//! Reading order: [`Revision`], [`Key`], [`KeyRange`], [`KeyValue`], [`Event`], then what a client
//! can ask ([`RangeQuery`], [`HistoryQuery`], [`Put`], [`DeleteRange`], [`Txn`], [`Compact`],
//! [`WatchRequest`]), what the cluster can
//! agree on ([`Command`]) and what comes back ([`Outcome`], [`Refusal`]).
//!
//! Nothing here is serializable, on purpose: the wire's shape lives in `proto`, the log's in
//! `raft::entry`, the disk's in `state::mvcc::record`, so that each keeps its own promise.

mod alarm;
mod auth;
mod command;
mod event;
mod history;
mod key;
mod key_range;
mod key_value;
mod lease;
pub mod limits;
mod log_position;
mod member;
mod outcome;
mod range;
mod revision;
mod txn;
mod watch;

pub use alarm::{Alarm, AlarmBy, AlarmKind};
pub use auth::{
    Access, Asker, AssignedToken, AuthCommand, AuthDone, AuthRefusal, AuthRevision, Password, Permission,
    PermissionKind, ROOT_ROLE, ROOT_USER, RoleName, TokenDigest, UserName, Way,
};
pub use command::{
    Command, Compact, DeleteRange, GrantLease, LeaseNote, MemberAttributes, NewLease, NewValue, Proposal,
    Put, RequestId,
};
pub use event::{Event, EventBatch, EventKind};
pub use history::{HistoryAnswer, HistoryQuery};
pub use key::Key;
pub use key_range::KeyRange;
pub use key_value::KeyValue;
pub use lease::{Lease, LeaseId, LeaseTtl};
pub use log_position::{LogIndex, LogPosition, Term};
pub use member::{ClusterId, MemberId};
pub use outcome::{Deleted, LeaseGranted, Outcome, PutDone, Refusal, TxnDone};
pub use range::{Consistency, KvPage, RangeAnswer, RangeQuery, RevisionBounds, Sort, SortOrder, SortTarget};
pub use revision::Revision;
pub use txn::{Compare, CompareOperator, CompareTarget, Txn, TxnOp, TxnOpDone};
pub use watch::{Filter, WatchId, WatchRequest, WatchStart};
