//! `meerkat gateway start`, as `etcd gateway start`: one address in front of a cluster, for clients that
//! know no other.
//!
//! Passes bytes on and looks into none, so TLS and users are between the client and the member. What is
//! wrong with the flags is said before anything is opened, in etcd's words.

mod addresses;
mod discovered;
mod relay;
mod remotes;

use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use addresses::HostPort;
use clap::{Args, Command, FromArgMatches};
use meerkat_proto::{go_duration, reason};
use relay::Relay;
use tokio::net::TcpListener;

use crate::command_line;
use crate::failure::Failure;
use crate::serve::logging::Logging;

/// What a delay of zero means, as in etcd.
const RETRY_DELAY_OF_ZERO: Duration = Duration::from_secs(300);

#[derive(Args, Debug)]
pub struct GatewayArgs {
    /// Where to listen for clients
    #[arg(long, default_value = "127.0.0.1:23790")]
    listen_addr: String,
    /// Members of the cluster, comma-separated
    #[arg(long, default_value = "127.0.0.1:2379")]
    endpoints: Vec<String>,
    /// How long a member that could not be reached is left out before it is tried again
    #[arg(long, default_value = "1m0s", value_parser = go_duration::parse)]
    retry_delay: Duration,
    /// Domain whose SRV records name the members
    #[arg(long, default_value = "")]
    discovery_srv: String,
    /// Cluster in that domain, where there are several
    #[arg(long, default_value = "")]
    discovery_srv_name: String,
    /// Accept members found there that serve plain HTTP or cannot be reached [default: false]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_discovery: Option<bool>,
    /// CA bundle (PEM) that members found there are verified with
    #[arg(long, default_value = "")]
    trusted_ca_file: String,
}

pub fn command() -> Command {
    let start = GatewayArgs::augment_args(Command::new("start").about("Start the gateway"));
    let gateway = Command::new("gateway")
        .about("Pass connections on to whichever members of a cluster are there")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(start);
    crate::as_pflag_reads(gateway)
}

/// As etcd has it.
fn tree() -> Command {
    Command::new("etcd").subcommand(command())
}

/// By what follows the word `gateway` on the command line.
pub fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let line = std::iter::once(OsString::from("gateway")).chain(args).collect();
    let named = command_line::named(&tree(), line, |_| false)
        .map_err(|unknown| Failure::error(unknown.text("etcd")))?;
    // As in etcd, 1 after flags that it does not know.
    let matches = crate::matches_of(tree(), "etcd", &named);
    let gateway = matches.subcommand_matches("gateway").expect("the first word names it");
    let start = gateway.subcommand_matches("start").expect("the parser asks for it");
    start_with(&GatewayArgs::from_arg_matches(start).unwrap_or_else(|error| crate::leave(error)))
}

fn start_with(args: &GatewayArgs) -> Result<(), Failure> {
    let logging = Logging::from_flags("info", "json", "default", None);
    logging.and_then(|logging| logging.install()).map_err(Failure::error)?;
    meerkat_server::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let found = match args.discovery_srv.as_str() {
        "" => Vec::new(),
        domain => runtime.block_on(
            discovered::Search {
                domain,
                service_name: Some(args.discovery_srv_name.as_str()).filter(|name| !name.is_empty()),
                insecure: args.insecure_discovery.unwrap_or(false),
                trusted_ca_file: Some(args.trusted_ca_file.as_str()).filter(|file| !file.is_empty()),
            }
            .endpoints(),
        )?,
    };
    // As in etcd, also where discovery found nobody who is fit.
    let endpoints = if found.is_empty() { args.endpoints.join(",") } else { found.join(",") };
    let outcome = runtime.block_on(serve(args, &endpoints));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(args: &GatewayArgs, endpoints: &str) -> Result<(), Failure> {
    let shutdown = crate::serve::stop_signal()?;
    let endpoints = addresses::endpoints(endpoints).map_err(Failure::error)?;
    check_addresses(&args.listen_addr, &endpoints).await.map_err(Failure::error)?;
    let listener = TcpListener::bind(&args.listen_addr).await.map_err(|error| {
        let reason = reason::of_system(&error);
        Failure::error(format!("listen tcp {}: bind: {reason}", args.listen_addr))
    })?;
    let retry_delay = if args.retry_delay.is_zero() { RETRY_DELAY_OF_ZERO } else { args.retry_delay };
    let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    tracing::info!(
        endpoints = endpoints.join(","),
        listen_addr = args.listen_addr,
        "ready to proxy client requests"
    );
    meerkat_server::tell_manager();
    let relay = Arc::new(Relay::new(endpoints, retry_delay));
    tokio::select! {
        () = relay.run(listener) => {}
        () = shutdown => {}
    }
    Ok(())
}

/// Every host has an address, and none of them is the gateway's own: its connections would go round.
async fn check_addresses(listen_addr: &str, endpoints: &[HostPort]) -> Result<(), String> {
    let own = HostPort::parse(listen_addr)
        .ok_or_else(|| format!("failed to validate listen address: {listen_addr}"))?;
    let own_addresses =
        resolve(&own).await.ok_or_else(|| format!("failed to resolve listen host: {}", own.host))?;
    for endpoint in endpoints {
        let found = resolve(endpoint)
            .await
            .ok_or_else(|| format!("failed to resolve endpoint host: {}", endpoint.host))?;
        let itself = found.into_iter().find(|address| addresses::is_itself(&own_addresses, *address));
        if let Some(address) = itself.filter(|_| endpoint.port == own.port) {
            return Err(format!(
                "SRV or endpoint ({endpoint}->{address}:{}) should not resolve to the gateway listen addr ({listen_addr})",
                endpoint.port
            ));
        }
    }
    if endpoints.is_empty() { Err("no endpoints found".to_owned()) } else { Ok(()) }
}

async fn resolve(address: &HostPort) -> Option<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await.ok()?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    Some(found).filter(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_makes_no_gateway_is_refused_in_etcds_words() {
        // Longer than a part of a name may be, so that no name server is asked for it.
        let no_name = "x".repeat(64);
        let nowhere = format!("{no_name}:1");
        let (no_listener, no_endpoint) = (
            format!("failed to resolve listen host: {no_name}"),
            format!("failed to resolve endpoint host: {no_name}"),
        );
        for (listen, endpoints, expected) in [
            ("127.0.0.1", "127.0.0.1:1", "failed to validate listen address: 127.0.0.1"),
            (&nowhere, "127.0.0.1:1", &no_listener),
            ("127.0.0.1:1", &nowhere, &no_endpoint),
            (
                "127.0.0.1:5",
                "http://127.0.0.2:5,127.0.0.1:5",
                "SRV or endpoint (127.0.0.1:5->127.0.0.1:5) should not resolve to the gateway listen addr \
                 (127.0.0.1:5)",
            ),
            ("127.0.0.1:5", "", "no endpoints found"),
        ] {
            let endpoints = addresses::endpoints(endpoints).expect("well-formed");
            assert_eq!(check_addresses(listen, &endpoints).await, Err(expected.to_owned()));
        }
        let other = addresses::endpoints("127.0.0.1:6,127.0.0.2:5").expect("well-formed");
        assert_eq!(check_addresses("127.0.0.1:5", &other).await, Ok(()));
    }
}
