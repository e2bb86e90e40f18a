//! `check perf | datascale`: whether a cluster carries a load of a known size.

mod datascale;
mod load;
mod metrics;
mod perf;

use clap::{Args, Subcommand};
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use super::key_range::prefix_end;
use crate::failure::Failure;
use crate::go_quote::quote;

/// Commands for checking properties of the cluster
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(subcommand)]
    command: CheckCommand,
}

#[derive(Subcommand, Debug)]
enum CheckCommand {
    /// Check the performance of the cluster
    #[command(args_override_self = true)]
    Perf(perf::PerfArgs),
    /// Check the memory usage of holding data for different workloads on a given server endpoint
    ///
    /// If multiple endpoints are provided, the first one will be used.
    #[command(args_override_self = true)]
    Datascale(datascale::DatascaleArgs),
}

pub async fn run(args: &CheckArgs, cluster: &Cluster) -> Result<(), Failure> {
    match &args.command {
        CheckCommand::Perf(args) => perf::run(args, cluster).await,
        CheckCommand::Datascale(args) => datascale::run(args, cluster).await,
    }
}

/// How much is asked of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Medium,
    Large,
    ExtraLarge,
}

impl Size {
    fn parse(name: &str) -> Result<Size, Failure> {
        match name {
            "s" | "small" => Ok(Size::Small),
            "m" | "medium" => Ok(Size::Medium),
            "l" | "large" => Ok(Size::Large),
            "xl" | "xLarge" => Ok(Size::ExtraLarge),
            _ => Err(Failure::bad_feature(format!("unknown load option {name}"))),
        }
    }

    /// How many write at once.
    fn clients(self) -> usize {
        match self {
            Size::Small => 50,
            Size::Medium => 200,
            Size::Large => 500,
            Size::ExtraLarge => 1_000,
        }
    }
}

fn below(prefix: &str) -> (bytes::Bytes, bytes::Bytes) {
    (prefix.to_owned().into(), prefix_end(prefix.as_bytes()))
}

/// A check must not take what is somebody's for its own: it deletes everything there at its end.
async fn refuse_used_prefix(cluster: &Cluster, prefix: &str) -> Result<(), Failure> {
    if prefix.is_empty() {
        return Err(Failure::bad_arguments("--prefix is empty: the check would delete every key at its end"));
    }
    let (key, range_end) = below(prefix);
    let request = pb::RangeRequest { key, range_end, limit: 1, ..Default::default() };
    let found = cluster.kv(|mut kv| async move { kv.range(request).await }).await.map_err(refused)?;
    if found.kvs().is_empty() {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "prefix {} has keys. Delete with 'meerkat del --prefix {prefix}' first",
        quote(prefix.as_bytes())
    )))
}

/// Deletes what the check has written. Answers with the revision of that.
async fn clean_up(cluster: &Cluster, prefix: &str) -> Result<i64, String> {
    let (key, range_end) = below(prefix);
    let request = pb::DeleteRangeRequest { key, range_end, ..Default::default() };
    let deleted = cluster.kv(|mut kv| async move { kv.delete_range(request).await }).await?;
    Ok(deleted.header.map_or(0, |header| header.revision))
}

async fn compact(cluster: &Cluster, revision: i64) -> Result<(), Failure> {
    println!("Compacting with revision {revision}");
    let request = pb::CompactionRequest { revision, physical: true };
    cluster.kv(|mut kv| async move { kv.compact(request).await }).await.map_err(refused)?;
    println!("Compacted with revision {revision}");
    Ok(())
}

async fn defragment(cluster: &Cluster) -> Result<(), Failure> {
    for endpoint in cluster.endpoints() {
        let name = quote(endpoint.to_string().as_bytes());
        println!("Defragmenting {name}");
        let one = cluster.at(vec![endpoint.clone()]);
        let request = pb::DefragmentRequest {};
        one.maintenance(|mut member| async move { member.defragment(request).await })
            .await
            .map_err(refused)?;
        println!("Defragmented {name}");
    }
    Ok(())
}
