//! Asks, has it judged, and raises the alarm.

use super::CorruptionChecks;
use super::judge::{Said, differing_digests, differing_hashes};
use meerkat_raft::threads::spawn_blocking_part;
use meerkat_raft::{NoAnswer, RaftNode, StoredAnswer, own_digests, own_hash};
use meerkat_types::{Alarm, AlarmBy, AlarmKind, Command, MemberId, Revision};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two comparisons of digests.
const DIGESTS_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether a comparison is due.
const TICK: Duration = Duration::from_millis(200);
/// Before a member that starts asks again, if nobody answers yet.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// For so long a member that starts asks on.
const INITIAL_WITHIN: Duration = Duration::from_secs(30);
/// An alarm's entry is a few numbers.
const ALARM_BYTES_MAX: usize = 1_024;

/// How checks ended, since start. One in which somebody did not answer counts as failed.
#[derive(Default)]
pub(crate) struct CheckCounters {
    pub(crate) passed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) found: AtomicU64,
}

/// What one round came to.
struct Round<T> {
    said: Said<T>,
    /// Who did not answer, and why.
    silent: Vec<(MemberId, String)>,
    members: usize,
}

/// Runs until it is dropped. Only a leader checks.
pub(crate) async fn run(raft: Arc<RaftNode>, checks: CorruptionChecks, counters: Arc<CheckCounters>) {
    let began = Instant::now();
    let (mut digests_at, mut stored_at, mut compaction_at) = (began, began, began);
    let mut compacted = raft.reader().compacted_revision();
    loop {
        tokio::time::sleep(TICK).await;
        if raft.leadership().own_term().is_none() {
            continue;
        }
        if DIGESTS_EVERY <= digests_at.elapsed() {
            digests_at = Instant::now();
            let round = ask_digests(&raft).await;
            let accused = differing_digests(&round.said, round.members);
            conclude(&raft, "digests of the log's effects", round, accused, &counters).await;
        }
        let now_compacted = raft.reader().compacted_revision();
        let after_compaction = compacted != now_compacted
            && checks.after_compaction.is_some_and(|every| every <= compaction_at.elapsed());
        let periodic = checks.every.is_some_and(|every| every <= stored_at.elapsed());
        if after_compaction || periodic {
            let checked = check_stored(&raft, &counters).await;
            tell_of(&checked, periodic, after_compaction);
            (stored_at, compaction_at, compacted) = (Instant::now(), Instant::now(), now_compacted);
        }
    }
}

/// In etcd's words.
fn tell_of(checked: &Checked, periodic: bool, after_compaction: bool) {
    if periodic {
        tracing::info!(number_of_peers_checked = checked.peers, "finished peer corruption check");
    }
    if after_compaction {
        tracing::info!(number_of_hashes_checked = 1, "finished compaction hash check");
    }
}

/// Compares what this member has stored with the others, once, after it has started. Whatever comes of
/// it, the member goes on: the alarm stops changes.
pub(crate) async fn check_initially(raft: Arc<RaftNode>, counters: Arc<CheckCounters>) {
    let began = Instant::now();
    let local_member_id = raft.member_id();
    tracing::info!(%local_member_id, timeout = ?INITIAL_WITHIN, "starting initial corruption check");
    while began.elapsed() < INITIAL_WITHIN {
        if raft.reads().ready_to_read().await.is_ok() {
            let checked = check_stored(&raft, &counters).await;
            if checked.complete && checked.same {
                tracing::info!(%local_member_id, "initial corruption checking passed; no corruption");
            }
            if checked.complete {
                return;
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    tracing::error!("the initial corruption check could not be made: not all members answered");
}

/// What a comparison of stored data came to.
struct Checked {
    /// Other members that answered.
    peers: usize,
    /// All members answered.
    complete: bool,
    /// No member differs from the others.
    same: bool,
}

async fn check_stored(raft: &Arc<RaftNode>, counters: &CheckCounters) -> Checked {
    let round = ask_stored(raft).await;
    let accused = differing_hashes(&round.said, round.members);
    let peers = round.said.keys().filter(|member| **member != raft.member_id()).count();
    let checked = Checked { peers, complete: round.silent.is_empty(), same: accused.is_empty() };
    conclude(raft, "stored data", round, accused, counters).await;
    checked
}

fn members(raft: &RaftNode) -> Vec<MemberId> {
    raft.members().into_iter().map(|peer| peer.id).collect()
}

async fn ask_digests(raft: &Arc<RaftNode>) -> Round<Vec<meerkat_raft::DigestMark>> {
    // Each has its newest mark only while nothing is written, so its own come last.
    let question = |raft: Arc<RaftNode>, member| async move { raft.digests_of(member).await };
    let mut round = ask(raft, question).await;
    round.said.insert(raft.member_id(), own_digests(raft.reader()));
    round
}

async fn ask_stored(raft: &Arc<RaftNode>) -> Round<StoredAnswer> {
    let at: Revision = raft.reader().current_revision();
    let question = move |raft: Arc<RaftNode>, member| async move { raft.stored_hash_of(member, at).await };
    let mut round = ask(raft, question).await;
    let reader = raft.reader().clone();
    match spawn_blocking_part("corruption checks", move || own_hash(&reader, at)).await {
        Ok(own) => drop(round.said.insert(raft.member_id(), own)),
        Err(error) => round.silent.push((raft.member_id(), error.to_string())),
    }
    for (member, answer) in &round.said {
        match answer {
            StoredAnswer::Hash(_) => {}
            // Not comparable is not compared.
            StoredAnswer::NotComparable(reason) => round.silent.push((*member, reason.clone())),
            StoredAnswer::Unreadable(reason) => {
                tracing::error!(%member, reason, "this member cannot read what it has stored");
            }
        }
    }
    round
}

/// Asks every other member.
async fn ask<T, F>(raft: &Arc<RaftNode>, question: impl Fn(Arc<RaftNode>, MemberId) -> F) -> Round<T>
where
    F: Future<Output = Result<T, NoAnswer>>,
{
    let all = members(raft);
    let (mut said, mut silent) = (Said::new(), Vec::new());
    let others: Vec<MemberId> = all.iter().copied().filter(|member| *member != raft.member_id()).collect();
    let answers: Vec<F> = others.iter().map(|member| question(raft.clone(), *member)).collect();
    for (member, answer) in others.into_iter().zip(futures::future::join_all(answers).await) {
        match answer {
            Ok(answer) => drop(said.insert(member, answer)),
            Err(error) => silent.push((member, error.to_string())),
        }
    }
    Round { said, silent, members: all.len() }
}

async fn conclude<T>(
    raft: &RaftNode,
    what: &'static str,
    round: Round<T>,
    accused: Vec<MemberId>,
    counters: &CheckCounters,
) {
    let counter = match (accused.is_empty(), round.silent.is_empty()) {
        (false, _) => &counters.found,
        (true, false) => &counters.failed,
        (true, true) => &counters.passed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    for (member, reason) in &round.silent {
        tracing::debug!(%member, reason, what, "a corruption check failed: this member was not compared");
    }
    for member in accused {
        accuse(raft, member, what).await;
    }
}

async fn accuse(raft: &RaftNode, member: MemberId, what: &'static str) {
    let alarm = Alarm { kind: AlarmKind::Corrupt, member };
    if raft.reader().alarms().iter().any(|(on, _)| *on == alarm) {
        return;
    }
    tracing::error!(%member, what, "this member differs from the others: alarm CORRUPT");
    let command = Command::RaiseAlarm { alarm, by: AlarmBy::Cluster };
    if let Err(error) = raft.proposer().propose(command, ALARM_BYTES_MAX).await {
        tracing::warn!(%error, "the alarm could not be raised; the next check tries again");
    }
}
