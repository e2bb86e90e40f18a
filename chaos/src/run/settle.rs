//! After the faults: everything is healed, every member must serve again, and all must be the same.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use meerkat_proto::pb::etcdserver::PutRequest;

use super::Verdict;
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::ground::{self, Change, Ground};
use crate::outcome::describe;
use crate::scenario::settle::differences;

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
    Verdict {
        workload: "cluster".to_owned(),
        promise: "every member serves reads and writes again after healing".to_owned(),
        judged: members.len() as u64,
        findings: findings.collect(),
    }
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
    let judged = members.len() as u64;
    let findings = match differences(&members, ground.product()).await {
        Ok(findings) => findings,
        Err(Failure::Broken(why)) => vec![why],
        Err(other) => return Err(other),
    };
    let promise = "members that stopped at one place hold the same bytes".to_owned();
    Ok(Verdict { workload: "cluster".to_owned(), promise, judged, findings })
}
