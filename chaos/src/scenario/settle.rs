//! The end of every run under faults: let the members come together, then judge.

use crate::Failure;
use crate::checker;
use crate::driver::{Cluster, Product};
use crate::endpoint::Endpoint;
use crate::record::history::History;
use crate::run::settle::differences;
use crate::workload::unique;

/// Judges the whole run: the history against what each member holds, and the members against each
/// other. Expects every member running and nobody writing.
pub async fn judge(
    cluster: &Cluster,
    product: Product,
    history: &History,
    started_at: i64,
) -> Result<(), Failure> {
    for member in cluster.members() {
        // Every member is asked for everything: a lost write on one follower must not hide.
        let state = unique::final_state(member.endpoint(), started_at).await?;
        checker::check_all(history, &state)
            .map_err(|failure| failure.during(&format!("as {} has it", member.name())))?;
    }
    agree(cluster, product).await
}

/// Waits until all members are at one log index, then compares hashes and digests.
pub async fn agree(cluster: &Cluster, product: Product) -> Result<(), Failure> {
    let members: Vec<(String, Endpoint)> = cluster
        .members()
        .iter()
        .map(|member| (member.name().to_owned(), member.endpoint().clone()))
        .collect();
    Failure::from_findings("members agree", differences(&members, product).await?)
}
