//! `member list`: who is in the cluster.

use clap::{Args, Subcommand};

use super::cluster::{Cluster, refused};
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Membership related commands
#[derive(Args, Debug)]
pub struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Subcommand, Debug)]
enum MemberCommand {
    /// Lists all members in the cluster
    List,
}

pub async fn run(args: &MemberArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match args.command {
        MemberCommand::List => {
            let members = cluster.members().await.map_err(refused)?;
            print::show(&Answer::Members(members), style)
        }
    }
}
