//! `downgrade validate | enable | cancel`: make a cluster ready for members of an older version.

use clap::{Args, Subcommand};
use meerkat_proto::pb::etcdserver as pb;
use pb::downgrade_request::DowngradeAction;

use super::cluster::{Cluster, refused};
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Downgrade related commands
#[derive(Args, Debug)]
pub struct DowngradeArgs {
    #[command(subcommand)]
    command: DowngradeCommand,
}

#[derive(Subcommand, Debug)]
enum DowngradeCommand {
    /// Validate downgrade capability before starting downgrade
    Validate {
        #[arg(value_name = "TARGET_VERSION")]
        version: Vec<String>,
    },
    /// Start a downgrade action to cluster
    Enable {
        #[arg(value_name = "TARGET_VERSION")]
        version: Vec<String>,
    },
    /// Cancel the ongoing downgrade action to cluster
    Cancel {
        #[arg(hide = true)]
        ignored: Vec<String>,
    },
}

pub async fn run(args: &DowngradeArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let (what, action, version) = match &args.command {
        DowngradeCommand::Validate { version } => ("validate", DowngradeAction::Validate, target(version)?),
        DowngradeCommand::Enable { version } => ("enable", DowngradeAction::Enable, target(version)?),
        DowngradeCommand::Cancel { .. } => ("cancel", DowngradeAction::Cancel, String::new()),
    };
    style.format.refuse_table_and_fields()?;
    let request = pb::DowngradeRequest { action: action.into(), version };
    let asked = cluster.maintenance(|mut member| async move { member.downgrade(request).await });
    let response = asked.await.map_err(refused)?;
    print::show(&Answer::Downgrade { what, response }, style)
}

fn target(words: &[String]) -> Result<String, Failure> {
    match words {
        [] => Err(Failure::bad_arguments("TARGET_VERSION not provided")),
        [version] if version.is_empty() => Err(Failure::bad_arguments("target version not provided")),
        [version] => Ok(version.clone()),
        _ => Err(Failure::bad_arguments("too many arguments")),
    }
}
