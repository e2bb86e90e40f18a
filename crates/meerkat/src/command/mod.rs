//! The operator's tool, fluent for anyone who knows `etcdctl`: its commands, flags, variables,
//! outputs and exit statuses. One command, one file.
//!
//! A command reads its arguments, makes its requests, and hands an answer to `print`. Arguments are
//! checked before anything is sent.

mod cluster;
mod compaction;
mod del;
mod endpoint;
mod get;
mod key_range;
mod lease;
mod member;
mod move_leader;
mod put;
mod times;
mod txn;
mod txn_text;
mod watch;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use self::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::go_duration;
use crate::print::{Format, Style};

const ENDPOINT_DEFAULT: &str = "127.0.0.1:2379";

/// A watchable key-value store that speaks etcd's v3 API
#[derive(Parser, Debug)]
#[command(name = "meerkat", version, args_override_self = true, subcommand_required = true)]
pub struct OperatorCli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: OperatorCommand,
}

#[derive(Args, Debug)]
struct GlobalArgs {
    /// Members to talk to, comma-separated [default: 127.0.0.1:2379; MEERKAT_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long, global = true)]
    endpoints: Option<String>,
    /// Output format: simple, json, fields, table or protobuf [default: simple]
    #[arg(short, long, global = true)]
    write_out: Option<String>,
    /// Print byte strings in hexadecimal
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hex: Option<bool>,
    /// How long a request may take [default: 5s]
    #[arg(long, global = true)]
    command_timeout: Option<String>,
    /// How long a connection may take [default: 2s]
    #[arg(long, global = true)]
    dial_timeout: Option<String>,
    #[arg(long, global = true, hide = true)]
    cacert: Option<String>,
    #[arg(long, global = true, hide = true)]
    cert: Option<String>,
    #[arg(long, global = true, hide = true)]
    key: Option<String>,
    #[arg(long, global = true, hide = true)]
    user: Option<String>,
    #[arg(long, global = true, hide = true)]
    password: Option<String>,
    #[arg(short = 'd', long, global = true, hide = true)]
    discovery_srv: Option<String>,
    // Accepted and without effect: what they would change does not exist here.
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    debug: Option<bool>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_transport: Option<bool>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_skip_tls_verify: Option<bool>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_discovery: Option<bool>,
    #[arg(long, global = true, hide = true)]
    keepalive_time: Option<String>,
    #[arg(long, global = true, hide = true)]
    keepalive_timeout: Option<String>,
}

#[derive(Subcommand, Debug)]
enum OperatorCommand {
    Get(get::GetArgs),
    Put(put::PutArgs),
    Del(del::DelArgs),
    Txn(txn::TxnArgs),
    Watch(watch::WatchArgs),
    Compaction(compaction::CompactionArgs),
    Lease(lease::LeaseArgs),
    Endpoint(endpoint::EndpointArgs),
    Member(member::MemberArgs),
    MoveLeader(move_leader::MoveLeaderArgs),
}

/// What the global flags and variables come to.
struct Settings {
    endpoints: Vec<Endpoint>,
    style: Style,
    command_timeout: Duration,
    dial_timeout: Duration,
}

/// `bare_separator`: whether the command line ends with a `--` that nothing follows, which the parser
/// does not tell.
pub fn run(cli: OperatorCli, bare_separator: bool) -> Result<(), Failure> {
    let settings = settings(&cli.global, |variable| std::env::var(variable).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = Cluster::new(settings.endpoints, settings.dial_timeout, settings.command_timeout);
        let style = settings.style;
        match cli.command {
            OperatorCommand::Get(args) => get::run(&args, &cluster, style).await,
            OperatorCommand::Put(args) => put::run(&args, &cluster, style).await,
            OperatorCommand::Del(args) => del::run(&args, &cluster, style).await,
            OperatorCommand::Txn(args) => txn::run(&args, &cluster, style).await,
            OperatorCommand::Watch(args) => watch::run(&args, &cluster, style, bare_separator).await,
            OperatorCommand::Compaction(args) => compaction::run(&args, &cluster).await,
            OperatorCommand::Lease(args) => lease::run(&args, &cluster, style).await,
            OperatorCommand::Endpoint(args) => endpoint::run(&args, &cluster, style).await,
            OperatorCommand::Member(args) => member::run(&args, &cluster, style).await,
            OperatorCommand::MoveLeader(args) => move_leader::run(&args, &cluster).await,
        }
    })
}

/// Whether a member answers a linearizable read, which takes a leader and a quorum.
pub async fn read_linearizably(endpoint: Endpoint, timeout: Duration) -> Result<(), String> {
    endpoint::read(&Cluster::new(vec![endpoint], timeout, timeout).quiet()).await
}

/// The endpoints to talk to: those of the flag, else of the environment, else this machine's.
pub fn endpoints_from(flag: Option<&str>) -> Result<Vec<Endpoint>, Failure> {
    choose_endpoints(flag, |variable| std::env::var(variable).ok())
}

fn choose_endpoints(
    flag: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Endpoint>, Failure> {
    let from_environment = ["MEERKAT_ENDPOINTS", "ETCDCTL_ENDPOINTS"].into_iter().filter_map(variable);
    let chosen =
        flag.map(str::to_owned).or_else(|| from_environment.into_iter().find(|text| !text.is_empty()));
    Endpoint::parse_list(chosen.as_deref().unwrap_or(ENDPOINT_DEFAULT))
}

fn settings(global: &GlobalArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Failure> {
    let setting = |flag: &Option<String>, name: &str| {
        flag.clone().or_else(|| variable(&format!("ETCDCTL_{name}")).filter(|text| !text.is_empty()))
    };
    let refusals = [
        (&global.cacert, "CACERT", "--cacert: TLS"),
        (&global.cert, "CERT", "--cert: TLS"),
        (&global.key, "KEY", "--key: TLS"),
        (&global.user, "USER", "--user: authentication"),
        (&global.password, "PASSWORD", "--password: authentication"),
        (&global.discovery_srv, "DISCOVERY_SRV", "--discovery-srv: discovery"),
    ];
    for (flag, name, what) in refusals {
        if setting(flag, name).is_some_and(|value| !value.is_empty()) {
            return Err(Failure::bad_arguments(format!("{what} is not supported in this version")));
        }
    }
    let duration = |flag: &Option<String>, name: &str, default: &str| {
        let text = setting(flag, name).unwrap_or_else(|| default.to_owned());
        let flag_name = name.to_lowercase().replace('_', "-");
        go_duration::parse(&text).map_err(|reason| {
            Failure::error(format!("invalid argument {text:?} for \"--{flag_name}\" flag: {reason}"))
        })
    };
    let hex = setting(&global.hex.map(|hex| hex.to_string()), "HEX");
    Ok(Settings {
        endpoints: choose_endpoints(global.endpoints.as_deref(), &variable)?,
        style: Style {
            format: Format::parse(setting(&global.write_out, "WRITE_OUT").as_deref().unwrap_or("simple"))?,
            hex: hex.as_deref() == Some("true"),
        },
        command_timeout: duration(&global.command_timeout, "COMMAND_TIMEOUT", "5s")?,
        dial_timeout: duration(&global.dial_timeout, "DIAL_TIMEOUT", "2s")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], environment: &[(&str, &str)], expected: &str) {
        let cli = OperatorCli::try_parse_from(["meerkat"].iter().chain(args)).expect("good arguments");
        let variable =
            |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let got = match settings(&cli.global, variable) {
            Ok(s) => {
                let endpoints: Vec<String> = s.endpoints.iter().map(Endpoint::to_string).collect();
                format!(
                    "{} {:?} {} {:?}",
                    endpoints.join(","),
                    s.style.format,
                    s.style.hex,
                    s.command_timeout
                )
            }
            Err(failure) => failure.message,
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn flags_go_before_and_after_the_command() {
        check(&["--endpoints", "a:1", "get", "k"], &[], "a:1 Simple false 5s");
        check(&["get", "k", "--endpoints=a:1,b:2", "-w", "json", "--hex"], &[], "a:1,b:2 Json true 5s");
    }

    #[test]
    fn variables_stand_in_for_flags_and_yield_to_them() {
        check(&["get", "k"], &[("ETCDCTL_ENDPOINTS", "e:1")], "e:1 Simple false 5s");
        check(
            &["get", "k"],
            &[("ETCDCTL_ENDPOINTS", "e:1"), ("MEERKAT_ENDPOINTS", "m:1")],
            "m:1 Simple false 5s",
        );
        check(&["get", "k", "--endpoints=f:1"], &[("ETCDCTL_ENDPOINTS", "e:1")], "f:1 Simple false 5s");
        check(
            &["get", "k"],
            &[("ETCDCTL_WRITE_OUT", "table"), ("ETCDCTL_HEX", "true"), ("ETCDCTL_COMMAND_TIMEOUT", "1m")],
            "127.0.0.1:2379 Table true 60s",
        );
    }

    #[test]
    fn what_this_version_cannot_do_is_refused_and_not_ignored() {
        check(&["get", "k", "--cacert", "x"], &[], "--cacert: TLS is not supported in this version");
        check(
            &["get", "k"],
            &[("ETCDCTL_USER", "root")],
            "--user: authentication is not supported in this version",
        );
        check(&["get", "k", "-w", "xml"], &[], "unsupported output format");
        check(
            &["get", "k", "--command-timeout", "1x"],
            &[],
            "invalid argument \"1x\" for \"--command-timeout\" flag: time: unknown unit \"x\" in duration \"1x\"",
        );
    }
}
