//! The tasks that look after space, memory, history and sameness, and what they count.

use crate::auto_compaction;
use crate::config::Config;
use crate::corruption::{self, CheckCounters};
use crate::memory::{self, Pressure};
use crate::space;
use meerkat_raft::RaftNode;
use meerkat_raft::tasks::{Tasks, spawn_brief};
use std::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct Upkeep {
    pub(crate) checks: Arc<CheckCounters>,
    pub(crate) pressure: Arc<Pressure>,
}

impl Upkeep {
    pub(crate) fn start(tasks: &Tasks, raft: &Arc<RaftNode>, config: &Arc<Config>) -> Upkeep {
        let upkeep = Upkeep::default();
        tasks.spawn("memory", memory::watch(upkeep.pressure.clone(), config.tuning.memory_limit_bytes));
        tasks.spawn("space", space::keep(raft.clone(), config.clone()));
        if let Some(kept) = config.auto_compaction {
            tasks.spawn("auto-compaction", auto_compaction::run(raft.clone(), kept));
        }
        let checking = corruption::run(raft.clone(), config.corruption_checks, upkeep.checks.clone());
        tasks.spawn("corruption checks", checking);
        if let Some(worth) = config.bootstrap_defrag_bytes {
            let raft = raft.clone();
            spawn_brief(async move { space::defragment_if_worth_it(&raft, worth.get()).await });
        }
        if config.corruption_checks.initially {
            let (raft, checks) = (raft.clone(), upkeep.checks.clone());
            tasks.spawn("initial check", async move {
                corruption::check_initially(raft, checks).await;
                std::future::pending().await
            });
        }
        upkeep
    }
}
