//! The end of every run under faults: let the members come together, then judge.

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
    let found = verdicts(&members_of(cluster), product, history, started_at).await?;
    found.into_iter().try_for_each(Verdict::held)
}

/// The same as verdicts. Every member is asked for everything: a lost write on one follower must not hide.
pub async fn verdicts(
    members: &Members,
    product: Product,
    history: &History,
    started_at: i64,
) -> Result<Vec<Verdict>, Failure> {
    let mut found: Vec<Verdict> = Vec::new();
    for (name, endpoint) in members {
        let state = unique::final_state(endpoint, started_at).await?;
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
    found.push(agreement(members, product).await?);
    Ok(found)
}

/// Waits until all members are at one log index, then compares hashes and digests.
pub async fn agree(cluster: &Cluster, product: Product) -> Result<(), Failure> {
    agreement(&members_of(cluster), product).await?.held()
}
