//! The end of every run under faults: let the members come together, then judge.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::checker;
use crate::checker::agreement::{self, View};
use crate::driver::{Cluster, Product};
use crate::history::History;
use crate::outcome::describe;
use crate::workload::unique;

const SETTLE_WITHIN: Duration = Duration::from_secs(30);
const ASK_WITHIN: Duration = Duration::from_secs(10);

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
    let deadline = Instant::now() + SETTLE_WITHIN;
    loop {
        let views = views(cluster, product).await?;
        let level = views.windows(2).all(|pair| index_of(&pair[0]) == index_of(&pair[1]));
        if level || deadline < Instant::now() {
            return Failure::from_findings("members agree", agreement::check(&views));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn index_of(view: &View) -> Option<u64> {
    view.digest.as_ref().map(|(index, _)| *index)
}

async fn views(cluster: &Cluster, product: Product) -> Result<Vec<View>, Failure> {
    let mut revision = i64::MAX;
    for member in cluster.members() {
        let now = member.endpoint().linearizable_probe(ASK_WITHIN).await;
        revision = revision.min(now.map_err(|status| Failure::broken(describe(&status)))?);
    }
    let mut views = Vec::new();
    for member in cluster.members() {
        let hash = member.endpoint().hash_kv(revision, ASK_WITHIN).await.map_err(|status| {
            Failure::broken(format!("HashKV of {}: {}", member.name(), describe(&status)))
        })?;
        let digest = match product {
            Product::Etcd => None,
            Product::Meerkat => Some(digest_of(member).await?),
        };
        let compacted = hash.compact_revision;
        views.push(View { member: member.name().to_owned(), hash: hash.hash, compacted, digest });
    }
    Ok(views)
}

async fn digest_of(member: &crate::driver::Member) -> Result<(u64, Vec<u8>), Failure> {
    let answer = member.endpoint().state_digest(ASK_WITHIN).await.map_err(|status| {
        Failure::broken(format!("StateDigest of {}: {}", member.name(), describe(&status)))
    })?;
    if answer.digest.is_empty() {
        return Err(Failure::broken(format!("{} answers with an empty digest", member.name())));
    }
    Ok((answer.log_index, answer.digest.to_vec()))
}
