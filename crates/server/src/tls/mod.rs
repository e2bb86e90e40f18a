//! TLS of a member: what it shows, whom it lets in, and how it reaches others.
//!
//! ```text
//!   config::Security ──► material (PEM files, read) ──► Reloading ──► Acceptor   client and peer ports
//!                                                          │
//!                                                          └────────► Connector  peers; the operator's tool
//! ```
//!
//! Always true: what is in force was whole when it was read. New files are taken up by the next
//! handshake; files that cannot be used are told of loudly, and what was in force stays.

mod acceptor;
mod connector;
mod failure;
mod material;
mod protocol;
mod reloading;
mod reverse_lookup;
mod self_signed;
mod verify;

pub(crate) use acceptor::{Acceptor, Greeted};
pub use connector::{ClientTls, Connector, TlsStream, Trust};
pub use material::TlsError;

use crate::config::{Config, KeyPair, MemberUrl, Security, TlsConfig, Transport};
use meerkat_raft::Dialer;
use std::path::Path;
use std::sync::Arc;

/// The keys of a member, read.
pub struct Keys {
    /// For client, metrics and list-watch ports; none if no certificate was given.
    pub(crate) client: Option<Acceptor>,
    pub(crate) peer: Option<Acceptor>,
    dialer: Connector,
}

impl Keys {
    /// Reads the files of the configuration, and makes the certificates that it wants made.
    ///
    /// # Errors
    /// If a file cannot be used; it is named.
    pub fn open(config: &Config) -> Result<Keys, TlsError> {
        let tls = &config.tls;
        let fixtures = config.data_dir.join("fixtures");
        let client_urls = config.listen_client_urls.iter().chain(&config.listen_client_http_urls);
        let client_urls = client_urls.chain(&config.listen_metrics_urls).chain(&config.advertise_client_urls);
        let client = own_pair(tls, &tls.client, &fixtures.join("client"), client_urls)?;
        let peer_urls = config.listen_peer_urls.iter().chain(&config.initial_advertise_peer_urls);
        let peer = own_pair(tls, &tls.peer, &fixtures.join("peer"), peer_urls)?;
        Ok(Keys {
            client: acceptor(&tls.client, client.as_ref(), tls, "client")?,
            peer: acceptor(&tls.peer, peer.as_ref(), tls, "peer")?,
            dialer: Connector::new(ClientTls::of_member(&tls.peer, peer, &tls.protocol))?
                .dialling_from(config.network.dial_from),
        })
    }

    /// Of a process that serves clients only, with certificates that are given.
    ///
    /// # Errors
    /// If a file cannot be used; it is named.
    pub fn of_clients(tls: &TlsConfig) -> Result<Keys, TlsError> {
        Ok(Keys {
            client: acceptor(&tls.client, tls.client.own.as_ref(), tls, "client")?,
            peer: None,
            dialer: Connector::new(ClientTls::of_member(&tls.peer, None, &tls.protocol))?,
        })
    }

    /// How this member reaches others.
    pub(crate) fn dialer(&self) -> Dialer {
        connector::dialer(self.dialer.clone())
    }

    /// What listens at such a URL decides by it whether it speaks TLS.
    pub(crate) fn for_client(&self, url: &MemberUrl) -> Option<Acceptor> {
        self.client.clone().filter(|_| url.transport() == Transport::Tls)
    }

    pub(crate) fn for_peer(&self, url: &MemberUrl) -> Option<Acceptor> {
        self.peer.clone().filter(|_| url.transport() == Transport::Tls)
    }
}

fn acceptor(
    security: &Security,
    own: Option<&KeyPair>,
    tls: &TlsConfig,
    side: &'static str,
) -> Result<Option<Acceptor>, TlsError> {
    own.map(|own| Acceptor::new(security, own, &tls.protocol, side)).transpose()
}

/// The certificate that was given, or one that is made and kept.
fn own_pair<'u>(
    tls: &TlsConfig,
    security: &Security,
    directory: &Path,
    urls: impl Iterator<Item = &'u MemberUrl>,
) -> Result<Option<KeyPair>, TlsError> {
    if !security.auto_tls {
        return Ok(security.own.clone());
    }
    let hosts = urls.filter_map(MemberUrl::bare_host).map(str::to_owned).collect();
    self_signed::ensure(directory, hosts, tls.self_signed_years).map(Some)
}

/// A name that many hold.
pub(crate) type CommonName = Arc<str>;
