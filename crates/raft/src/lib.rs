//! Agreement: openraft, given a log, a state machine, a network and snapshots.
//!
//! ```text
//!  propose ──► RaftCore task ──► log_store (flush thread) ──► disk
//!     ▲            │   ▲
//!     │            │   └────── network/service ◄── peers
//!     │            ├──► replication tasks ──► network/client ──► peers
//!     │            ▼
//!     └── state_machine (apply thread) ──► state, readers, events
//! ```
//!
//! Promises: an outcome is only ever told after the command is durable on a majority and applied
//! here; a linearizable read sees every write acknowledged before it; what is acknowledged
//! survives the loss of any minority. Only this crate names openraft.

mod agreement;
mod bootstrap;
mod check_quorum;
mod compaction;
mod confirm;
mod defragment;
mod entry;
mod forced;
mod histogram;
#[cfg(test)]
mod hostile;
pub mod identity;
mod joining;
mod leadership;
mod lessor;
mod log_keeper;
pub mod log_store;
mod measured;
mod membership;
mod network;
mod node;
mod presence;
mod propose;
mod read_index;
mod restore;
mod runtime;
mod snapshot;
mod state_machine;
pub mod tasks;
pub mod threads;
mod timeout_cause;
pub mod type_config;
mod waiters;

pub use agreement::{DigestMark, NoAnswer, StoredAnswer, own_digests, own_hash};
pub use bootstrap::has_begun;
pub use compaction::CompactionPace;
pub use histogram::Histogram;
pub use joining::{JoinError, Place, find_place};
pub use leadership::{Leadership, Peer};
pub use lessor::{LeaderLeases, LeaseRest, Lessor, LessorError, Renewal};
pub use log_keeper::LogPolicy;
pub use log_store::{LogOptions, LogStats};
pub use measured::{CompactionTimes, PeerTraffic, PeerView, SnapshotSyncs, StateTimes};
pub use membership::{ChangeError, ChangeRefusal, MemberChange, MemberChanges, Rules};
pub use network::link::{Dialer, PeerStream};
pub use node::{Ground, InitialNames, MoveError, NodeOptions, RaftNode, RaftStatus, StartError};
pub use propose::{ProposeError, Proposer};
pub use read_index::{Confirmed, ReadIndexError, ReadIndexer};
pub use restore::{NewMember, Restore, RestoreError};
pub use state_machine::{AppliedIndex, EventSink};
pub use timeout_cause::TimeoutCause;
