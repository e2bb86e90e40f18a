//! `del`: one key or a range of keys.

use std::ffi::OsString;

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use super::key_range;
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Removes the specified key or range of keys [key, range_end)
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct DelArgs {
    /// <key> [range_end]
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Delete keys with matching prefix
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prefix: bool,
    /// Delete keys that are greater than or equal to the given key using byte compare
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    from_key: bool,
    /// Says that range_end is meant; it is taken without this too
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    range: bool,
    /// Return deleted key-value pairs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prev_kv: bool,
}

pub async fn run(args: &DelArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let request = request(args)?;
    style.format.refuse_table()?;
    let response =
        cluster.kv(|mut kv| async move { kv.delete_range(request).await }).await.map_err(refused)?;
    print::show(&Answer::Del(response), style)
}

/// The request the arguments ask for. Also used for the lines of a transaction.
pub fn request(args: &DelArgs) -> Result<pb::DeleteRangeRequest, Failure> {
    if !(1..=2).contains(&args.keys.len()) {
        return Err(Failure::bad_arguments(
            "del command needs one argument as key and an optional argument as range_end",
        ));
    }
    let range = key_range::read(&args.keys, args.prefix, args.from_key)?;
    Ok(pb::DeleteRangeRequest { key: range.key, range_end: range.range_end, prev_kv: args.prev_kv })
}
