//! Finding the initial cluster elsewhere than on the command line.
//!
//! The thin shell: asks the network, and hands what it heard to the rules beside it. Only ever called for a
//! member that has no data.

mod joining;
mod registry;
mod srv;

use std::net::{SocketAddr, ToSocketAddrs};

use futures::FutureExt;
use meerkat_server::Finder;
use meerkat_server::config::{Config, Discovery, DnsDiscovery, MemberUrl};

use crate::dns::Resolver;

/// What finds the cluster of a configuration, if that is to be found.
pub fn finder(config: &Config) -> Option<Finder> {
    let discovery = config.discovery.clone()?;
    Some(Box::new(move |config| {
        async move {
            match discovery {
                Discovery::Dns(dns) => in_dns(config, dns).await,
                Discovery::Registry(service) => joining::join(config, &service).await,
            }
        }
        .boxed()
    }))
}

async fn in_dns(config: Config, dns: DnsDiscovery) -> Result<Config, String> {
    // Resolvers of the C library wait in their callers.
    let asked = tokio::task::spawn_blocking(move || {
        let heard = hear(&config, &dns, &Resolver::of_system());
        srv::begin(config, &heard?)
    });
    let found = asked.await.unwrap_or_else(|error| Err(error.to_string()));
    found.map_err(|reason| format!("error setting up initial cluster: {reason}"))
}

/// All that the rules want to know.
fn hear(config: &Config, dns: &DnsDiscovery, resolver: &Resolver) -> Result<srv::Heard, String> {
    let suffix = dns.service_name.as_ref().map_or(String::new(), |name| format!("-{name}"));
    let services = srv::SERVICES.map(|(scheme, service)| {
        let service = format!("{service}{suffix}");
        let records = resolver.srv(&format!("_{service}._tcp.{}", dns.domain));
        let records = records.map(|records| {
            let listed = records.into_iter().map(|record| srv::Listed {
                addresses: addresses(&record.target, record.port).unwrap_or_default(),
                target: record.target,
                port: record.port,
            });
            listed.collect()
        });
        tracing::info!(service, domain = dns.domain, ?records, "got SRV records of etcd-server");
        srv::Service { scheme, service, records }
    });
    let advertised = config.initial_advertise_peer_urls.iter().map(|url| {
        let addresses = match (url.bare_host(), url.host_and_port()) {
            (Some(host), Some((_, port))) => addresses(host, port)?,
            _ => Vec::new(),
        };
        Ok::<(MemberUrl, Vec<SocketAddr>), String>((url.clone(), addresses))
    });
    Ok(srv::Heard { advertised: advertised.collect::<Result<_, _>>()?, services })
}

fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs();
    found.map(Iterator::collect).map_err(|error| format!("lookup {host}: {error}"))
}
