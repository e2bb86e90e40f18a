//! `--discovery-srv` of the gateway: the members that a domain's SRV records name, those that are fit.
//!
//! Without `--insecure-discovery` a member is fit if it serves TLS and can be reached; with a CA bundle it also
//! has to show a certificate of the domain.

use std::time::Duration;

use meerkat_client::Tls;
use meerkat_proto::reason;
use tokio::net::TcpStream;
use tonic::transport::Endpoint as Dialer;

use crate::command::Discovery;
use crate::endpoint::{Endpoint, Scheme};
use crate::failure::Failure;

/// For so long a member is waited for, as by etcd.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Search<'a> {
    pub domain: &'a str,
    /// Of several clusters in one domain, this one.
    pub service_name: Option<&'a str>,
    /// Whether whatever is found is fit.
    pub insecure: bool,
    pub trusted_ca_file: Option<&'a str>,
}

impl Search<'_> {
    /// In the order of the records. Fails if there are none, or if the CA bundle cannot be read.
    pub async fn endpoints(&self) -> Result<Vec<String>, Failure> {
        let Search { domain, service_name, .. } = *self;
        let found = Discovery { domain, service_name, insecure: true }.endpoints()?;
        let texts = |list: &[Endpoint]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let endpoints = texts(&found).join(",");
        tracing::info!(srv_server = domain, endpoints, "discovered cluster from SRV");
        if self.insecure {
            return Ok(texts(&found));
        }
        let tls = match self.trusted_ca_file {
            Some(path) => {
                let pem = std::fs::read(path).map_err(|error| {
                    Failure::error(format!("--trusted-ca-file {path}: {}", reason::of_system(&error)))
                })?;
                Some(Tls::new().authority(pem).domain(domain.trim_end_matches('.')))
            }
            None => None,
        };
        let judged =
            futures::future::join_all(found.iter().map(|endpoint| judge(endpoint, tls.as_ref()))).await;
        let mut fit = Vec::new();
        for (endpoint, verdict) in found.into_iter().zip(judged) {
            match verdict {
                Ok(()) => fit.push(endpoint),
                Err(reason) => {
                    tracing::warn!(srv_server = domain, endpoint = %endpoint, error = reason, "failed to validate discovered endpoint");
                }
            }
        }
        Ok(texts(&fit))
    }
}

/// Whether a member is fit, or why not.
async fn judge(endpoint: &Endpoint, tls: Option<&Tls>) -> Result<(), String> {
    if endpoint.scheme() != Some(Scheme::Https) {
        return Err("it is insecure".to_owned());
    }
    let reached = async {
        match tls {
            Some(tls) => {
                let dialer = Dialer::from_shared(endpoint.uri()).map_err(|error| error.to_string())?;
                tls.connect(dialer).await.map(drop)
            }
            None => TcpStream::connect(endpoint.authority())
                .await
                .map(drop)
                .map_err(|error| reason::of_system(&error)),
        }
    };
    tokio::time::timeout(DIAL_TIMEOUT, reached).await.unwrap_or_else(|_| Err("i/o timeout".to_owned()))
}
