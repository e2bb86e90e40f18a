//! After the faults: everything is healed, every member must serve again, and all must be the same.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use meerkat_proto::pb::etcdserver::PutRequest;

use crate::checker::agreement::{self, View};
use crate::endpoint::Endpoint;
use crate::ground::{self, Change, Ground, Product};
use crate::outcome::describe;
use crate::record::Verdict;
use crate::{Failure, Patience};

const SETTLE_WITHIN: Duration = Duration::from_secs(30);
const ASK_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Whatever nemeses may have left undone: links up, sleepers awake, the dead started.
pub async fn heal_all(ground: &mut dyn Ground) -> Result<(), Failure> {
    ground.heal_links().await?;
    for member in ground::enlisted(ground) {
        if ground.is_running(member).await? {
            ground.resume(member).await?;
        } else {
            ground.start(member, Change::default()).await?;
        }
    }
    Ok(())
}

/// Every member answers a linearizable read and a write, within this time of healing.
pub async fn serve_again(ground: &dyn Ground, within: Duration) -> Verdict {
    let members = ground::enlisted(ground);
    let each = members.iter().map(|member| serves(ground.name(*member), ground.endpoint(*member), within));
    let results = join_all(each).await;
    let findings = members
        .iter()
        .zip(results)
        .filter_map(|(member, result)| result.err().map(|why| format!("{why}; {}", ground.tail(*member))));
    let promise = "every member serves reads and writes again after healing";
    Verdict::new("cluster", promise, members.len(), findings.collect())
}

async fn serves(name: String, endpoint: Endpoint, within: Duration) -> Result<(), String> {
    let deadline = Instant::now() + within;
    let mut last = "nothing was asked".to_owned();
    while Instant::now() < deadline {
        let key = Bytes::from(format!("alive/{name}"));
        let put = PutRequest { key, value: Bytes::from_static(b"yes"), ..Default::default() };
        let read = endpoint.linearizable_probe(ANSWER_WITHIN).await.map(drop);
        let answer = match read {
            Ok(()) => endpoint.put(put, ANSWER_WITHIN).await.map(drop),
            Err(status) => Err(status),
        };
        match answer {
            Ok(()) => return Ok(()),
            Err(status) => last = describe(&status),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("{name} does not serve {within:?} after healing (last answer: {last})"))
}

/// Members that stopped at one place hold the same bytes. Expects nobody writing.
pub async fn agree(ground: &dyn Ground) -> Result<Verdict, Failure> {
    let members: Vec<(String, Endpoint)> = ground::enlisted(ground)
        .into_iter()
        .map(|member| (ground.name(member), ground.endpoint(member)))
        .collect();
    agreement(&members, ground.product()).await
}

/// The same of any members; one that cannot be asked has broken the promise.
pub async fn agreement(members: &[(String, Endpoint)], product: Product) -> Result<Verdict, Failure> {
    let findings = match differences(members, product).await {
        Ok(findings) => findings,
        Err(Failure::Broken(why)) => vec![why],
        Err(other) => return Err(other),
    };
    let promise = "members that stopped at one place hold the same bytes";
    Ok(Verdict::new("cluster", promise, members.len(), findings))
}

/// In what these members differ once they are at one log index, or are given up.
async fn differences(members: &[(String, Endpoint)], product: Product) -> Result<Vec<String>, Failure> {
    let patience = Patience::of("all members come to one place", SETTLE_WITHIN);
    loop {
        let views = match views(members, product).await {
            // One that does not answer now may in a while.
            Err(Failure::Broken(why) | Failure::Slow(why)) => {
                patience.pause(PAUSE, why).await?;
                continue;
            }
            views => views?,
        };
        let level = views.windows(2).all(|pair| index_of(&pair[0]) == index_of(&pair[1]));
        if level || patience.left().is_zero() {
            let findings = agreement::check(&views);
            return if findings.is_empty() { patience.came().map(|_| findings) } else { Ok(findings) };
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn index_of(view: &View) -> Option<u64> {
    view.digest.as_ref().map(|(index, _)| *index)
}

async fn views(members: &[(String, Endpoint)], product: Product) -> Result<Vec<View>, Failure> {
    let mut revision = i64::MAX;
    for (_, endpoint) in members {
        revision = revision.min(endpoint.linearizable_probe(ASK_WITHIN).await?);
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
