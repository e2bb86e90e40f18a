//! `lease keep-alive`: renews a lease when a third of its time has passed, until it is gone or nobody
//! listens.
//!
//! A member that is lost is replaced by another, as long as the lease may still be alive: until its
//! time to live has passed since the last answer.

use std::time::Duration;

use futures::{StreamExt, stream};
use meerkat_proto::pb::etcdserver as pb;
use pb::lease_client::LeaseClient;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Streaming;

use crate::command::cluster::{Cluster, DEADLINE, describe};
use crate::failure::Failure;
use crate::print::{self, Answer, Format, LeaseAnswer, Style};

/// Before another member is tried.
const PAUSE: Duration = Duration::from_millis(500);
/// Longer than anyone waits, and short enough to be added to any moment.
const TTL_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub async fn run(id: i64, once: bool, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    if once {
        let response = renew_once(id, cluster).await.map_err(Failure::bad_connection)?;
        return print::show(&Answer::Lease(LeaseAnswer::KeptAlive(response)), style);
    }
    let mut renewals = Renewals::new(id, cluster);
    while let Some(response) = renewals.next().await {
        let ttl = ttl_of(&response);
        if print::show_next(&Answer::Lease(LeaseAnswer::KeptAlive(response)), style)?.is_break() {
            return Ok(());
        }
        tokio::time::sleep(ttl / 3).await;
    }
    if style.format == Format::Simple {
        println!("lease {} expired or revoked.", print::lease_id_text(id));
    }
    Ok(())
}

/// A lease that is not there is an error here, since nothing was renewed.
async fn renew_once(id: i64, cluster: &Cluster) -> Result<pb::LeaseKeepAliveResponse, String> {
    let request = stream::iter([pb::LeaseKeepAliveRequest { id }]).chain(stream::pending());
    let mut answers =
        cluster.lease(|mut leases| async move { leases.lease_keep_alive(request).await }).await?;
    match tokio::time::timeout(cluster.command_timeout(), answers.message()).await {
        Ok(Ok(Some(response))) if response.ttl > 0 => Ok(response),
        Ok(Ok(Some(_))) => Err("etcdserver: requested lease not found".to_owned()),
        Ok(Ok(None)) => Err("the member ended the stream without an answer".to_owned()),
        Ok(Err(status)) => Err(describe(&status)),
        Err(_) => Err(DEADLINE.to_owned()),
    }
}

/// The renewals of one lease, at whichever member answers.
struct Renewals<'a> {
    id: i64,
    cluster: &'a Cluster,
    /// When the lease may be gone if nobody answers.
    deadline: Instant,
    stream: Option<Stream>,
    /// The endpoint to try next.
    endpoint: usize,
}

struct Stream {
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
}

impl<'a> Renewals<'a> {
    fn new(id: i64, cluster: &'a Cluster) -> Renewals<'a> {
        // Before the first answer nothing is known of its time.
        let deadline = Instant::now() + cluster.command_timeout();
        Renewals { id, cluster, deadline, stream: None, endpoint: 0 }
    }

    /// Renews; `None` if the lease is gone, or its time over without an answer.
    async fn next(&mut self) -> Option<pb::LeaseKeepAliveResponse> {
        loop {
            match tokio::time::timeout_at(self.deadline, self.renew()).await {
                Err(_) => {
                    eprintln!("no member has answered in the lease's time");
                    return None;
                }
                Ok(Ok(response)) if response.ttl > 0 => {
                    self.deadline = Instant::now() + ttl_of(&response);
                    return Some(response);
                }
                Ok(Ok(_)) => return None,
                Ok(Err(reason)) => {
                    eprintln!("not renewed, trying again: {reason}");
                    self.stream = None;
                    self.endpoint += 1;
                    tokio::time::sleep_until((Instant::now() + PAUSE).min(self.deadline)).await;
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<pb::LeaseKeepAliveResponse, String> {
        let ended = || "the member ended the stream".to_owned();
        let request = pb::LeaseKeepAliveRequest { id: self.id };
        let stream = match &mut self.stream {
            Some(stream) => {
                stream.requests.send(request).await.map_err(|_| ended())?;
                stream
            }
            none => none.insert(open(self.cluster, self.endpoint, request).await?),
        };
        match stream.answers.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(ended()),
            Err(status) => Err(describe(&status)),
        }
    }
}

/// A stream on which the first request is already sent: etcd does not say that it is open before it
/// answers one.
async fn open(
    cluster: &Cluster,
    endpoint: usize,
    first: pb::LeaseKeepAliveRequest,
) -> Result<Stream, String> {
    let endpoints = cluster.endpoints();
    let channel = cluster.dial_to_stay(&endpoints[endpoint % endpoints.len()]).await?;
    // One request at a time: the next follows the answer.
    let (requests, mut queue) = mpsc::channel(1);
    let queue = stream::iter([first]).chain(stream::poll_fn(move |context| queue.poll_recv(context)));
    let answers = LeaseClient::new(channel).lease_keep_alive(queue).await;
    Ok(Stream { requests, answers: answers.map_err(|status| describe(&status))?.into_inner() })
}

fn ttl_of(response: &pb::LeaseKeepAliveResponse) -> Duration {
    Duration::from_secs(u64::try_from(response.ttl).unwrap_or(0)).min(TTL_MAX)
}
