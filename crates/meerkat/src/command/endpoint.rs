//! `endpoint status | health | hashkv`: what each endpoint says for itself.
//!
//! Every endpoint is asked on its own and all at once; one that does not answer costs the others
//! nothing, and makes the exit status 1.

use clap::{Args, Subcommand};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use meerkat_proto::pb::etcdserver as pb;
use std::time::Instant;

use super::cluster::{Cluster, refused};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::print::{self, Answer, EndpointHealth, Format, Style};

/// Endpoint related commands
#[derive(Args, Debug)]
pub struct EndpointArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cluster: Option<bool>,
    #[command(subcommand)]
    command: EndpointCommand,
}

#[derive(Subcommand, Debug)]
enum EndpointCommand {
    /// Prints out the status of each endpoint
    Status,
    /// Checks that each endpoint can read linearizably, and has no alarm
    Health,
    /// Prints the KV history hash of each endpoint
    Hashkv {
        /// Last revision to hash; 0: the current one
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        rev: i64,
    },
}

pub async fn run(args: &EndpointArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    if style.format == Format::Protobuf {
        return Err(Failure::bad_feature("protobuf not supported as output format"));
    }
    let endpoints = match args.cluster {
        Some(true) => endpoints_of_members(cluster).await?,
        _ => cluster.endpoints().to_vec(),
    };
    match args.command {
        EndpointCommand::Status => status(cluster, endpoints, style).await,
        EndpointCommand::Health => health(cluster, endpoints, style).await,
        EndpointCommand::Hashkv { rev } => hashkv(cluster, endpoints, rev, style).await,
    }
}

pub async fn endpoints_of_members(cluster: &Cluster) -> Result<Vec<Endpoint>, Failure> {
    let list = cluster.members(true).await.map_err(|reason| {
        Failure::error(format!("failed to fetch endpoints from etcd cluster member list: {reason}"))
    })?;
    let urls = list.members.iter().flat_map(|member| &member.client_ur_ls);
    urls.map(|url| Endpoint::parse(url)).collect()
}

async fn status(cluster: &Cluster, endpoints: Vec<Endpoint>, style: Style) -> Result<(), Failure> {
    let asked = endpoints.iter().map(|endpoint| {
        let one = cluster.at(vec![endpoint.clone()]);
        async move { one.maintenance(|mut m| async move { m.status(pb::StatusRequest {}).await }).await }
    });
    let answers = join_all(asked).await;
    let (list, failures) = sort_out(&endpoints, answers, "status");
    print::show(&Answer::Statuses(list), style)?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::already_told()) }
}

async fn hashkv(cluster: &Cluster, endpoints: Vec<Endpoint>, rev: i64, style: Style) -> Result<(), Failure> {
    let asked = endpoints.iter().map(|endpoint| {
        let one = cluster.at(vec![endpoint.clone()]);
        let request = pb::HashKvRequest { revision: rev };
        async move { one.maintenance(|mut m| async move { m.hash_kv(request).await }).await }
    });
    let answers = join_all(asked).await;
    let (list, mut failures) = sort_out(&endpoints, answers, "hash");
    print::show(&Answer::Hashes(list), style)?;
    failures.pop().map_or(Ok(()), |reason| Err(refused(reason)))
}

/// Keeps what came back, says on stderr what did not, and gives back those reasons.
fn sort_out<T>(
    endpoints: &[Endpoint],
    answers: Vec<Result<T, String>>,
    what: &str,
) -> (Vec<(String, T)>, Vec<String>) {
    let mut list = Vec::new();
    let mut failures = Vec::new();
    for (endpoint, answer) in endpoints.iter().zip(answers) {
        match answer {
            Ok(answer) => list.push((endpoint.to_string(), answer)),
            Err(reason) => {
                eprintln!("Failed to get the {what} of endpoint {endpoint} ({reason})");
                failures.push(reason);
            }
        }
    }
    (list, failures)
}

async fn health(cluster: &Cluster, endpoints: Vec<Endpoint>, style: Style) -> Result<(), Failure> {
    let asked: FuturesUnordered<_> =
        endpoints.into_iter().map(|endpoint| check(cluster.at(vec![endpoint.clone()]), endpoint)).collect();
    // In the order of their answers: the slow and the dead come last.
    let list: Vec<EndpointHealth> = asked.collect().await;
    let unhealthy = list.iter().filter(|health| !health.error.is_empty());
    let all_healthy = unhealthy.clone().count() == 0;
    if style.format == Format::Simple {
        unhealthy.for_each(|health| {
            eprintln!("{} is unhealthy: failed to commit proposal: {}", health.endpoint, health.error);
        });
    }
    print::show(&Answer::Health(list), style)?;
    if all_healthy { Ok(()) } else { Err(Failure::error("unhealthy cluster")) }
}

async fn check(one: Cluster, endpoint: Endpoint) -> EndpointHealth {
    let start = Instant::now();
    let read = read(&one).await;
    let took = start.elapsed();
    let error = match read {
        Ok(()) => alarms(&one).await,
        Err(reason) => reason,
    };
    EndpointHealth { endpoint: endpoint.to_string(), took, error }
}

/// A read that needs a leader and a quorum.
pub async fn read(one: &Cluster) -> Result<(), String> {
    let request = pb::RangeRequest { key: "health".into(), ..Default::default() };
    match one.kv(|mut kv| async move { kv.range(request).await }).await {
        // Whoever is refused for who they are has been heard by a member that could decide it.
        Err(reason) if reason != "etcdserver: permission denied" => Err(reason),
        _ => Ok(()),
    }
}

/// The alarms as an error text; empty without any.
async fn alarms(one: &Cluster) -> String {
    let request =
        pb::AlarmRequest { action: pb::alarm_request::AlarmAction::Get.into(), ..Default::default() };
    let Ok(response) = one.maintenance(|mut m| async move { m.alarm(request).await }).await else {
        return "Unable to fetch the alarm list".to_owned();
    };
    if response.alarms.is_empty() {
        return String::new();
    }
    let name = |alarm: &pb::AlarmMember| match alarm.alarm() {
        pb::AlarmType::Nospace => "NOSPACE ",
        pb::AlarmType::Corrupt => "CORRUPT ",
        pb::AlarmType::None => "UNKNOWN ",
    };
    let names: String = response.alarms.iter().map(name).collect();
    format!("Active Alarm(s): {names}")
}
