//! What is looked at all the time while a run goes on: who leads, and what each process holds.

use std::time::Duration;

use futures::future::join_all;
use meerkat_proto::pb::etcdserver::StatusResponse;
use tokio::task::JoinHandle;

use crate::endpoint::Roster;
use crate::ground::{self, Ground};
use crate::nemesis::sight;
use crate::record::Trace;

/// Twice in a heartbeat would be no more exact: a new leader is known only when it answers.
const LEADER_EVERY: Duration = Duration::from_millis(200);
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// Looks who leads, until it is dropped.
#[derive(Debug)]
pub struct Lookout(JoinHandle<()>);

impl Lookout {
    /// Begins. Must be called on a runtime.
    pub fn start(roster: Roster, trace: Trace) -> Self {
        Self(tokio::spawn(look(roster, trace)))
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn look(roster: Roster, trace: Trace) {
    let mut clock = tokio::time::interval(LEADER_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let asked = roster.all().into_iter().map(|contact| async move {
            Some((contact.member, contact.endpoint.status(ANSWER_WITHIN).await.ok()?))
        });
        let statuses: Vec<(usize, StatusResponse)> = join_all(asked).await.into_iter().flatten().collect();
        let term = statuses.iter().map(|(_, status)| status.raft_term).max().unwrap_or(0);
        let leader = sight::leader_among(&statuses);
        // One that says it leads in an old term is news only as long as nobody knows of a newer.
        let leader = leader.filter(|leader| {
            statuses.iter().any(|(member, status)| member == leader && status.raft_term == term)
        });
        trace.leads(leader, term);
    }
}

/// What each member's process holds now.
pub fn usage(ground: &dyn Ground, trace: &Trace) {
    for member in ground::enlisted(ground) {
        if let Some(usage) = ground.usage(member) {
            trace.held(member, usage.rss_bytes, usage.open_files, usage.pid);
        }
    }
}
