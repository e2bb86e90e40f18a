//! The end of every run under faults: let the members come together, then judge.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::checker;
use crate::checker::agreement::{self, View};
use crate::driver::{Cluster, Product};
use crate::endpoint::Endpoint;
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
    let members: Vec<(String, Endpoint)> = cluster
        .members()
        .iter()
        .map(|member| (member.name().to_owned(), member.endpoint().clone()))
        .collect();
    Failure::from_findings("members agree", differences(&members, product).await?)
}

/// In what these members differ once they are at one log index, or time is up.
pub async fn differences(members: &[(String, Endpoint)], product: Product) -> Result<Vec<String>, Failure> {
    let deadline = Instant::now() + SETTLE_WITHIN;
    loop {
        let views = match views(members, product).await {
            // One that does not answer now may in a while.
            Err(Failure::Broken(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            views => views?,
        };
        let level = views.windows(2).all(|pair| index_of(&pair[0]) == index_of(&pair[1]));
        if level || deadline < Instant::now() {
            return Ok(agreement::check(&views));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn index_of(view: &View) -> Option<u64> {
    view.digest.as_ref().map(|(index, _)| *index)
}

async fn views(members: &[(String, Endpoint)], product: Product) -> Result<Vec<View>, Failure> {
    let mut revision = i64::MAX;
    for (_, endpoint) in members {
        let now = endpoint.linearizable_probe(ASK_WITHIN).await;
        revision = revision.min(now.map_err(|status| Failure::broken(describe(&status)))?);
    }
    let mut views = Vec::new();
    for (name, endpoint) in members {
        let hash = endpoint
            .hash_kv(revision, ASK_WITHIN)
            .await
            .map_err(|status| Failure::broken(format!("HashKV of {name}: {}", describe(&status))))?;
        let digest = match product {
            Product::Etcd => None,
            Product::Meerkat => Some(digest_of(name, endpoint).await?),
        };
        let compacted = hash.compact_revision;
        views.push(View { member: name.clone(), hash: hash.hash, compacted, digest });
    }
    Ok(views)
}

async fn digest_of(name: &str, endpoint: &Endpoint) -> Result<(u64, Vec<u8>), Failure> {
    let answer = endpoint
        .state_digest(ASK_WITHIN)
        .await
        .map_err(|status| Failure::broken(format!("StateDigest of {name}: {}", describe(&status))))?;
    if answer.digest.is_empty() {
        return Err(Failure::broken(format!("{name} answers with an empty digest")));
    }
    Ok((answer.log_index, answer.digest.to_vec()))
}
