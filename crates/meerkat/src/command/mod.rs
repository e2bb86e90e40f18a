//! The operator's tool, fluent for anyone who knows `etcdctl`: its commands, flags, variables,
//! outputs and exit statuses. One command, one file.
//!
//! A command reads its arguments, makes its requests, and hands an answer to `print`. Arguments are
//! checked before anything is sent.

mod alarm;
mod arguments;
mod auth;
mod check;
mod child;
mod cluster;
mod compaction;
mod completion;
mod consistency;
mod defrag;
mod del;
mod discovery;
mod downgrade;
mod elect;
mod endpoint;
mod get;
mod global;
mod key_range;
mod lease;
mod lock;
mod make_mirror;
mod member;
mod move_leader;
mod password;
mod put;
mod role;
mod signals;
mod snapshot;
mod times;
mod txn;
mod txn_text;
mod user;
mod version;
mod watch;

use std::time::Duration;

use clap::{Parser, Subcommand};

pub use self::cluster::{Cluster, Dialing};
pub use self::discovery::Discovery;
use self::global::{GlobalArgs, Settings, settings};
pub use self::global::{TlsFiles, login};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::print::Style;

/// A watchable key-value store that speaks etcd's v3 API
#[derive(Parser, Debug)]
#[command(name = "meerkat", version, args_override_self = true, subcommand_required = true)]
pub struct OperatorCli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: OperatorCommand,
}

/// In the order in which `etcdctl` suggests them.
#[derive(Subcommand, Debug)]
enum OperatorCommand {
    Get(get::GetArgs),
    Put(put::PutArgs),
    Del(del::DelArgs),
    Txn(txn::TxnArgs),
    Compaction(compaction::CompactionArgs),
    Alarm(alarm::AlarmArgs),
    Defrag(defrag::DefragArgs),
    Endpoint(endpoint::EndpointArgs),
    MoveLeader(move_leader::MoveLeaderArgs),
    Watch(watch::WatchArgs),
    Version(version::VersionArgs),
    Lease(lease::LeaseArgs),
    Member(member::MemberArgs),
    Snapshot(snapshot::SnapshotArgs),
    MakeMirror(make_mirror::MakeMirrorArgs),
    Lock(lock::LockArgs),
    Elect(elect::ElectArgs),
    Auth(auth::AuthArgs),
    User(user::UserArgs),
    Role(role::RoleArgs),
    Check(check::CheckArgs),
    Completion(completion::CompletionArgs),
    Downgrade(downgrade::DowngradeArgs),
}

/// `bare_separator`: whether the command line ends with a `--` that nothing follows, which the parser
/// does not tell. `called`: the name that the program was started under. `tree`: every command of the
/// binary.
pub fn run(
    cli: OperatorCli,
    bare_separator: bool,
    called: &str,
    tree: fn() -> clap::Command,
) -> Result<(), Failure> {
    if let OperatorCommand::Version(_) = cli.command {
        print!("{}", crate::version::of_tool(called));
        return Ok(());
    }
    let settings = settings(&cli.global, |variable| std::env::var(variable).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Settings { endpoints, style, dialing } = settings;
    let cluster = Cluster::new(endpoints, dialing);
    let outcome = runtime.block_on(dispatch(cli.command, &cluster, style, bare_separator, tree));
    cluster.judge(outcome)
}

async fn dispatch(
    command: OperatorCommand,
    cluster: &Cluster,
    style: Style,
    bare_separator: bool,
    tree: fn() -> clap::Command,
) -> Result<(), Failure> {
    match command {
        OperatorCommand::Get(args) => get::run(&args, cluster, style).await,
        OperatorCommand::Put(args) => put::run(&args, cluster, style).await,
        OperatorCommand::Del(args) => del::run(&args, cluster, style).await,
        OperatorCommand::Txn(args) => txn::run(&args, cluster, style).await,
        OperatorCommand::Watch(args) => watch::run(&args, cluster, style, bare_separator).await,
        OperatorCommand::Compaction(args) => compaction::run(&args, cluster).await,
        OperatorCommand::Lease(args) => lease::run(&args, cluster, style).await,
        OperatorCommand::Endpoint(args) => endpoint::run(&args, cluster, style).await,
        OperatorCommand::Member(args) => member::run(&args, cluster, style).await,
        OperatorCommand::MoveLeader(args) => move_leader::run(&args, cluster, style).await,
        OperatorCommand::Alarm(args) => alarm::run(&args, cluster, style).await,
        OperatorCommand::Defrag(args) => defrag::run(&args, cluster).await,
        OperatorCommand::Downgrade(args) => downgrade::run(&args, cluster, style).await,
        OperatorCommand::Auth(args) => auth::run(&args, cluster, style).await,
        OperatorCommand::User(args) => user::run(&args, cluster, style).await,
        OperatorCommand::Role(args) => role::run(&args, cluster, style).await,
        OperatorCommand::Lock(args) => lock::run(&args, cluster, style).await,
        OperatorCommand::Elect(args) => elect::run(&args, cluster, style).await,
        OperatorCommand::MakeMirror(args) => make_mirror::run(&args, cluster).await,
        OperatorCommand::Check(args) => check::run(&args, cluster).await,
        OperatorCommand::Snapshot(args) => snapshot::run(args, cluster, style).await,
        // Said before anything is dialled.
        OperatorCommand::Version(_) => Ok(()),
        OperatorCommand::Completion(args) => completion::run(&args, tree()),
    }
}

/// Whether a member answers a linearizable read, which takes a leader and a quorum.
pub async fn read_linearizably(endpoint: Endpoint, timeout: Duration) -> Result<(), String> {
    endpoint::read(&Cluster::new(vec![endpoint], Dialing::plain(timeout, timeout)).quiet()).await
}

/// The endpoints to talk to, encrypted or not: those of the flag, else of the environment, else this
/// machine's.
pub fn any_endpoints_from(flag: Option<&str>) -> Result<Vec<Endpoint>, Failure> {
    global::any_endpoints(flag, |variable| std::env::var(variable).ok())
}

/// The endpoints to talk to in clear: those of the flag, else of the environment, else this machine's.
pub fn endpoints_from(flag: Option<&str>) -> Result<Vec<Endpoint>, Failure> {
    global::plain_endpoints(flag, |variable| std::env::var(variable).ok())
}
