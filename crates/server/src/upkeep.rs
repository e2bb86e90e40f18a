//! The tasks that look after space, memory, history and sameness, and what they count.

use crate::auto_compaction;
use crate::config::Config;
use crate::corruption::{self, CheckCounters};
use crate::memory::{self, Pressure};
use crate::space;
use meerkat_raft::RaftNode;
use std::sync::Arc;
use tokio::task::JoinSet;

#[derive(Clone, Default)]
pub(crate) struct Upkeep {
    pub(crate) checks: Arc<CheckCounters>,
    pub(crate) pressure: Arc<Pressure>,
}

impl Upkeep {
    /// The tasks end when dropped, and never by themselves.
    pub(crate) fn start(tasks: &mut JoinSet<()>, raft: &Arc<RaftNode>, config: &Arc<Config>) -> Upkeep {
        let upkeep = Upkeep::default();
        tasks.spawn(memory::watch(upkeep.pressure.clone(), config.tuning.memory_limit_bytes));
        tasks.spawn(space::keep(raft.clone(), config.clone()));
        if let Some(kept) = config.auto_compaction {
            tasks.spawn(auto_compaction::run(raft.clone(), kept));
        }
        tasks.spawn(corruption::run(raft.clone(), config.corruption_checks, upkeep.checks.clone()));
        if config.corruption_checks.initially {
            let (raft, checks) = (raft.clone(), upkeep.checks.clone());
            tasks.spawn(async move {
                corruption::check_initially(raft, checks).await;
                std::future::pending().await
            });
        }
        upkeep
    }
}
