//! `elect`: stand for election and lead, or listen to who does.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use meerkat_client::election::{ElectionError, Leader};
use meerkat_client::{Client, Election, Leadership, Session};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::KeyValue;

use super::cluster::{Cluster, refused};
use super::lock::{deleted, failed, key};
use super::signals::Signals;
use crate::failure::Failure;
use crate::print::{self, Answer, Format, Style};

/// As etcd's own: how long a leader that has died is waited for.
const TTL: Duration = Duration::from_secs(60);

/// Observes and participates in leader election
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct ElectArgs {
    /// <election-name> [proposal]
    #[arg(value_name = "ELECTION PROPOSAL")]
    words: Vec<OsString>,
    /// Observation mode
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    listen: bool,
}

pub async fn run(args: &ElectArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let refusal = |why: &str| Err(Failure::bad_arguments(why));
    let (name, proposal) = match (args.words.as_slice(), args.listen) {
        ([name], true) => (name, None),
        ([name, proposal], false) => (name, Some(proposal)),
        ([_], false) => return refusal("no proposal argument but -l not set"),
        ([_, _], true) => return refusal("proposal given but -l is set"),
        _ => return refusal("elect takes one election name argument and an optional proposal argument"),
    };
    let mut signals = Signals::listen()?;
    let client = cluster.client().await?;
    let session = Session::open(&client, TTL).await.map_err(failed)?;
    let election = Election::new(&session, name.as_bytes().to_vec());
    let outcome = match proposal {
        None => listen(&election, cluster, style, &mut signals).await,
        Some(proposal) => {
            let proposal = Bytes::copy_from_slice(proposal.as_bytes());
            campaign(&election, proposal, &client, cluster, style, &mut signals).await
        }
    };
    outcome.and(session.close().await.map_err(failed))
}

async fn campaign(
    election: &Election,
    proposal: Bytes,
    client: &Client,
    cluster: &Cluster,
    style: Style,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let leadership = tokio::select! {
        elected = election.campaign(proposal) => elected.map_err(not_elected)?,
        _ = signals.next() => return Err(Failure::error("interrupted while waiting to be elected")),
    };
    let response = key(cluster, leadership.key()).await?;
    print::show(&Answer::Get { response, values_only: false }, style)?;
    lead(leadership, client, signals).await
}

async fn lead(leadership: Leadership, client: &Client, signals: &mut Signals) -> Result<(), Failure> {
    tokio::select! {
        _ = signals.next() => {}
        lost = leadership.lost() => {
            return Err(Failure::error(format!("elect: session expired: {lost}")));
        }
        () = deleted(client, leadership.key(), leadership.token()) => {
            return Err(Failure::error("elect: leadership lost: somebody deleted its key"));
        }
    }
    leadership.resign().await.map_err(failed)
}

async fn listen(
    election: &Election,
    cluster: &Cluster,
    style: Style,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let mut leaders = election.observe();
    loop {
        let leader = tokio::select! {
            leader = leaders.next() => leader,
            _ = signals.next() => return Ok(()),
        };
        let leader = match leader {
            Some(Ok(leader)) => leader,
            Some(Err(error)) => return Err(not_elected(error)),
            None => return Err(Failure::error("elect: observer lost")),
        };
        let response = told(leader, cluster, style.format).await?;
        if print::show_next(&Answer::Get { response, values_only: false }, style)?.is_break() {
            return Ok(());
        }
    }
}

/// The leader as an answer to a question for its key. Formats that show more than key and value get it
/// from the store, as it was when the leader said so.
async fn told(leader: Leader, cluster: &Cluster, format: Format) -> Result<pb::RangeResponse, Failure> {
    if format != Format::Simple {
        let request = pb::RangeRequest {
            key: leader.key.clone(),
            revision: leader.revision.get(),
            ..Default::default()
        };
        return cluster.kv(|mut kv| async move { kv.range(request).await }).await.map_err(refused);
    }
    let kv = KeyValue { key: leader.key, value: leader.value, ..Default::default() };
    Ok(pb::RangeResponse { kvs: pb::KvList::Decoded(vec![kv]), ..Default::default() })
}

fn not_elected(error: ElectionError) -> Failure {
    match error {
        ElectionError::Client(error) => failed(error),
        other => Failure::error(other.to_string()),
    }
}
