//! The dialling side: how a member reaches its peers, and the operator's tool a member.

use super::material::{self, TlsError};
use super::protocol::{alpn, provider, versions};
use super::reloading::Reloading;
use super::verify::{AllowList, AllowedServers, Anybody};
use crate::config::{KeyPair, Protocol, RawTls, Security, TlsConfig};
use futures::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use meerkat_raft::{Dialer, PeerStream};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

pub use tokio_rustls::client::TlsStream;

/// Whom a dialler believes to have reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Whoever these vouch for, in the name that was dialled; the system's own if none are given.
    Authorities(Option<PathBuf>),
    /// Anybody: encrypted, and open to whoever sits in between.
    Anybody,
}

/// What a dialler shows and whom it believes.
#[derive(Clone, Debug)]
pub struct ClientTls {
    trust: Trust,
    identity: Option<KeyPair>,
    allowed: AllowList,
    protocol: Protocol,
}

impl ClientTls {
    /// For a tool: with this system's newest versions and all suites.
    ///
    /// # Errors
    /// Only if the defaults of the protocol were no protocol.
    pub fn new(trust: Trust, identity: Option<KeyPair>) -> Result<ClientTls, TlsError> {
        let protocol = TlsConfig::from_flags(&RawTls::default())?.protocol;
        Ok(ClientTls { trust, identity, allowed: AllowList::default(), protocol })
    }

    pub(super) fn of_member(peer: &Security, own: Option<KeyPair>, protocol: &Protocol) -> ClientTls {
        let trust = match peer.auto_tls {
            true => Trust::Anybody,
            false => Trust::Authorities(peer.trusted_ca_file.clone()),
        };
        let allowed =
            AllowList { common_names: peer.allowed_cns.clone(), host_names: peer.allowed_hostnames.clone() };
        ClientTls { trust, identity: peer.dialing.clone().or(own), allowed, protocol: protocol.clone() }
    }

    fn files(&self) -> Vec<PathBuf> {
        let authorities = match &self.trust {
            Trust::Authorities(file) => file.clone(),
            Trust::Anybody => None,
        };
        let pair = self.identity.iter().flat_map(|pair| [pair.cert_file.clone(), pair.key_file.clone()]);
        authorities.into_iter().chain(pair).collect()
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = provider(&self.protocol);
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(&self.protocol))?
            .dangerous();
        let builder = match &self.trust {
            Trust::Anybody => builder.with_custom_certificate_verifier(Arc::new(Anybody { provider })),
            Trust::Authorities(file) => {
                let roots = Arc::new(material::authorities(file.as_deref())?);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
                let inner = inner.map_err(|error| TlsError::Authorities {
                    file: file.clone().unwrap_or_default(),
                    reason: error.to_string(),
                })?;
                let verifier = AllowedServers { inner, list: self.allowed.clone() };
                builder.with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let identity = material::identity(pair)?;
                builder
                    .with_client_auth_cert(identity.chain, identity.key)
                    .map_err(material::mismatch(pair))?
            }
        };
        config.alpn_protocols = alpn();
        Ok(config)
    }
}

/// Dials with TLS. Clones share what is in force.
#[derive(Clone)]
pub struct Connector {
    tls: Arc<Tls>,
}

enum Tls {
    Ready(Reloading<ClientConfig>),
    /// Made when first needed: a member whose peers do not use TLS needs no authorities.
    Lazy(ClientTls, Mutex<Option<Reloading<ClientConfig>>>),
}

impl Tls {
    fn now(&self) -> io::Result<Arc<ClientConfig>> {
        match self {
            Tls::Ready(config) => Ok(config.now()),
            Tls::Lazy(tls, made) => {
                let mut made = made.lock();
                // An error is not kept: the next who dials may find it mended.
                let ready = match made.take() {
                    Some(ready) => ready,
                    None => reloading(tls).map_err(|error| io::Error::other(error.to_string()))?,
                };
                Ok(made.insert(ready).now())
            }
        }
    }
}

fn reloading(tls: &ClientTls) -> Result<Reloading<ClientConfig>, TlsError> {
    let of = tls.clone();
    Reloading::new("TLS to others", tls.files(), move || of.config())
}

impl Connector {
    /// # Errors
    /// If a file cannot be used.
    pub fn new(tls: ClientTls) -> Result<Connector, TlsError> {
        let lazy = |tls| Tls::Lazy(tls, Mutex::new(None));
        if tls.files().is_empty() {
            return Ok(Connector { tls: Arc::new(lazy(tls)) });
        }
        let tls = match reloading(&tls) {
            Ok(ready) => Tls::Ready(ready),
            Err(TlsError::SystemAuthorities(_)) => lazy(tls),
            Err(error) => return Err(error),
        };
        Ok(Connector { tls: Arc::new(tls) })
    }

    /// The handshake with the host that was dialled.
    ///
    /// # Errors
    /// If it fails, for whatever reason; the error names it.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = self.tls.now()?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {error}")))?;
        TlsConnector::from(config).connect(name, stream).await
    }

    /// A connection to `http://host:port` or, encrypted, to `https://host:port`.
    ///
    /// # Errors
    /// If nobody is there, or not who should be.
    pub async fn dial(&self, uri: http::Uri) -> io::Result<Box<dyn PeerStream>> {
        let host = uri.host().unwrap_or_default().to_owned();
        let encrypted = uri.scheme_str() == Some("https");
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let stream = tcp.call(uri).await.map_err(io::Error::other)?.into_inner();
        if !encrypted {
            return Ok(Box::new(stream));
        }
        let stream = self.connect(&host, stream).await.map_err(|error| explained(&host, error))?;
        Ok(Box::new(stream))
    }
}

/// With what to look at when the other side cannot be believed or does not believe us.
fn explained(host: &str, error: io::Error) -> io::Error {
    let failure = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let advice = match failure {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "its certificate is not accepted; check the trusted CA file and the names in its certificate"
        }
        Some(rustls::Error::AlertReceived(_)) => "it does not accept the certificate shown to it",
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS; is it an http:// address?",
        _ => "the TLS handshake failed",
    };
    io::Error::new(error.kind(), format!("{host}: {advice}: {error}"))
}

pub(super) fn dialer(connector: Connector) -> Dialer {
    Arc::new(move |uri| {
        let connector = connector.clone();
        async move { connector.dial(uri).await }.boxed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_were_not_there_are_found_by_who_dials_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ca.pem");
        let tls = ClientTls::new(Trust::Authorities(Some(file.clone())), None).expect("a protocol");
        let lazy = Tls::Lazy(tls, Mutex::new(None));
        assert!(lazy.now().is_err());
        let made = rcgen::generate_simple_self_signed(vec!["member.example".to_owned()]).expect("one");
        std::fs::write(&file, made.cert.pem()).expect("written");
        assert!(lazy.now().is_ok());
    }
}
