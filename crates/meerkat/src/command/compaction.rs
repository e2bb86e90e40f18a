//! `compaction`: forget what was before a revision.

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use crate::failure::Failure;

/// Compacts the event history
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct CompactionArgs {
    /// The oldest revision to keep
    #[arg(value_name = "REVISION", allow_negative_numbers = true)]
    revision: Vec<String>,
    /// Wait until the old revisions are physically removed
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    physical: bool,
}

pub async fn run(args: &CompactionArgs, cluster: &Cluster) -> Result<(), Failure> {
    let [text] = args.revision.as_slice() else {
        return Err(Failure::bad_arguments("compaction command needs 1 argument"));
    };
    let revision: i64 = text
        .parse()
        .map_err(|_| Failure::error(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
    let request = pb::CompactionRequest { revision, physical: args.physical };
    cluster.kv(|mut kv| async move { kv.compact(request).await }).await.map_err(refused)?;
    println!("compacted revision {revision}");
    Ok(())
}
