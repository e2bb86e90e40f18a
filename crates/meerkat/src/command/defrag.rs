//! `defrag`: give space that deletions and compactions left behind back to the file system.
//!
//! Members are asked one after the other, never two at once: a member of etcd's serves nobody
//! meanwhile.

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::Cluster;
use super::endpoint::endpoints_of_members;
use crate::failure::Failure;

/// Defragments the storage of the members with given endpoints
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct DefragArgs {
    /// Use all endpoints from the cluster member list
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    cluster: bool,
    /// Refused: a data directory is not worked on behind its member's back
    #[arg(long, hide = true)]
    data_dir: Option<String>,
    #[arg(hide = true)]
    ignored: Vec<String>,
}

pub async fn run(args: &DefragArgs, cluster: &Cluster) -> Result<(), Failure> {
    if let Some(directory) = args.data_dir.as_deref().filter(|directory| !directory.is_empty()) {
        return Err(Failure::bad_arguments(offline_refusal(directory)));
    }
    let endpoints = match args.cluster {
        true => endpoints_of_members(cluster).await?,
        false => cluster.endpoints().to_vec(),
    };
    let mut failed = false;
    for endpoint in endpoints {
        let one = cluster.at(vec![endpoint.clone()]);
        let request = pb::DefragmentRequest {};
        match one.maintenance(|mut member| async move { member.defragment(request).await }).await {
            Ok(_) => println!("Finished defragmenting etcd member[{endpoint}]"),
            Err(reason) => {
                eprintln!("Failed to defragment etcd member[{endpoint}] ({reason})");
                failed = true;
            }
        }
    }
    if failed { Err(Failure::already_told()) } else { Ok(()) }
}

fn offline_refusal(directory: &str) -> String {
    format!(
        "defrag --data-dir {directory} is not supported: a Meerkat member gives space back while it runs, so start \
         it on that directory and run `defrag --endpoints <its address>`; for a directory of etcd's use etcd's own \
         `etcdutl defrag --data-dir {directory}`"
    )
}
