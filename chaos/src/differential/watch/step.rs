//! One step of a run.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::WatchCreateRequest;

use crate::differential::request::Request;

/// Something done to both clusters. Members and streams are named by number.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A write or a compaction, through one member.
    Change {
        /// Which member.
        member: usize,
        /// What.
        request: Request,
    },
    /// One more stream.
    Open {
        /// To which member.
        member: usize,
        /// Whether it asks to be ended when there is no leader.
        requires_leader: bool,
    },
    /// The client goes.
    Close {
        /// Which stream.
        stream: usize,
    },
    /// The client says that it will ask for nothing more.
    HalfClose {
        /// Which stream.
        stream: usize,
    },
    /// A new watcher.
    Create {
        /// On which stream.
        stream: usize,
        /// What to watch.
        request: WatchCreateRequest,
    },
    /// An end for a watcher, which may not exist.
    Cancel {
        /// On which stream.
        stream: usize,
        /// Which.
        id: i64,
    },
    /// Asks for progress.
    Progress {
        /// On which stream.
        stream: usize,
    },
    /// A message that is no request.
    Nonsense {
        /// On which stream.
        stream: usize,
        /// Its bytes.
        message: Bytes,
    },
    /// Everything owed is awaited, and compared.
    Compare,
}
