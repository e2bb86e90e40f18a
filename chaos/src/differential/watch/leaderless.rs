//! What streams hear when the majority is gone: the last act of a run, since it ends the clusters.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::WatchCreateRequest;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use tonic::Code;

use super::wire::WatchStream;
use crate::Failure;
use crate::differential::members::Members;

/// Etcd ends streams three election time-outs after it has lost its leader.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Kills all members but the first, on both sides, and compares how that one's streams end.
pub async fn compare(etcd: &mut Members, other: &mut Members) -> Result<(), Failure> {
    let (etcd, other) = (bereave(etcd).await?, bereave(other).await?);
    println!("watch differential: without a leader, streams of etcd: {etcd:?}");
    if etcd.requiring.is_none() || etcd.requiring_late.is_none() || etcd.plain.is_some() {
        return Err(Failure::harness(format!("etcd has not done what it is known for: {etcd:?}")));
    }
    if etcd == other {
        return Ok(());
    }
    Err(Failure::broken(format!(
        "without a leader streams end as {etcd:?} on etcd and {other:?} on the other"
    )))
}

/// How streams end when the leader goes.
#[derive(Debug, PartialEq, Eq)]
struct Ends {
    /// One that requires a leader and was open.
    requiring: Option<(Code, String)>,
    /// One that requires a leader and is opened afterwards.
    requiring_late: Option<(Code, String)>,
    /// One that requires none.
    plain: Option<(Code, String)>,
}

async fn bereave(side: &mut Members) -> Result<Ends, Failure> {
    let requiring = watch(side, true).await?;
    let plain = watch(side, false).await?;
    for stream in [&requiring, &plain] {
        stream.await_heard("a reply", |heard| 0 < heard.replies).await?;
    }
    side.bereave()?;
    requiring.wait_until(ENDS_WITHIN, |heard| heard.ended().is_some()).await;
    let late = side.watch(0, true);
    // It may end before it is asked for anything: how it ends is what counts.
    let _ = late.send(create()).await;
    late.wait_until(ENDS_WITHIN, |heard| heard.ended().is_some()).await;
    let end = |stream: &WatchStream| stream.look(|heard| heard.ended().cloned());
    Ok(Ends { requiring: end(&requiring), requiring_late: end(&late), plain: end(&plain) })
}

async fn watch(side: &Members, requires_leader: bool) -> Result<WatchStream, Failure> {
    let stream = side.watch(0, requires_leader);
    stream.send(create()).await?;
    Ok(stream)
}

fn create() -> RequestUnion {
    RequestUnion::CreateRequest(WatchCreateRequest { key: "leaderless".into(), ..Default::default() })
}
