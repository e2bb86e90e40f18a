//! `move-leader`: hand the lead to another member.

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use super::lease::parse_unsigned_hex;
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Transfers leadership to another member
#[derive(Args, Debug)]
pub struct MoveLeaderArgs {
    /// The id of the member to lead, in hexadecimal
    #[arg(value_name = "MEMBER_ID")]
    member: Vec<String>,
}

pub async fn run(args: &MoveLeaderArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let [text] = args.member.as_slice() else {
        return Err(Failure::bad_arguments("move-leader command needs 1 argument"));
    };
    let target_id = parse_unsigned_hex(text).map_err(Failure::bad_arguments)?;
    style.format.refuse_table_and_fields()?;
    // Only the leader can give the lead away.
    for endpoint in cluster.endpoints() {
        let one = cluster.at(vec![endpoint.clone()]);
        let status = one.maintenance(|mut member| async move { member.status(pb::StatusRequest {}).await });
        let status = status.await.map_err(refused)?;
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            let request = pb::MoveLeaderRequest { target_id };
            let moved = one.maintenance(|mut member| async move { member.move_leader(request).await });
            let response = moved.await.map_err(refused)?;
            let answer = Answer::LeaderMoved { from: status.leader, to: target_id, response };
            return print::show(&answer, style);
        }
    }
    let asked: Vec<String> = cluster.endpoints().iter().map(ToString::to_string).collect();
    Err(Failure::bad_arguments(format!(
        "no leader endpoint given at [{}]; name all members in --endpoints",
        asked.join(" ")
    )))
}
