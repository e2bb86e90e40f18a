//! Tells the cluster under which name this member runs and where clients reach it.
//!
//! Until that is agreed, `member list` shows the member as not started. A member whose data
//! directory is not the one the cluster knows is told so here, and must stop.

use meerkat_raft::{ProposeError, RaftNode};
use meerkat_types::{Command, MemberAttributes, Outcome, Refusal, limits};
use std::sync::Arc;
use std::time::Duration;

const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Proposes until it is agreed; ends with an error only when the cluster refuses this member.
pub(crate) async fn publish(raft: Arc<RaftNode>, client_urls: Vec<String>) -> Result<(), Refusal> {
    let attributes = MemberAttributes {
        member: raft.member_id(),
        name: raft.identity().name.clone(),
        client_urls,
        incarnation: raft.identity().incarnation,
    };
    loop {
        if raft.reader().members().contains(&attributes) {
            return Ok(());
        }
        let command = Command::PublishMember(attributes.clone());
        match raft.proposer().propose(command, limits::REQUEST_BYTES_MAX).await {
            Ok(Outcome::Refused(refusal)) => return Err(refusal),
            Ok(_) => {
                tracing::info!(name = attributes.name, "published local member to cluster through raft");
                return Ok(());
            }
            Err(ProposeError::Stopped) => return Ok(()),
            Err(error) => tracing::warn!(%error, "failed to publish local member to cluster through raft"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
