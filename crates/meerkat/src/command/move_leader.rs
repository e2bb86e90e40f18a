//! `move-leader`: hand the lead to another member.

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use crate::failure::Failure;

/// Transfers leadership to another member
#[derive(Args, Debug)]
pub struct MoveLeaderArgs {
    /// The id of the member to lead, in hexadecimal
    #[arg(value_name = "MEMBER_ID")]
    member: Vec<String>,
}

pub async fn run(args: &MoveLeaderArgs, cluster: &Cluster) -> Result<(), Failure> {
    let [text] = args.member.as_slice() else {
        return Err(Failure::bad_arguments("move-leader command needs 1 argument"));
    };
    let target_id = u64::from_str_radix(text, 16).map_err(|reason| {
        Failure::bad_arguments(format!("bad member ID arg ({reason}), expecting ID in Hex"))
    })?;
    // Only the leader can give the lead away.
    for endpoint in cluster.endpoints() {
        let one = cluster.at(vec![endpoint.clone()]);
        let status = one.maintenance(|mut member| async move { member.status(pb::StatusRequest {}).await });
        let status = status.await.map_err(refused)?;
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            let request = pb::MoveLeaderRequest { target_id };
            one.maintenance(|mut member| async move { member.move_leader(request).await })
                .await
                .map_err(refused)?;
            println!("Leadership transferred from {:x} to {target_id:x}", status.leader);
            return Ok(());
        }
    }
    let asked: Vec<String> = cluster.endpoints().iter().map(ToString::to_string).collect();
    Err(Failure::bad_arguments(format!(
        "no leader endpoint given at [{}]; name all members in --endpoints",
        asked.join(" ")
    )))
}
