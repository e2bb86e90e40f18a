//! What a member does for its clients, whatever they speak. The gRPC services, through them the JSON gateway,
//! and the list-watch door are faces of this, and one set of limits holds for all of them.
//!
//! No word of gRPC is said here: errors are values, and each face has its own words for them.

mod propose;
mod read;

pub(crate) use propose::{By, WriteError};
pub(crate) use read::{INLINE_KEYS_MAX, ReadFailure};

use crate::auth::Guard;
use crate::config::Config;
use crate::space::Quota;
use meerkat_raft::RaftNode;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Clones are the same member.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) raft: Arc<RaftNode>,
    pub(crate) guard: Guard,
    quota: Quota,
    turns: Arc<Semaphore>,
    pub(crate) max_request_bytes: usize,
    lease_ttl_seconds_min: i64,
}

impl Member {
    pub(crate) fn new(raft: Arc<RaftNode>, guard: Guard, config: &Config) -> Member {
        Member {
            quota: Quota::new(raft.clone(), config),
            turns: read::turns(),
            raft,
            guard,
            max_request_bytes: config.max_request_bytes,
            lease_ttl_seconds_min: propose::lease_ttl_seconds_min(config),
        }
    }
}
