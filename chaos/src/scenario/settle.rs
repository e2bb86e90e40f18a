//! The end of every run under faults: let the members come together, then judge.

use futures::future::join_all;

use super::account::{Members, members_of};
use crate::Failure;
use crate::checker;
use crate::driver::{Cluster, Product};
use crate::record::Verdict;
use crate::record::history::History;
use crate::run::settle::agreement;
use crate::workload::unique;

/// Judges the whole run: the history against what each member holds, and the members against each
/// other. Expects every member running and nobody writing.
pub async fn judge(
    cluster: &Cluster,
    product: Product,
    history: &History,
    started_at: i64,
) -> Result<(), Failure> {
    let (found, ended) = verdicts(&members_of(cluster), product, history, started_at).await;
    found.into_iter().try_for_each(Verdict::held)?;
    ended
}

/// The same as verdicts, and how the asking ended. Every member is asked for everything: a lost write on one
/// follower must not hide, nor behind one that does not answer.
pub async fn verdicts(
    members: &Members,
    product: Product,
    history: &History,
    started_at: i64,
) -> (Vec<Verdict>, Result<(), Failure>) {
    let mut found: Vec<Verdict> = Vec::new();
    let mut ended = Ok(());
    let states = members.iter().map(|(_, endpoint)| unique::final_state(endpoint, started_at));
    for ((name, _), state) in members.iter().zip(join_all(states).await) {
        let state = match state {
            Ok(state) => state,
            Err(failure) => {
                ended = Err(failure.during(name));
                continue;
            }
        };
        for verdict in checker::verdicts(history, &state) {
            let findings = verdict.findings.iter().map(|finding| format!("as {name} has it, {finding}"));
            match found.iter_mut().find(|earlier| earlier.promise == verdict.promise) {
                Some(earlier) => {
                    earlier.judged += verdict.judged;
                    earlier.findings.extend(findings);
                }
                None => found.push(Verdict { findings: findings.collect(), ..verdict.clone() }),
            }
        }
    }
    // One that cannot be read cannot be compared.
    if ended.is_ok() {
        match agreement(members, product).await {
            Ok(verdict) => found.push(verdict),
            Err(failure) => ended = Err(failure),
        }
    }
    (found, ended)
}

/// Waits until all members are at one log index, then compares hashes and digests.
pub async fn agree(cluster: &Cluster, product: Product) -> Result<(), Failure> {
    agreement(&members_of(cluster), product).await?.held()
}
