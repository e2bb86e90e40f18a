//! A watch as its members tell it, response by response: for tools that show what servers say.

use super::mailbox::Mailbox;
use super::{Watch, WatchError, wire};
use futures::future::poll_fn;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_types::{Event, MemberId, Revision};
use std::sync::Arc;

/// Who answered, and how far it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: MemberId,
    /// Its newest revision.
    pub revision: Revision,
    /// Its Raft term.
    pub raft_term: u64,
}

/// What a member said in one response. Without events and without an end it is a progress mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchResponse {
    /// `None` for a watch that no member created.
    pub header: Option<ResponseHeader>,
    /// Events of one revision or several, in order.
    pub events: Vec<Event>,
    /// The member has ended the watch.
    pub canceled: Option<WatchCanceled>,
}

/// Why a member ended a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCanceled {
    /// In the member's words; they may be empty.
    pub reason: String,
    /// The oldest revision that can be watched, if the watch needed an older one.
    pub compact_revision: Option<Revision>,
}

impl ResponseHeader {
    pub(crate) fn of(response: &pb::WatchResponse) -> ResponseHeader {
        let header = response.header.unwrap_or_default();
        ResponseHeader {
            cluster_id: header.cluster_id,
            member_id: MemberId(header.member_id),
            revision: Revision::new(header.revision),
            raft_term: header.raft_term,
        }
    }
}

impl WatchResponse {
    /// The end of a watch.
    pub(crate) fn canceled(response: &pb::WatchResponse) -> WatchResponse {
        let oldest = response.compact_revision;
        WatchResponse {
            header: (!response.created).then(|| ResponseHeader::of(response)),
            events: Vec::new(),
            canceled: Some(WatchCanceled {
                reason: response.cancel_reason.clone(),
                compact_revision: wire::is_revision(oldest).then(|| Revision::new(oldest)),
            }),
        }
    }
}

/// A running watch that yields responses. It resumes like any other [`Watch`], tells each event once, and
/// keeps the events of one revision together.
#[must_use = "a watch that is dropped is cancelled"]
#[derive(Debug)]
pub struct WatchResponses {
    watch: Watch,
    /// A response of which more may come.
    begun: Option<WatchResponse>,
}

impl WatchResponses {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> WatchResponses {
        WatchResponses { watch: Watch { mailbox }, begun: None }
    }

    /// The next response; `None` when the watch is over. A member that ends the watch says so in a
    /// response, and the error follows. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Option<Result<WatchResponse, WatchError>> {
        poll_fn(|context| self.watch.mailbox.poll_response(&mut self.begun, context)).await
    }

    /// The watch itself, for its status and to hurry it. What it is told is to be read from here alone.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}
