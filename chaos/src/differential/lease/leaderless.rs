//! What the Lease service says when the majority is gone: the last act of a run, since it ends the
//! clusters.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::LeaseGrantRequest;

use super::answer::LeaseAnswer;
use super::coverage;
use super::step::{Ask, Step};
use super::world::World;
use crate::Failure;
use crate::differential::engine::Both;

const NO_LEADER: &str = "etcdserver: no leader";
/// A lease that no other step uses.
const LEASE: i64 = 700;
/// Until the member that is left knows that nobody leads: several election time-outs.
const BEREAVED: Duration = Duration::from_secs(15);

/// Kills all members but the first on both, and compares what that one answers.
pub async fn compare(both: &mut Both<World>) -> Result<(), Failure> {
    let grant = Ask::Grant(LeaseGrantRequest { ttl: 3_600, id: LEASE });
    both.take(&Step::Ask { member: 0, ask: grant }).await?;
    both.etcd.members.bereave()?;
    both.other.members.bereave()?;
    tokio::time::sleep(BEREAVED).await;
    let told = both.ask_without_leader(LEASE).await?;
    let refusal = |answer: &LeaseAnswer| matches!(answer, LeaseAnswer::Refused(_, text) if text == NO_LEADER);
    // The list is each member's own, so that needs no leader; the rest does.
    match told.as_slice() {
        [time_to_live, renewal, LeaseAnswer::Leases(_)] if refusal(time_to_live) && refusal(renewal) => {
            both.coverage.count(coverage::NO_LEADER, true);
            Ok(())
        }
        other => Err(Failure::harness(format!("etcd has not done what it is known for: {other:?}"))),
    }
}
