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
        Some("dev") => dev::run(&parse("dev", rest)),
        Some("demo") => demo::run(&parse("demo", rest)),
        Some("bench") => bench::run(&parse("bench", rest)),
        Some("listwatch") => tier::run(&parse("listwatch", rest)),
        Some("gateway") => gateway::run(rest),
        Some("kubeconfig") => kubeconfig::run(&parse("kubeconfig", rest)),
        Some("migrate") => migrate::run(&parse("migrate", rest)),
        Some("help") => {
            let topic = command_line::named(&tree(), rest, |path| may_shorten(&called, path))
                .map_err(|unknown| Failure::error(unknown.text(&called)))?;
            match topic.path.first() {
                // They read their lines by themselves, and tell what they read.
                Some(name) if own_command(name).is_some() => {
                    // A flag here would take `--help` for its value, and the command would run.
                    let is_word = |word: &OsString| !word.as_encoded_bytes().starts_with(b"-");
                    let words = topic.path.iter().map(OsString::from);
                    let words = words.chain(topic.rest.into_iter().take_while(is_word));
                    let line = std::iter::once(OsString::from(called)).chain(words);
                    run(line.chain([OsString::from("--help")]).collect())
                }
                _ => leave(help_of(tree(), &called, &topic.path)),
            }
        }
        _ => {
            let bare_separator = rest.last().is_some_and(|last| last == "--");
            let shown = if is_tool(&called) { operator_tree } else { tree_with_flags };
            command::run(operator(tree(), &called, &named), bare_separator, &called, shown)
        }
    }
}

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

/// What the line of one of our own commands says.
fn parse<T: Args>(name: &str, args: Vec<OsString>) -> T {
    let command = own_command(name).expect("callers name commands of the list");
    let line = std::iter::once(OsString::from(format!("meerkat {name}"))).chain(args);
    let matches = command.get_matches_from(line);
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The commands beside the operator's, with their flags. None of them has the operator's.
fn own_commands() -> [Command; 8] {
    [
        serve::command(),
        own::<dev::DevArgs>("dev", "Run a throw-away cluster on this machine"),
        own::<demo::DemoArgs>("demo", "Break a throw-away cluster on screen and see that nothing is lost"),
        own::<bench::BenchArgs>("bench", "Load any etcd v3 cluster and measure it"),
        own::<tier::TierArgs>(
            "listwatch",
            "Serve the list-watch API in front of a cluster, of Meerkat or of etcd",
        ),
        gateway::command(),
        own::<kubeconfig::KubeconfigArgs>(
            "kubeconfig",
            "Write the file with which kubectl finds a list-watch door",
        ),
        own::<migrate::MigrateArgs>("migrate", "Carry a live etcd over to Meerkat while it is written to"),
    ]
}

fn own<T: Args>(name: &'static str, about: &'static str) -> Command {
    T::augment_args(Command::new(name).about(about))
}

fn own_command(name: &str) -> Option<Command> {
    own_commands().into_iter().find(|command| command.get_name() == name)
}

/// Every command there is, as a line names it. Those of [`own_commands`] read what follows by themselves, so
/// that they are names here.
fn tree() -> Command {
    let names = own_commands().map(|own| {
        let about = own.get_about().cloned().unwrap_or_default();
        Command::new(own.get_name().to_owned()).about(about)
    });
    operator_tree().subcommands(names)
}

/// Every command with every flag that it takes, for shells to complete.
fn tree_with_flags() -> Command {
    spread(operator_tree(), &[]).subcommands(own_commands())
}

/// Gives each command the flags that it has from those around it, and takes from them that all below have them.
fn spread(command: Command, inherited: &[Arg]) -> Command {
    let is_new = |arg: &&Arg| command.get_arguments().all(|own| own.get_id() != arg.get_id());
    let added: Vec<Arg> = inherited.iter().filter(is_new).cloned().collect();
    let shared = command.get_arguments().filter(|arg| arg.is_global_set());
    let below: Vec<Arg> =
        shared.map(|arg| arg.clone().global(false)).chain(inherited.iter().cloned()).collect();
    command
        .mut_args(|arg| arg.global(false))
        .args(added)
        .mut_subcommands(|subcommand| spread(subcommand, &below))
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
        tree_with_flags().debug_assert();
        own_commands().into_iter().for_each(Command::debug_assert);
    }

    #[test]
    fn completions_know_flags_of_each_command_and_no_others() {
        let mut tree = tree_with_flags();
        tree.build();
        let flags = |path: &str| {
            let command = path.split(' ').fold(&tree, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no {path}"))
            });
            let longs = command.get_arguments().filter_map(Arg::get_long);
            longs.map(str::to_owned).collect::<Vec<String>>()
        };
        for (path, flag, known) in [
            ("serve", "listen-client-urls", true),
            ("serve", "command-timeout", false),
            ("dev", "nodes", true),
            ("dev", "endpoints", false),
            ("bench", "clients", true),
            ("demo failover", "faults", true),
            ("gateway start", "listen-addr", true),
            ("gateway start", "hex", false),
            ("get", "command-timeout", true),
            ("member list", "endpoints", true),
            ("endpoint health", "cluster", true),
        ] {
            assert_eq!(flags(path).contains(&flag.to_owned()), known, "{path} --{flag}");
        }
    }
}
