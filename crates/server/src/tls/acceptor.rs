//! The listening side: from a connection to an encrypted one whose other end is who it should be.
//!
//! A caller that is turned away is told of in one line with its address, what was wrong, and what to
//! do. Its connection is closed, never left open.

use super::material::{self, TlsError};
use super::protocol::{alpn, provider, versions};
use super::reloading::Reloading;
use super::reverse_lookup;
use super::verify::{AllowList, AllowedCallers};
use super::{CommonName, failure};
use crate::config::{KeyPair, Protocol, Security};
use meerkat_trust::certificate;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error as TlsFailure, InvalidMessage, ServerConfig};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// From a connection to the end of its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long names are looked up for one caller.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections encrypted ones. Clones share what is in force.
#[derive(Clone)]
pub(crate) struct Acceptor {
    side: &'static str,
    names_are_users: bool,
    check_callers_address: bool,
    config: Arc<Reloading<ServerConfig>>,
}

/// A connection that may speak.
pub(crate) struct Greeted<S> {
    pub(crate) stream: TlsStream<S>,
    /// Who the caller is, where certificates say that.
    pub(crate) common_name: Option<CommonName>,
}

impl Acceptor {
    pub(super) fn new(
        security: &Security,
        own: &KeyPair,
        protocol: &Protocol,
        side: &'static str,
    ) -> Result<Acceptor, TlsError> {
        let optional = [&security.trusted_ca_file, &security.crl_file];
        let files: Vec<PathBuf> = [own.cert_file.clone(), own.key_file.clone()]
            .into_iter()
            .chain(optional.into_iter().flatten().cloned())
            .collect();
        let (of_security, pair, of_protocol) = (security.clone(), own.clone(), protocol.clone());
        let make = move || server_config(&of_security, &pair, &of_protocol);
        Ok(Acceptor {
            side,
            names_are_users: security.names_are_users,
            check_callers_address: security.check_callers_address && security.callers_prove,
            config: Arc::new(Reloading::new(format!("{side} TLS"), files, make)?),
        })
    }

    /// The handshake; none if the caller was turned away, which is told of here.
    pub(crate) async fn greet<S>(&self, stream: S, caller: SocketAddr) -> Option<Greeted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = TlsAcceptor::from(self.config.now()).accept(stream);
        let outcome = match tokio::time::timeout(HANDSHAKE_TIMEOUT, accepted).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")),
        };
        let stream = match outcome {
            Ok(stream) => stream,
            Err(error) => {
                self.tell(caller, &error);
                return None;
            }
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
        if let Some(certificate) = shown.as_ref().filter(|_| self.check_callers_address)
            && !comes_from_where_it_says(certificate, caller.ip()).await
        {
            self.tell_of_address(caller, certificate);
            return None;
        }
        let common_name =
            shown.filter(|_| self.names_are_users).and_then(|shown| certificate::common_name(&shown));
        Some(Greeted { stream, common_name: common_name.map(CommonName::from) })
    }

    fn tell_of_address(&self, caller: SocketAddr, shown: &CertificateDer<'_>) {
        let (addresses, names) = (certificate::addresses(shown), certificate::host_names(shown));
        let ip_addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        tracing::warn!(
            remote_addr = %caller,
            ip_addresses = %ip_addresses.join(","),
            dns_names = %names.join(","),
            error = failure::of_address(caller.ip().to_canonical(), &ip_addresses, &names),
            "rejected connection on {} endpoint: its certificate is not for the address it comes from; \
             add the address to the certificate, or set --peer-skip-client-san-verification",
            self.side
        );
    }

    fn tell(&self, caller: SocketAddr, error: &io::Error) {
        match advice(error) {
            // Load balancers and port scanners: they connect, and are gone.
            None => tracing::debug!(remote_addr = %caller, %error, "a connection ended before its handshake"),
            Some(advice) => {
                let (side, error) = (self.side, failure::text_of_caller(error));
                tracing::warn!(remote_addr = %caller, error, "rejected connection on {side} endpoint: {advice}");
            }
        }
    }
}

/// What to do about a failed handshake; none if nobody wanted one.
fn advice(error: &io::Error) -> Option<&'static str> {
    let Some(failure) = failure::of(error) else {
        return (error.kind() == io::ErrorKind::TimedOut)
            .then_some("the caller did not finish the TLS handshake; does it speak TLS?");
    };
    Some(match failure {
        TlsFailure::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the caller does not speak TLS, and this port does: use https:// in its endpoints"
        }
        TlsFailure::NoCertificatesPresented => {
            "the caller showed no certificate: give it one that the trusted CA file vouches for"
        }
        TlsFailure::InvalidCertificate(_) => {
            "the caller's certificate is not accepted: check who signed it, until when it is good, and for whom"
        }
        TlsFailure::AlertReceived(_) => {
            "the caller does not accept this member's certificate: check its CA file and the names in the certificate"
        }
        _ => "the TLS handshake failed",
    })
}

fn server_config(security: &Security, own: &KeyPair, protocol: &Protocol) -> Result<ServerConfig, TlsError> {
    let identity = material::identity(own)?;
    let provider = provider(protocol);
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions(protocol))?;
    let builder = match security.callers_prove {
        false => builder.with_no_client_auth(),
        true => builder.with_client_cert_verifier(callers(security, provider)?),
    };
    let mut config =
        builder.with_single_cert(identity.chain, identity.key).map_err(material::mismatch(own))?;
    config.alpn_protocols = alpn();
    Ok(config)
}

fn callers(
    security: &Security,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = material::authorities(security.trusted_ca_file.as_deref())?;
    let revoked = security.crl_file.as_deref().map(material::revocations).transpose()?.unwrap_or_default();
    let inner = meerkat_trust::callers(roots, revoked, provider).map_err(|error| TlsError::Authorities {
        file: security.crl_file.clone().or_else(|| security.trusted_ca_file.clone()).unwrap_or_default(),
        reason: error.to_string(),
    })?;
    let list = AllowList {
        common_names: security.allowed_cns.clone(),
        host_names: security.allowed_hostnames.clone(),
    };
    Ok(if list.is_empty() { inner } else { Arc::new(AllowedCallers { inner, list }) })
}

/// A certificate that names no place is good from anywhere; another only from the places that it names: by
/// address, by a host name that leads to it, or by a wildcard that covers the caller's own name.
async fn comes_from_where_it_says(certificate: &CertificateDer<'_>, from: IpAddr) -> bool {
    if !certificate::names_places(certificate) {
        return true;
    }
    let from = from.to_canonical();
    let by_address = ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, &ServerName::from(from)).is_ok());
    if by_address {
        return true;
    }
    let hosts = certificate::host_names(certificate);
    let look_up = async {
        for host in hosts.iter().filter(|host| !host.starts_with('*')) {
            if let Ok(mut found) = tokio::net::lookup_host((host.as_str(), 0)).await
                && found.any(|address| address.ip().to_canonical() == from)
            {
                return true;
            }
        }
        if !hosts.iter().any(|host| host.starts_with('*')) {
            return false;
        }
        let name = reverse_lookup::name_of(from).await.unwrap_or_default();
        hosts.iter().any(|host| reverse_lookup::covers(host, &name))
    };
    tokio::time::timeout(LOOK_UP_TIMEOUT, look_up).await.unwrap_or(false)
}
