//! `defrag`: give space that deletions and compactions left behind back to the file system.
//!
//! Members are asked one after the other, never two at once: a member of etcd's serves nobody
//! meanwhile.

use std::path::{Path, PathBuf};

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::reason;

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
    /// Data directory of a member that is stopped: it needs no defragmentation
    #[arg(long)]
    data_dir: Option<PathBuf>,
    #[arg(hide = true)]
    ignored: Vec<String>,
}

pub async fn run(args: &DefragArgs, cluster: &Cluster) -> Result<(), Failure> {
    if let Some(directory) = args.data_dir.as_deref().filter(|directory| !directory.as_os_str().is_empty()) {
        return offline(directory);
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

/// Nothing is done to a member's directory: it gives space back while it runs.
fn offline(directory: &Path) -> Result<(), Failure> {
    let failed = |reason: String| {
        Err(Failure::error(format!("Failed to defragment etcd data[{}] ({reason})", directory.display())))
    };
    let member = directory.join("member");
    if member.join("snap").join("db").exists() {
        return failed("it is a directory of etcd's; use etcd's own etcdutl".to_owned());
    }
    match member.join("state").metadata() {
        Ok(_) => {
            println!("{}", finished(directory));
            Ok(())
        }
        Err(error) => failed(format!("it is no data directory: {}", reason::of_system(&error))),
    }
}

/// Scripts wait for etcd's words.
fn finished(directory: &Path) -> String {
    let directory = directory.display();
    format!("finished defragmenting directory {directory}: a Meerkat member gives space back while it runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_defragmentation_ends_in_etcds_words() {
        let said = finished(Path::new("/var/lib/etcd"));
        assert!(said.starts_with("finished defragmenting directory /var/lib/etcd"), "{said}");
    }

    #[test]
    fn offline_defragmentation_tells_whose_directory_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let check = |name: &str, made: &str, expected: Option<&str>| {
            let directory = root.path().join(name);
            std::fs::create_dir_all(directory.join(made)).expect("made");
            let failure = offline(&directory).err().map(|failure| failure.message);
            assert!(
                match (&failure, expected) {
                    (Some(said), Some(expected)) => said.contains(expected),
                    (said, expected) => said.is_none() && expected.is_none(),
                },
                "{name}: {failure:?}"
            );
        };
        check("ours", "member/state", None);
        check("theirs", "member/snap/db", Some("it is a directory of etcd's"));
        check("empty", "", Some("it is no data directory: no such file or directory"));
    }
}
