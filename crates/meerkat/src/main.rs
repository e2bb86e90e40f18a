//! One binary for all of it: a member (`serve`), a throw-away cluster (`dev`), one that is broken on
//! screen (`demo`), a load generator (`bench`), one address in front of a cluster (`gateway`), the list-watch
//! door of a cluster elsewhere (`listwatch`) and the file that leads `kubectl` to a door (`kubeconfig`), the way over from etcd (`migrate`), and the
//! operator's tool (everything else).
//!
//! Only this file reads the process's arguments and ends the process. Started under the name
//! `etcd` it is `meerkat serve`, and under the names `etcdctl` and `etcdutl` the operator's tool, so
//! that it fits where those were.

mod bench;
mod command;
mod demo;
mod dev;
mod dns;
mod endpoint;
mod failure;
mod gateway;
mod go_quote;
mod kubeconfig;
mod migrate;
mod print;
mod serve;
mod tier;
mod version;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory, FromArgMatches};
use failure::Failure;
use meerkat_proto::go_duration;

/// Requests allocate and free small things on every thread; the C library's allocator spends twice
/// the time on it (docs/adr/0003).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("Error: {failure}");
            }
            ExitCode::from(failure.status)
        }
    }
}

fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let (name, rest) = command_name(&args);
    match name.as_deref() {
        Some("serve") => serve::run(rest),
        Some("dev") => dev::run(&parse(Command::new("meerkat dev").about(DEV), rest)),
        Some("demo") => demo::run(&parse(Command::new("meerkat demo").about(DEMO), rest)),
        Some("bench") => bench::run(&parse(Command::new("meerkat bench").about(BENCH), rest)),
        Some("listwatch") => tier::run(&parse(Command::new("meerkat listwatch").about(LISTWATCH), rest)),
        Some("gateway") => gateway::run(rest),
        Some("kubeconfig") => {
            kubeconfig::run(&parse(Command::new("meerkat kubeconfig").about(KUBECONFIG), rest))
        }
        Some("migrate") => migrate::run(&parse(Command::new("meerkat migrate").about(MIGRATE), rest)),
        _ => {
            let bare_separator = args.last().is_some_and(|last| last == "--");
            let called = called(&args).unwrap_or_default().to_owned();
            command::run(operator(args), bare_separator, &called, tree)
        }
    }
}

const SERVE: &str = "Run one member of a cluster, with etcd's flags";
const DEV: &str = "Run a throw-away cluster on this machine";
const DEMO: &str = "Break a throw-away cluster on screen and see that nothing is lost";
const BENCH: &str = "Load any etcd v3 cluster and measure it";
const LISTWATCH: &str = "Serve the list-watch API in front of a cluster, of Meerkat or of etcd";
const MIGRATE: &str = "Carry a live etcd over to Meerkat while it is written to";
const GATEWAY: &str = "Pass connections on to whichever members of a cluster are there";
const KUBECONFIG: &str = "Write the file with which kubectl finds a list-watch door";

/// What to do, by the first argument or by the name the binary was called; and the arguments left.
fn command_name(args: &[OsString]) -> (Option<String>, Vec<OsString>) {
    match called(args) {
        Some("etcd") => return (Some("serve".to_owned()), args[1..].to_vec()),
        Some("etcdctl" | "etcdutl") => return (None, args[1..].to_vec()),
        _ => {}
    }
    let first = args.get(1).and_then(|arg| arg.to_str()).map(str::to_owned);
    (first, args.get(2..).unwrap_or_default().to_vec())
}

/// The name of the file that was started, which may be a link.
fn called(args: &[OsString]) -> Option<&str> {
    args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str())
}

fn parse<T: Args>(command: Command, args: Vec<OsString>) -> T {
    let name = OsString::from(command.get_name());
    let matches = T::augment_args(command).get_matches_from(std::iter::once(name).chain(args));
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Every command there is.
fn tree() -> Command {
    command::OperatorCli::command().subcommands([
        Command::new("serve").about(SERVE),
        Command::new("dev").about(DEV),
        Command::new("demo").about(DEMO),
        Command::new("bench").about(BENCH),
        Command::new("listwatch").about(LISTWATCH),
        Command::new("gateway").about(GATEWAY),
        Command::new("kubeconfig").about(KUBECONFIG),
        Command::new("migrate").about(MIGRATE),
    ])
}

/// The operator's command line. Its help lists the other commands too.
fn operator(args: Vec<OsString>) -> command::OperatorCli {
    let matches = tree().try_get_matches_from(args).unwrap_or_else(|error| leave(error));
    command::OperatorCli::from_arg_matches(&matches).unwrap_or_else(|error| leave(error))
}

/// As `etcdctl`: 0 after help, 1 after a flag that it does not know.
fn leave(error: clap::Error) -> ! {
    // Nothing is left to do if the terminal has gone.
    drop(error.print());
    std::process::exit(i32::from(error.use_stderr()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], name: Option<&str>, rest: &[&str]) {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
        assert_eq!(command_name(&args), (name.map(str::to_owned), rest));
    }

    #[test]
    fn the_name_of_the_binary_decides_when_it_is_etcds() {
        check(&["/usr/bin/etcd", "--name", "a"], Some("serve"), &["--name", "a"]);
        check(&["/usr/bin/meerkat", "serve", "--name", "a"], Some("serve"), &["--name", "a"]);
        check(&["etcdctl", "get", "a"], None, &["get", "a"]);
        check(&["./etcdutl", "serve"], None, &["serve"]);
        check(&["meerkat"], None, &[]);
    }

    #[test]
    fn every_command_line_is_well_formed() {
        command::OperatorCli::command().debug_assert();
        serve::command().debug_assert();
        gateway::command().debug_assert();
        dev::DevArgs::augment_args(Command::new("dev")).debug_assert();
        demo::DemoArgs::augment_args(Command::new("demo")).debug_assert();
        bench::BenchArgs::augment_args(Command::new("bench")).debug_assert();
        tier::TierArgs::augment_args(Command::new("listwatch")).debug_assert();
        kubeconfig::KubeconfigArgs::augment_args(Command::new("kubeconfig")).debug_assert();
        migrate::MigrateArgs::augment_args(Command::new("migrate")).debug_assert();
    }
}
