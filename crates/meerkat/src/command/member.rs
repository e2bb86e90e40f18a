//! `member`: who is in the cluster, and changes of that.

use clap::{Args, Subcommand};
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use super::consistency::linearizable;
use super::lease::parse_unsigned_hex;
use crate::failure::Failure;
use crate::print::{self, Answer, Format, MemberChange, Style};

/// Membership related commands
#[derive(Args, Debug)]
pub struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Subcommand, Debug)]
enum MemberCommand {
    /// Lists all members in the cluster
    #[command(args_override_self = true)]
    List {
        /// Linearizable (l) or serializable (s): what the member that is asked knows
        #[arg(long, default_value = "l")]
        consistency: String,
    },
    /// Adds a member into the cluster
    #[command(args_override_self = true)]
    Add {
        /// The name under which it will be started
        #[arg(value_name = "MEMBER_NAME")]
        name: Vec<String>,
        /// Where the other members will reach it, comma-separated
        #[arg(long, default_value = "")]
        peer_urls: String,
        /// It follows without a vote until it is promoted
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
        learner: bool,
    },
    /// Removes a member from the cluster
    Remove {
        /// Its id in hexadecimal
        #[arg(value_name = "MEMBER_ID")]
        member: Vec<String>,
    },
    /// Updates where the other members reach a member
    #[command(args_override_self = true)]
    Update {
        /// Its id in hexadecimal
        #[arg(value_name = "MEMBER_ID")]
        member: Vec<String>,
        /// Where the other members will reach it, comma-separated
        #[arg(long, default_value = "")]
        peer_urls: String,
    },
    /// Promotes a learner: gives it its vote
    Promote {
        /// Its id in hexadecimal
        #[arg(value_name = "MEMBER_ID")]
        member: Vec<String>,
    },
}

pub async fn run(args: &MemberArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    if !matches!(args.command, MemberCommand::List { .. }) {
        style.format.refuse_table()?;
    }
    match &args.command {
        MemberCommand::List { consistency } => {
            let linearizable = linearizable(consistency)?;
            let members = cluster.members(linearizable).await.map_err(refused)?;
            print::show(&Answer::Members(members), style)
        }
        MemberCommand::Add { name, peer_urls, learner } => {
            add(name, peer_urls, *learner, cluster, style).await
        }
        MemberCommand::Remove { member } => {
            let id = member_id(member)?;
            let request = pb::MemberRemoveRequest { id };
            let done =
                cluster.members_service(|mut members| async move { members.member_remove(request).await });
            let pb::MemberRemoveResponse { header, members } = done.await.map_err(refused)?;
            show(MemberChange::Removed(id), pb::MemberListResponse { header, members }, style)
        }
        MemberCommand::Update { member, peer_urls } => {
            let id = member_id(member)?;
            let request = pb::MemberUpdateRequest { id, peer_ur_ls: urls(peer_urls)? };
            let done =
                cluster.members_service(|mut members| async move { members.member_update(request).await });
            let pb::MemberUpdateResponse { header, members } = done.await.map_err(refused)?;
            show(MemberChange::Updated(id), pb::MemberListResponse { header, members }, style)
        }
        MemberCommand::Promote { member } => {
            let id = member_id(member)?;
            let request = pb::MemberPromoteRequest { id };
            let done =
                cluster.members_service(|mut members| async move { members.member_promote(request).await });
            let pb::MemberPromoteResponse { header, members } = done.await.map_err(refused)?;
            show(MemberChange::Promoted(id), pb::MemberListResponse { header, members }, style)
        }
    }
}

async fn add(
    name: &[String],
    peer_urls: &str,
    learner: bool,
    cluster: &Cluster,
    style: Style,
) -> Result<(), Failure> {
    let [name] = name else {
        let reason = if name.is_empty() { "member name not provided" } else { "too many arguments" };
        return Err(Failure::bad_arguments(reason));
    };
    let request = pb::MemberAddRequest { peer_ur_ls: urls(peer_urls)?, is_learner: learner };
    let done = cluster.members_service(|mut members| async move { members.member_add(request).await });
    let pb::MemberAddResponse { header, member, members } = done.await.map_err(refused)?;
    let member = member.unwrap_or_default();
    let settings = settings(name, peer_urls, member.id, &members);
    show(MemberChange::Added(member), pb::MemberListResponse { header, members }, style)?;
    // What the new member is to be started with.
    if style.format == Format::Simple {
        print!("\n{settings}");
    }
    Ok(())
}

/// For the environment of a member that is about to start.
fn settings(name: &str, peer_urls: &str, id: u64, members: &[pb::Member]) -> String {
    let entries = members.iter().flat_map(|member| {
        let name = if member.id == id { name } else { &member.name };
        member.peer_ur_ls.iter().map(move |url| format!("{name}={url}"))
    });
    let cluster = entries.collect::<Vec<_>>().join(",");
    format!(
        "ETCD_NAME={name:?}\nETCD_INITIAL_CLUSTER={cluster:?}\nETCD_INITIAL_ADVERTISE_PEER_URLS={peer_urls:?}\nETCD_INITIAL_CLUSTER_STATE=\"existing\"\n"
    )
}

fn show(change: MemberChange, members: pb::MemberListResponse, style: Style) -> Result<(), Failure> {
    print::show(&Answer::MemberChange { change, members }, style)
}

fn urls(text: &str) -> Result<Vec<String>, Failure> {
    if text.is_empty() {
        return Err(Failure::bad_arguments("member peer urls not provided"));
    }
    Ok(text.split(',').map(str::to_owned).collect())
}

fn member_id(args: &[String]) -> Result<u64, Failure> {
    let [text] = args else {
        return Err(Failure::bad_arguments("member ID is not provided"));
    };
    parse_unsigned_hex(text).map_err(|reason| {
        Failure::bad_arguments(format!("bad member ID arg ({reason}), expecting ID in Hex"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_member_is_told_what_to_start_with() {
        let member = |id, name: &str, url: &str| pb::Member {
            id,
            name: name.to_owned(),
            peer_ur_ls: vec![url.to_owned()],
            ..Default::default()
        };
        let members = [member(1, "a", "http://a:1"), member(2, "", "http://b:1")];
        assert_eq!(
            settings("b", "http://b:1", 2, &members),
            "ETCD_NAME=\"b\"\nETCD_INITIAL_CLUSTER=\"a=http://a:1,b=http://b:1\"\nETCD_INITIAL_ADVERTISE_PEER_URLS=\"http://b:1\"\nETCD_INITIAL_CLUSTER_STATE=\"existing\"\n"
        );
    }

    #[test]
    fn ids_are_hexadecimal_and_one() {
        let id = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            member_id(&args).map_err(|failure| failure.message)
        };
        assert_eq!(id(&["8e9e05c52164694d"]), Ok(0x8e9e_05c5_2164_694d));
        assert!(id(&["x"]).is_err_and(|reason| reason.contains("expecting ID in Hex")));
        assert!(id(&[]).is_err() && id(&["1", "2"]).is_err());
    }
}
