//! The agreed times of revisions and keys, as Meerkat's members tell them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use meerkat_proto::pb::admin;
use meerkat_proto::pb::etcdserver as pb;
use pb::range_request::{SortOrder, SortTarget};

use super::cluster::{Cluster, is_unknown_request, refused};
use crate::failure::Failure;
use crate::print::{KeyTime, TimedRange};

/// How often a range is read again because a compaction overtook it.
const ATTEMPTS: usize = 3;

/// A range as it is now, with the times of its keys. Both are of one revision: the range is read at
/// the one that the times are of.
pub async fn range(cluster: &Cluster, request: pb::RangeRequest) -> Result<TimedRange, Failure> {
    for _ in 0..ATTEMPTS {
        let question = admin::KeyTimesRequest {
            key: request.key.clone(),
            range_end: request.range_end.clone(),
            limit: if cuts_in_key_order(&request) { request.limit } else { 0 },
        };
        let times = cluster.admin(|mut admin| async move { admin.key_times(question).await }).await;
        let times = times.map_err(|reason| explained(reason, "--times"))?;
        let at = pb::RangeRequest { revision: times.revision, ..request.clone() };
        match cluster.kv(|mut kv| async move { kv.range(at).await }).await {
            Err(reason) if reason == COMPACTED => continue,
            Err(reason) => return Err(refused(reason)),
            Ok(response) => return pair(response, times.times),
        }
    }
    Err(Failure::error("the store is compacted faster than it can be read; try again"))
}

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Whether the limit keeps the first keys: then only their times are needed.
fn cuts_in_key_order(request: &pb::RangeRequest) -> bool {
    request.sort_order() == SortOrder::None
        || (request.sort_order() == SortOrder::Ascend && request.sort_target() == SortTarget::Key)
}

fn pair(response: pb::RangeResponse, times: Vec<admin::KeyTime>) -> Result<TimedRange, Failure> {
    let known: HashMap<Bytes, (i64, KeyTime)> = times
        .into_iter()
        .map(|time| {
            let found = KeyTime { created_ms: time.created_unix_ms, modified_ms: time.modified_unix_ms };
            (time.key, (time.mod_revision, found))
        })
        .collect();
    let times = response.kvs().iter().map(|kv| match known.get(&kv.key) {
        Some((revision, time)) if *revision == kv.mod_revision => Ok(*time),
        _ => Err(Failure::error("the server's times are not those of its keys; report this as a bug")),
    });
    let times = times.collect::<Result<_, _>>()?;
    Ok(TimedRange { response, times })
}

/// The first revision made within the last `ago`, by this machine's clock.
pub async fn revision_since(
    cluster: &Cluster,
    ago: Duration,
) -> Result<admin::RevisionAtTimeResponse, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = u64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(u64::MAX);
    let question = admin::RevisionAtTimeRequest { unix_ms: then };
    let found = cluster.admin(|mut admin| async move { admin.revision_at_time(question).await }).await;
    found.map_err(|reason| explained(reason, "--since"))
}

/// Says what a server that does not know the request is lacking.
fn explained(reason: String, flag: &str) -> Failure {
    if is_unknown_request(&reason) {
        return Failure::error(format!(
            "{flag} needs a Meerkat server: this one does not keep the time of each revision ({reason})"
        ));
    }
    refused(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_in_key_order_limits_the_times() {
        let request = |order: SortOrder, target: SortTarget| pb::RangeRequest {
            sort_order: order.into(),
            sort_target: target.into(),
            ..Default::default()
        };
        assert!(cuts_in_key_order(&request(SortOrder::None, SortTarget::Mod)), "etcd cuts before it sorts");
        assert!(cuts_in_key_order(&request(SortOrder::Ascend, SortTarget::Key)));
        assert!(!cuts_in_key_order(&request(SortOrder::Descend, SortTarget::Key)));
        assert!(!cuts_in_key_order(&request(SortOrder::Ascend, SortTarget::Mod)));
    }
}
