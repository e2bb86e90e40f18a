//! `alarm list | disarm`: what members have cried out about, and putting it to rest.

use clap::{Args, Subcommand};
use meerkat_proto::pb::etcdserver as pb;
use pb::alarm_request::AlarmAction;

use super::arguments::none;
use super::cluster::{Cluster, refused};
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Alarm related commands
#[derive(Args, Debug)]
pub struct AlarmArgs {
    #[command(subcommand)]
    command: AlarmCommand,
}

#[derive(Subcommand, Debug)]
enum AlarmCommand {
    /// Lists all alarms
    List {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
    /// Disarms all alarms
    Disarm {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
}

pub async fn run(args: &AlarmArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match &args.command {
        AlarmCommand::List { unwanted } => {
            none(unwanted, "alarm list command accepts no arguments")?;
            print::show(&Answer::Alarms(list(cluster).await?), style)
        }
        AlarmCommand::Disarm { unwanted } => {
            none(unwanted, "alarm disarm command accepts no arguments")?;
            style.format.refuse_table()?;
            disarm(cluster, style).await
        }
    }
}

async fn list(cluster: &Cluster) -> Result<pb::AlarmResponse, Failure> {
    ask(cluster, AlarmAction::Get, pb::AlarmMember::default()).await
}

/// One by one, since each is of one member. The answer tells of those that were put to rest; it is made
/// of many and has no header.
async fn disarm(cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let mut disarmed = pb::AlarmResponse::default();
    for alarm in list(cluster).await?.alarms {
        disarmed.alarms.extend(ask(cluster, AlarmAction::Deactivate, alarm).await?.alarms);
    }
    print::show(&Answer::Alarms(disarmed), style)
}

async fn ask(
    cluster: &Cluster,
    action: AlarmAction,
    alarm: pb::AlarmMember,
) -> Result<pb::AlarmResponse, Failure> {
    let request = pb::AlarmRequest { action: action.into(), member_id: alarm.member_id, alarm: alarm.alarm };
    cluster.maintenance(|mut member| async move { member.alarm(request).await }).await.map_err(refused)
}
