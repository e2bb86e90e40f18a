//! `get`: one key or a range of keys, as it is or as it was.

use std::ffi::OsString;

use clap::Args;
use meerkat_proto::pb::etcdserver as pb;
use pb::range_request::{SortOrder, SortTarget};

use super::cluster::{Cluster, refused};
use super::consistency::linearizable;
use super::key_range;
use super::times;
use crate::failure::Failure;
use crate::print::{self, Answer, Format, Style};

/// Gets the key or a range of keys
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct GetArgs {
    /// <key> [range_end]
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Get keys with matching prefix
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prefix: bool,
    /// Get keys that are greater than or equal to the given key using byte compare
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    from_key: bool,
    /// Read at this revision instead of the current one
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    rev: i64,
    /// Most keys to get; 0: all
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    limit: i64,
    /// CREATE, KEY, MODIFY, VALUE or VERSION
    #[arg(long, default_value = "")]
    sort_by: String,
    /// ASCEND or DESCEND
    #[arg(long, default_value = "")]
    order: String,
    /// Get only the keys
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    keys_only: bool,
    /// Get only the count (needs -w fields)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    count_only: bool,
    /// Linearizable (l) or serializable (s)
    #[arg(long, default_value = "l")]
    consistency: String,
    /// Only keys created at this revision or later; 0: all
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    min_create_rev: i64,
    /// Only keys created at this revision or before; 0: all
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    max_create_rev: i64,
    /// Only keys last changed at this revision or later; 0: all
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    min_mod_rev: i64,
    /// Only keys last changed at this revision or before; 0: all
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    max_mod_rev: i64,
    /// Only write values, in the simple format
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    print_value_only: bool,
    /// Also show when each key was created and last changed (Meerkat only)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    times: bool,
}

pub async fn run(args: &GetArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let request = request(args)?;
    if args.count_only && style.format != Format::Fields {
        return Err(Failure::bad_arguments("--count-only is only for `--write-out=fields`"));
    }
    if args.print_value_only && style.format != Format::Simple {
        return Err(Failure::bad_arguments("print-value-only is only for `--write-out=simple`"));
    }
    if args.times {
        refuse_with_times(args, style)?;
        return print::show(&Answer::Timed(times::range(cluster, request).await?), style);
    }
    style.format.refuse_table()?;
    let response = cluster.kv(|mut kv| async move { kv.range(request).await }).await.map_err(refused)?;
    print::show(&Answer::Get { response, values_only: args.print_value_only }, style)
}

/// Times are those of the present, and stand beside the key-values.
fn refuse_with_times(args: &GetArgs, style: Style) -> Result<(), Failure> {
    let contradicts = [
        (args.rev != 0, "--rev: only the present has its times"),
        (args.count_only, "--count-only"),
        (args.print_value_only, "--print-value-only"),
        (args.consistency != "l", "--consistency=s: the times are read linearizably"),
        (style.format == Format::Protobuf, "-w protobuf: etcd's message has no field for them"),
    ];
    match contradicts.iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(Failure::bad_arguments(format!("--times cannot be combined with {what}"))),
        None => Ok(()),
    }
}

/// The same for a line of a transaction, which cannot ask for times.
pub fn request_in_txn(args: &GetArgs) -> Result<pb::RangeRequest, Failure> {
    if args.times {
        return Err(Failure::bad_input("--times cannot be used inside a transaction"));
    }
    request(args)
}

/// The request the arguments ask for.
fn request(args: &GetArgs) -> Result<pb::RangeRequest, Failure> {
    if args.keys.is_empty() {
        return Err(Failure::bad_arguments(
            "get command needs one argument as key and an optional argument as range_end",
        ));
    }
    if args.keys_only && args.count_only && !(args.prefix && args.from_key) {
        return Err(Failure::bad_arguments(
            "`--keys-only` and `--count-only` cannot be set at the same time, choose one",
        ));
    }
    let serializable = !linearizable(&args.consistency)?;
    let range = key_range::read(&args.keys, args.prefix, args.from_key)?;
    let created = revisions("Create", args.min_create_rev, args.max_create_rev)?;
    let changed = revisions("Mod", args.min_mod_rev, args.max_mod_rev)?;
    Ok(pb::RangeRequest {
        key: range.key,
        range_end: range.range_end,
        limit: args.limit,
        revision: args.rev,
        sort_order: sort_order(&args.order)?.into(),
        sort_target: sort_target(&args.sort_by)?.into(),
        serializable,
        keys_only: args.keys_only,
        count_only: args.count_only,
        min_create_revision: created.0,
        max_create_revision: created.1,
        min_mod_revision: changed.0,
        max_mod_revision: changed.1,
    })
}

/// From which revision to which. A bound that is not above 0 is none.
fn revisions(kind: &str, min: i64, max: i64) -> Result<(i64, i64), Failure> {
    let (min, max) = (min.max(0), max.max(0));
    if 0 < max && max < min {
        return Err(Failure::bad_arguments(format!("getMin{kind}Rev(={min}) > getMax{kind}Rev(={max})")));
    }
    Ok((min, max))
}

fn sort_order(text: &str) -> Result<SortOrder, Failure> {
    match text.to_uppercase().as_str() {
        "" => Ok(SortOrder::None),
        "ASCEND" => Ok(SortOrder::Ascend),
        "DESCEND" => Ok(SortOrder::Descend),
        _ => Err(Failure::bad_feature(format!("bad sort order {text}"))),
    }
}

fn sort_target(text: &str) -> Result<SortTarget, Failure> {
    match text.to_uppercase().as_str() {
        "" | "KEY" => Ok(SortTarget::Key),
        "CREATE" => Ok(SortTarget::Create),
        "MODIFY" => Ok(SortTarget::Mod),
        "VALUE" => Ok(SortTarget::Value),
        "VERSION" => Ok(SortTarget::Version),
        _ => Err(Failure::bad_feature(format!("bad sort target {text}"))),
    }
}
