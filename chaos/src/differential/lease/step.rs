//! One step of a run.

use meerkat_proto::pb::etcdserver::LeaseGrantRequest;

use crate::differential::request::Request;

/// Something done to both clusters. Members and streams are named by number, leases as in `names`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A request of the Lease service that has one answer.
    Ask {
        /// Through which member.
        member: usize,
        /// What.
        ask: Ask,
    },
    /// A request of the KV service.
    Kv {
        /// Through which member.
        member: usize,
        /// What.
        request: Request,
    },
    /// One more keep-alive stream.
    Open {
        /// To which member.
        member: usize,
    },
    /// Renewals, sent at once; their answers must come in this order.
    Renew {
        /// On which stream.
        stream: usize,
        /// Which leases; some may not exist.
        leases: Vec<i64>,
    },
    /// The client will ask for nothing more; the stream must end well.
    HalfClose {
        /// Which stream.
        stream: usize,
    },
    /// The client goes.
    Close {
        /// Which stream.
        stream: usize,
    },
}

/// A request of the Lease service that has one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ask {
    /// LeaseGrant.
    Grant(LeaseGrantRequest),
    /// LeaseRevoke.
    Revoke(i64),
    /// LeaseTimeToLive.
    TimeToLive {
        /// Which lease.
        lease: i64,
        /// Whether its keys are wanted.
        keys: bool,
    },
    /// LeaseLeases.
    Leases,
}
