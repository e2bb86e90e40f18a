//! `put`: one key, with its value from the command line or from stdin.

use std::ffi::OsString;
use std::io::Read;

use bytes::Bytes;
use clap::Args;
use meerkat_proto::pb::etcdserver as pb;

use super::cluster::{Cluster, refused};
use super::key_range::bytes;
use super::lease::parse_hex;
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Puts the given key into the store
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct PutArgs {
    /// <key> [value]; without a value it is read from stdin. Put -- before one that begins with a dash
    #[arg(value_name = "KEY_VALUE")]
    key_value: Vec<OsString>,
    /// Lease to attach the key to, in hexadecimal
    #[arg(long, default_value = "0")]
    lease: String,
    /// Return the previous key-value pair before modification
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prev_kv: bool,
    /// Update the key using its current value
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    ignore_value: bool,
    /// Update the key using its current lease
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    ignore_lease: bool,
}

pub async fn run(args: &PutArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let request = request(args, std::io::stdin())?;
    style.format.refuse_table()?;
    let response = cluster.kv(|mut kv| async move { kv.put(request).await }).await.map_err(refused)?;
    print::show(&Answer::Put(response), style)
}

/// The request the arguments ask for. Reads a missing value from `stdin`; a line of a transaction
/// has none and hands in an empty one.
pub fn request(args: &PutArgs, stdin: impl Read) -> Result<pb::PutRequest, Failure> {
    let wrong_count =
        || Failure::bad_arguments("put command needs 1 argument and input from stdin or 2 arguments");
    let key = bytes(args.key_value.first().ok_or_else(wrong_count)?);
    if args.ignore_value && args.key_value.len() > 1 {
        return Err(Failure::bad_arguments("put command needs only 1 argument when 'ignore-value' is set"));
    }
    let value = match args.key_value.get(1) {
        Some(value) => bytes(value),
        None if args.ignore_value => Bytes::new(),
        None => read_value(stdin)?.ok_or_else(wrong_count)?,
    };
    Ok(pb::PutRequest {
        key,
        value,
        lease: lease_id(&args.lease)?,
        prev_kv: args.prev_kv,
        ignore_value: args.ignore_value,
        ignore_lease: args.ignore_lease,
    })
}

/// All of stdin, unless there is nothing in it.
fn read_value(mut stdin: impl Read) -> Result<Option<Bytes>, Failure> {
    let mut value = Vec::new();
    stdin.read_to_end(&mut value)?;
    Ok(Some(Bytes::from(value)).filter(|value| !value.is_empty()))
}

fn lease_id(text: &str) -> Result<i64, Failure> {
    parse_hex(text)
        .map_err(|reason| Failure::bad_arguments(format!("bad lease ID ({reason}), expecting ID in Hex")))
}
