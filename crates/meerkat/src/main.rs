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
mod command_line;
mod demo;
mod dev;
mod dns;
mod endpoint;
mod failure;
mod flag_error;
mod gateway;
mod go_quote;
mod kubeconfig;
mod migrate;
mod print;
mod serve;
mod tier;
mod version;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches};
use command_line::Named;
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
    let called = called(&args);
    let line = args.get(1..).unwrap_or_default().to_vec();
    if called == "etcd" {
        return serve::run(line);
    }
    let tree = if is_tool(&called) { operator_tree } else { tree };
    let named = command_line::named(&tree(), line, |path| may_shorten(&called, path))
        .map_err(|unknown| Failure::error(unknown.text(&called)))?;
    let rest = named.rest.clone();
    match named.path.first().map(String::as_str) {
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
        Some("help") => {
            let topic = command_line::named(&tree(), rest, |path| may_shorten(&called, path))
                .map_err(|unknown| Failure::error(unknown.text(&called)))?;
            leave(help_of(tree(), &called, &topic.path))
        }
        _ => {
            let bare_separator = rest.last().is_some_and(|last| last == "--");
            command::run(operator(tree(), &called, &named), bare_separator, &called, tree)
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

/// The name of the file that was started, which may be a link.
fn called(args: &[OsString]) -> String {
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    name.unwrap_or("meerkat").to_owned()
}

fn is_tool(called: &str) -> bool {
    matches!(called, "etcdctl" | "etcdutl")
}

/// Whether a prefix may stand for the last name of a path. Under the names of etcd's tools only their own
/// commands count, so that a prefix that is unique there is unique here.
fn may_shorten(called: &str, path: &[&str]) -> bool {
    match (called, path) {
        ("etcdutl", [name]) => ["completion", "defrag", "help", "snapshot", "version"].contains(name),
        ("etcdutl", ["snapshot", name]) => ["restore", "status"].contains(name),
        ("etcdctl", ["snapshot", name]) => *name == "save",
        // Ours are spelled out: none of them is started by a slip, nor takes a prefix from etcdctl's commands.
        (_, ["serve" | "dev" | "demo" | "bench" | "listwatch" | "gateway" | "kubeconfig" | "migrate"]) => {
            false
        }
        _ => true,
    }
}

fn parse<T: Args>(command: Command, args: Vec<OsString>) -> T {
    let name = OsString::from(command.get_name());
    let matches = T::augment_args(command).get_matches_from(std::iter::once(name).chain(args));
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Every command there is.
fn tree() -> Command {
    operator_tree().subcommands([
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

/// The operator's commands, as their line is read.
fn operator_tree() -> Command {
    let help = Command::new("help").about("Help about any command");
    as_pflag_reads(command::OperatorCli::command().disable_help_subcommand(true).subcommand(help))
}

/// Switches take Go's words for true and false, and a command that has no use for words ignores them.
fn as_pflag_reads(command: Command) -> Command {
    let is_leaf = !command.has_subcommands() && command.get_positionals().next().is_none();
    let command = command
        .mut_args(|arg| match arg.is_require_equals_set() {
            true => arg.value_parser(flag_error::switch),
            false => arg,
        })
        .mut_subcommands(as_pflag_reads);
    match is_leaf {
        true => command.arg(Arg::new("ignored-words").num_args(0..).hide(true)),
        false => command,
    }
}

/// The operator's command line, whose command is found already.
fn operator(tree: Command, called: &str, named: &Named) -> command::OperatorCli {
    let matches = matches_of(tree, called, named);
    command::OperatorCli::from_arg_matches(&matches).unwrap_or_else(|error| leave(error))
}

/// What the line of a command says. Ends the process where it says something wrong, or nothing but the name of
/// a group.
fn matches_of(tree: Command, called: &str, named: &Named) -> ArgMatches {
    let path = named.path.iter().map(OsString::from);
    let line = std::iter::once(OsString::from(called)).chain(path).chain(named.rest.iter().cloned());
    tree.clone().try_get_matches_from(line).unwrap_or_else(|error| match error.kind() {
        // As cobra: a group by itself tells what is in it.
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            leave(help_of(tree, called, &named.path))
        }
        _ => leave(error),
    })
}

/// The help of a command, which the parser takes for an error of a kind.
fn help_of(tree: Command, called: &str, path: &[String]) -> clap::Error {
    let path = path.iter().map(String::as_str);
    let line = std::iter::once(called).chain(path).chain(["--help"]);
    tree.try_get_matches_from(line).expect_err("help is no command to run")
}

/// As `etcdctl`: 0 after help, 1 after a flag that it does not know.
fn leave(error: clap::Error) -> ! {
    // Nothing is left to do if the terminal has gone.
    match flag_error::text(&error) {
        Some(text) => drop(writeln!(std::io::stderr(), "Error: {text}")),
        None => drop(error.print()),
    }
    std::process::exit(i32::from(error.use_stderr()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path that a line names under a name of the binary; `None` if it names no command.
    fn path(line: &str) -> Option<String> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let called = called(&args);
        let tree = if is_tool(&called) { operator_tree() } else { tree() };
        let named = command_line::named(&tree, args[1..].to_vec(), |path| may_shorten(&called, path));
        named.ok().map(|named| named.path.join(" "))
    }

    #[test]
    fn prefixes_are_those_of_the_tool_that_was_called() {
        for (line, expected) in [
            ("/usr/bin/meerkat serve --name a", Some("serve")),
            ("meerkat ser", None),
            ("meerkat s", Some("snapshot")),
            ("meerkat k", None),
            ("meerkat kubeconfig", Some("kubeconfig")),
            ("meerkat", Some("")),
            ("etcdctl s", Some("snapshot")),
            ("etcdctl snapshot s", Some("snapshot save")),
            ("etcdctl snapshot status f", Some("snapshot status")),
            ("etcdctl serve", None),
            ("etcdctl compact 2", Some("compaction")),
            ("etcdctl mem list", Some("member list")),
            ("etcdctl co", None),
            ("etcdctl h", Some("help")),
            ("./etcdutl d", Some("defrag")),
            ("etcdutl snapshot s f", Some("snapshot status")),
            ("etcdutl snapshot save f", Some("snapshot save")),
        ] {
            assert_eq!(path(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn every_command_line_is_well_formed() {
        tree().debug_assert();
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
