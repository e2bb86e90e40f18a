//! The dialling side: how a member reaches its peers, and the operator's tool a member.

use super::failure;
use super::material::{self, TlsError};
use super::protocol::{alpn, provider, versions};
use super::reloading::Reloading;
use super::verify::{AllowList, AllowedServers, Anybody};
use crate::config::{KeyPair, MemberUrl, Protocol, RawTls, Security, TlsConfig, Transport};
use futures::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use meerkat_fault::Mutex;
use meerkat_raft::{Dialer, PeerStream};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
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
    /// Whom the other side must prove to be, if not whom was dialled.
    server_name: Option<String>,
    protocol: Protocol,
}

impl ClientTls {
    /// For a tool: with this system's newest versions and all suites.
    ///
    /// # Errors
    /// Only if the defaults of the protocol were no protocol.
    pub fn new(trust: Trust, identity: Option<KeyPair>) -> Result<ClientTls, TlsError> {
        let protocol = TlsConfig::from_flags(&RawTls::default())?.protocol;
        Ok(ClientTls { trust, identity, allowed: AllowList::default(), server_name: None, protocol })
    }

    pub(super) fn of_member(peer: &Security, own: Option<KeyPair>, protocol: &Protocol) -> ClientTls {
        let trust = match peer.auto_tls {
            true => Trust::Anybody,
            false => Trust::Authorities(peer.trusted_ca_file.clone()),
        };
        let allowed =
            AllowList { common_names: peer.allowed_cns.clone(), host_names: peer.allowed_hostnames.clone() };
        ClientTls {
            trust,
            identity: peer.dialing.clone().or(own),
            allowed,
            server_name: peer.server_name.clone(),
            protocol: protocol.clone(),
        }
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
                let roots = material::authorities(file.as_deref())?;
                let inner =
                    meerkat_trust::servers(roots, provider).map_err(|error| TlsError::Authorities {
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
    /// The address that connections come from. `None`: whichever the system picks.
    from: Option<IpAddr>,
    server_name: Option<String>,
}

enum Tls {
    Ready(Reloading<ClientConfig>),
    /// Made when first needed: a member whose peers do not use TLS needs no authorities.
    Lazy(Box<ClientTls>, Mutex<Option<Reloading<ClientConfig>>>),
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
        let lazy = |tls| Tls::Lazy(Box::new(tls), Mutex::new(None));
        let server_name = tls.server_name.clone();
        if tls.files().is_empty() {
            return Ok(Connector { tls: Arc::new(lazy(tls)), server_name, from: None });
        }
        let tls = match reloading(&tls) {
            Ok(ready) => Tls::Ready(ready),
            Err(TlsError::SystemAuthorities(_)) => lazy(tls),
            Err(error) => return Err(error),
        };
        Ok(Connector { tls: Arc::new(tls), server_name, from: None })
    }

    /// The same, that dials from an address of this machine.
    #[must_use]
    pub fn dialling_from(self, from: Option<IpAddr>) -> Connector {
        Connector { from, ..self }
    }

    /// The handshake with the host that was dialled.
    ///
    /// # Errors
    /// If it fails, for whatever reason; the error names it.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.tls.now()?;
        let host = self.server_name.as_deref().unwrap_or(host);
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {error}")))?;
        TlsConnector::from(config).connect(name, stream).await
    }

    /// A connection to `http://host:port` or `unix://path` or, encrypted, to `https://host:port` or
    /// `unixs://path`.
    ///
    /// # Errors
    /// If nobody is there, or not who should be.
    pub async fn dial(&self, url: &str) -> io::Result<Box<dyn PeerStream>> {
        let url = MemberUrl::parse(url).map_err(io::Error::other)?;
        if let Some(path) = url.socket_path() {
            let stream = UnixStream::connect(&path).await?;
            // As etcd writes such addresses, what stands before the last colon may be a name.
            let address = url.address();
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            return self.secured(&url, host, stream).await;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_local_address(self.from);
        let uri: http::Uri = url.to_string().parse().map_err(io::Error::other)?;
        let stream = tcp.call(uri).await.map_err(io::Error::other)?.into_inner();
        self.secured(&url, url.bare_host().unwrap_or_default(), stream).await
    }

    /// The connection as the URL wants it: as it is, or encrypted.
    async fn secured<S>(&self, url: &MemberUrl, host: &str, stream: S) -> io::Result<Box<dyn PeerStream>>
    where
        S: PeerStream + 'static,
    {
        match url.transport() {
            Transport::Plain => Ok(Box::new(stream)),
            Transport::Tls => {
                let stream = self.connect(host, stream).await.map_err(|error| explained(host, error))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// With what to look at when the other side cannot be believed or does not believe us.
fn explained(host: &str, error: io::Error) -> io::Error {
    let advice = match failure::of(&error) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "its certificate is not accepted; check the trusted CA file and the names in its certificate"
        }
        Some(rustls::Error::AlertReceived(_)) => "it does not accept the certificate shown to it",
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS; is it an http:// address?",
        _ => "the TLS handshake failed",
    };
    io::Error::new(error.kind(), format!("{host}: {advice}: {}", failure::text(&error)))
}

pub(super) fn dialer(connector: Connector) -> Dialer {
    Arc::new(move |url| {
        let connector = connector.clone();
        async move { connector.dial(&url).await }.boxed()
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
        let lazy = Tls::Lazy(Box::new(tls), Mutex::new(None));
        assert!(lazy.now().is_err());
        let made = rcgen::generate_simple_self_signed(vec!["member.example".to_owned()]).expect("one");
        std::fs::write(&file, made.cert.pem()).expect("written");
        assert!(lazy.now().is_ok());
    }

    #[tokio::test]
    async fn a_connection_comes_from_the_address_that_was_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("open"));
        let plain = ClientTls::new(Trust::Anybody, None).expect("a protocol");
        let connector = Connector::new(plain).expect("no files");
        for (asked, expected) in [(Some("127.0.0.5"), "127.0.0.5"), (None, "127.0.0.1")] {
            let asked = asked.map(|text| text.parse().expect("an address"));
            let dialled = connector.clone().dialling_from(asked).dial(&url).await;
            let (_, from) = listener.accept().await.expect("a connection");
            assert!(dialled.is_ok());
            assert_eq!(from.ip().to_string(), expected);
        }
        // Not an address of any machine.
        let elsewhere = connector.dialling_from(Some("192.0.2.1".parse().expect("an address")));
        assert!(elsewhere.dial(&url).await.is_err());
    }

    #[tokio::test]
    async fn a_socket_in_the_file_system_is_dialled() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("peer:2380");
        let url = format!("unix://{}", path.display());
        let connector = Connector::new(ClientTls::new(Trust::Anybody, None).expect("a protocol"));
        let connector = connector.expect("no files");
        assert!(connector.dial(&url).await.is_err(), "nobody is there yet");
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        assert!(connector.dial(&url).await.is_ok());
        listener.accept().await.expect("a connection");
    }
}
