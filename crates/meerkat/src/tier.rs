//! `meerkat listwatch`: the list-watch door as a process of its own, in front of a cluster elsewhere.
//!
//! It keeps nothing: any number of them can run beside each other, and one can be started or stopped at
//! any time. The cluster may be of Meerkat's or of etcd's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use meerkat::listwatch::{DoorPort, RemoteStore, addresses};
use meerkat_client::{Client, Config, Tls};
use meerkat_listwatch::door::{self, DoorConfig};
use meerkat_server::config::{MemberUrl, NetworkOptions, RawSecurity, RawTls, TlsConfig};
use meerkat_server::tls::Keys;
use meerkat_watchcache::store::Store;

use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::serve::logging::Logging;
use crate::serve::{failed, stop_signal};

#[derive(Args, Debug)]
pub struct TierArgs {
    /// Members of the cluster, comma-separated [default: 127.0.0.1:2379; MEERKAT_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long)]
    endpoints: Option<String>,
    /// Where to listen, comma-separated
    #[arg(long, env = "MEERKAT_LISTEN_URLS", default_value = "http://127.0.0.1:2378")]
    listen_urls: String,
    /// Certificate for https:// in --listen-urls (PEM)
    #[arg(long, default_value = "")]
    cert_file: String,
    /// Its key (PEM)
    #[arg(long, default_value = "")]
    key_file: String,
    /// Authorities that vouch for callers (PEM); if given, callers need a certificate
    #[arg(long, default_value = "")]
    trusted_ca_file: String,
    /// Authorities that vouch for the cluster's members (PEM)
    #[arg(long)]
    cacert: Option<PathBuf>,
    /// Certificate to show to the cluster's members (PEM)
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// Listen beyond this machine, though nobody there has to say who they are
    #[arg(long, env = "MEERKAT_LISTWATCH_ALLOW_INSECURE")]
    listwatch_allow_insecure: bool,
    /// debug, info, warn or error; or a filter by module
    #[arg(long, default_value = "info")]
    log_level: String,
    /// json or console
    #[arg(long, default_value = "json")]
    log_format: String,
}

pub fn run(args: &TierArgs) -> Result<(), Failure> {
    let endpoints = crate::command::any_endpoints_from(args.endpoints.as_deref())?;
    let tls =
        TlsConfig::from_flags(&raw_tls(args)).map_err(|error| Failure::bad_arguments(error.to_string()))?;
    let leave = addresses::Leave {
        insecure: args.listwatch_allow_insecure,
        tls: tls.client.own.is_some(),
        callers_prove: tls.client.callers_prove,
    };
    let urls = addresses::parse("listen-urls", &args.listen_urls, leave).map_err(Failure::bad_arguments)?;
    if urls.is_empty() {
        return Err(Failure::bad_arguments("--listen-urls: give at least one, as http://127.0.0.1:2378"));
    }
    let way = Way { config: client_config(args, &endpoints)?, endpoints };
    let keys = Keys::of_clients(&tls).map_err(|error| Failure::error(error.to_string()))?;
    let logging = Logging::from_flags(&args.log_level, &args.log_format, "default", None);
    logging.and_then(|logging| logging.install()).map_err(Failure::error)?;
    meerkat_server::raise_limit();
    if addresses::are_open_to_others(&urls, tls.client.callers_prove) {
        tracing::warn!(at = %addresses::text(&urls), "{}", addresses::WARNING);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(way, &urls, &keys));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}

fn raw_tls(args: &TierArgs) -> RawTls {
    let client = RawSecurity {
        cert_file: args.cert_file.clone(),
        key_file: args.key_file.clone(),
        trusted_ca_file: args.trusted_ca_file.clone(),
        ..RawSecurity::default()
    };
    RawTls { client, ..RawTls::default() }
}

/// The way to the cluster.
struct Way {
    endpoints: Vec<Endpoint>,
    config: Config,
}

fn client_config(args: &TierArgs, endpoints: &[Endpoint]) -> Result<Config, Failure> {
    let read = |file: &Path| {
        std::fs::read(file)
            .map_err(|error| Failure::error(format!("cannot read {}: {error}", file.display())))
    };
    let mut tls = Tls::new();
    if let Some(file) = &args.cacert {
        tls = tls.authority(read(file)?);
    }
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        tls = tls.identity(read(cert)?, read(key)?);
    }
    // The cluster may come up later, or be gone for a while.
    Ok(Config::new(endpoints.iter().map(Endpoint::uri)).lazy().tls(tls))
}

async fn serve(way: Way, urls: &[MemberUrl], keys: &Keys) -> Result<(), Failure> {
    let shutdown = stop_signal().map_err(|error| failed("no signal handler", error))?;
    let ports = meerkat_server::bind_client(urls, keys, NetworkOptions::default()).await;
    let ports = ports.map_err(|error| failed("cannot listen", error))?;
    let client = Client::connect_with(way.config).await.map_err(|error| failed("bad endpoints", error))?;
    let store = Arc::new(RemoteStore::new(client));
    let names: Vec<&str> = way.endpoints.iter().map(Endpoint::authority).collect();
    tracing::info!(at = %addresses::text(urls), cluster = %names.join(","), "serving the list-watch door");
    let look = tokio::spawn(first_look(store.clone()));
    let ports = ports.into_iter().map(DoorPort).collect();
    let served = door::serve::<DoorPort>(store, ports, DoorConfig::default(), shutdown).await;
    look.abort();
    served.map_err(|error| failed("the list-watch door stopped", error))
}

/// An operator who mistyped an address should read so, rather than find every request unanswered.
async fn first_look(store: Arc<RemoteStore>) {
    match store.now().await {
        Ok(revision) => tracing::info!(revision, "the cluster answers"),
        Err(error) => tracing::warn!(%error, "the cluster does not answer yet; requests wait for it"),
    }
}
