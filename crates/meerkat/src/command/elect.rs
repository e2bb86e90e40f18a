//! `elect`: stand for election and lead, and run a command while leading; or listen to who leads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use meerkat_client::election::{ElectionError, Leader};
use meerkat_client::{Client, Election, Leadership, Session};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::KeyValue;

use super::child::{self, Ended};
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
    /// Runs while this one leads, and is stopped when that is over
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Observation mode
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    listen: bool,
}

pub async fn run(args: &ElectArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let refusal = |why: &str| Err(Failure::bad_arguments(why));
    // Behind two dashes is a command, unless nothing stands before them: etcdctl takes names there.
    let (words, command) = match args.words.is_empty() {
        true => (args.command.as_slice(), [].as_slice()),
        false => (args.words.as_slice(), args.command.as_slice()),
    };
    let (name, proposal) = match (words, args.listen) {
        ([_], true) if !command.is_empty() => return refusal("a command needs a proposal, and -l has none"),
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
            let stand = Stand { client: &client, cluster, style, command };
            stand.campaign(&election, proposal, &mut signals).await
        }
    };
    outcome.and(session.close().await.map_err(failed))
}

/// What somebody who stands has at hand.
struct Stand<'a> {
    client: &'a Client,
    cluster: &'a Cluster,
    style: Style,
    command: &'a [OsString],
}

impl Stand<'_> {
    async fn campaign(
        &self,
        election: &Election,
        proposal: Bytes,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let leadership = tokio::select! {
            elected = election.campaign(proposal) => elected.map_err(not_elected)?,
            _ = signals.next() => return Err(Failure::error("interrupted while waiting to be elected")),
        };
        if !self.command.is_empty() {
            return self.run_command(leadership, signals).await;
        }
        let response = key(self.cluster, leadership.key()).await?;
        print::show(&Answer::Get { response, values_only: false }, self.style)?;
        tokio::select! {
            _ = signals.next() => {}
            why = lost(&leadership, self.client) => return Err(Failure::error(why)),
        }
        leadership.resign().await.map_err(failed)
    }

    async fn run_command(&self, leadership: Leadership, signals: &mut Signals) -> Result<(), Failure> {
        let variables = vec![
            ("ETCD_ELECTION_KEY", OsString::from_vec(leadership.key().to_vec())),
            ("MEERKAT_ELECTION_TOKEN", leadership.token().get().to_string().into()),
        ];
        let ended = child::run_while(self.command, variables, signals, lost(&leadership, self.client)).await;
        match ended {
            Ok(Ended::Stopped { why }) => Err(Failure::error(format!("{why}; the command was stopped"))),
            Ok(Ended::Itself(status)) => {
                let resigned = leadership.resign().await.map_err(failed);
                child::hand_on(status).and(resigned)
            }
            // One that cannot be started leads nothing.
            Err(error) => leadership.resign().await.map_err(failed).and(Err(error)),
        }
    }
}

/// Ends with the reason when it does not lead any more.
async fn lost(leadership: &Leadership, client: &Client) -> String {
    tokio::select! {
        lost = leadership.lost() => format!("elect: session expired: {lost}"),
        () = deleted(client, leadership.key(), leadership.token()) => {
            "elect: leadership lost: somebody deleted its key".to_owned()
        }
    }
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
