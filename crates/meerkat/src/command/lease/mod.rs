//! `lease`: grant, revoke, look at, list and renew leases.
//!
//! What is printed is what `etcdctl lease` prints. An output format that has no form for an answer is
//! refused before anything is done.

mod keep_alive;
mod number;

use clap::{Args, Subcommand};
use meerkat_proto::pb::etcdserver as pb;

use super::arguments::only;
use super::cluster::Cluster;
use crate::failure::Failure;
use crate::print::{self, Answer, Format, LeaseAnswer, Style};

pub use self::number::{parse_hex, parse_unsigned_hex};

/// Lease related commands
#[derive(Args, Debug)]
pub struct LeaseArgs {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Subcommand, Debug)]
enum LeaseCommand {
    /// Creates leases
    Grant {
        /// Its time to live in seconds. Put -- before one that begins with a dash
        #[arg(value_name = "TTL")]
        ttl: Vec<String>,
    },
    /// Revokes leases, and with them the keys attached to them
    Revoke {
        /// Its id in hexadecimal
        #[arg(value_name = "LEASE_ID")]
        lease: Vec<String>,
    },
    /// Get lease information
    #[command(name = "timetolive", args_override_self = true)]
    TimeToLive {
        /// Its id in hexadecimal
        #[arg(value_name = "LEASE_ID")]
        lease: Vec<String>,
        /// Get keys attached to this lease
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
        keys: bool,
    },
    /// List all active leases
    List {
        #[arg(hide = true)]
        ignored: Vec<String>,
    },
    /// Keeps leases alive (renew)
    #[command(args_override_self = true)]
    KeepAlive {
        /// Its id in hexadecimal
        #[arg(value_name = "LEASE_ID")]
        lease: Vec<String>,
        /// Renew it once and leave
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
        once: bool,
    },
}

pub async fn run(args: &LeaseArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match &args.command {
        LeaseCommand::Grant { ttl } => grant(ttl, cluster, style).await,
        LeaseCommand::Revoke { lease } => revoke(lease, cluster, style).await,
        LeaseCommand::TimeToLive { lease, keys } => time_to_live(lease, *keys, cluster, style).await,
        LeaseCommand::List { .. } => list(cluster, style).await,
        LeaseCommand::KeepAlive { lease, once } => {
            let id = lease_id(only(lease, "lease keep-alive command needs lease ID as argument")?)?;
            style.format.refuse_table()?;
            keep_alive::run(id, *once, cluster, style).await
        }
    }
}

async fn grant(args: &[String], cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let ttl = number::parse_decimal(only(args, "lease grant command needs TTL argument")?)
        .map_err(|reason| Failure::bad_arguments(format!("bad TTL ({reason})")))?;
    style.format.refuse_table()?;
    let request = pb::LeaseGrantRequest { ttl, id: 0 };
    let response = cluster
        .lease(|mut leases| async move { leases.lease_grant(request).await })
        .await
        .map_err(|reason| Failure::error(format!("failed to grant lease ({reason})")))?;
    show(LeaseAnswer::Granted(response), style)
}

async fn revoke(args: &[String], cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let id = lease_id(only(args, "lease revoke command needs 1 argument")?)?;
    style.format.refuse_table()?;
    if style.format == Format::Protobuf {
        return Err(Failure::bad_feature("protobuf not supported as output format"));
    }
    let request = pb::LeaseRevokeRequest { id };
    let response = cluster
        .lease(|mut leases| async move { leases.lease_revoke(request).await })
        .await
        .map_err(|reason| Failure::error(format!("failed to revoke lease ({reason})")))?;
    show(LeaseAnswer::Revoked { id, response }, style)
}

async fn time_to_live(
    args: &[String],
    with_keys: bool,
    cluster: &Cluster,
    style: Style,
) -> Result<(), Failure> {
    let id = lease_id(only(args, "lease timetolive command needs lease ID as argument")?)?;
    let request = pb::LeaseTimeToLiveRequest { id, keys: with_keys };
    let response = cluster
        .lease(|mut leases| async move { leases.lease_time_to_live(request).await })
        .await
        .map_err(Failure::bad_connection)?;
    show(LeaseAnswer::TimeToLive { response, with_keys }, style)
}

async fn list(cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let response = cluster
        .lease(|mut leases| async move { leases.lease_leases(pb::LeaseLeasesRequest {}).await })
        .await
        .map_err(Failure::bad_connection)?;
    show(LeaseAnswer::Leases(response), style)
}

fn show(answer: LeaseAnswer, style: Style) -> Result<(), Failure> {
    print::show(&Answer::Lease(answer), style)
}

fn lease_id(text: &str) -> Result<i64, Failure> {
    parse_hex(text)
        .map_err(|reason| Failure::bad_arguments(format!("bad lease ID arg ({reason}), expecting ID in Hex")))
}
