//! Encrypted connections: whom to trust, and who we are.

mod anyone;

use meerkat_proto::reason::innermost;
use meerkat_trust::Roots;
use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// How every certificate in PEM begins.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Settings for `https` endpoints. Without any, the system's own authorities are trusted and the
/// client shows no certificate.
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Vec<Certificate>,
    identity: Option<Identity>,
    domain: Option<String>,
    trusts_anyone: bool,
}

impl Tls {
    /// The settings to begin with.
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Trusts these authorities (PEM, one or many certificates) and no others.
    #[must_use]
    pub fn authority(mut self, pem: impl AsRef<[u8]>) -> Tls {
        self.authorities.push(Certificate::from_pem(pem));
        self
    }

    /// Shows this certificate (PEM, with what it takes to chain it up) and proves it with this key.
    #[must_use]
    pub fn identity(mut self, certificate_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Tls {
        self.identity = Some(Identity::from_pem(certificate_pem, key_pem));
        self
    }

    /// The name the members' certificates are checked against, if it is not the endpoint's host.
    #[must_use]
    pub fn domain(mut self, name: impl Into<String>) -> Tls {
        self.domain = Some(name.into());
        self
    }

    /// Believes any server, whatever certificate it shows. Whoever can answer in its place can read and
    /// change everything: for tests only.
    #[must_use]
    pub fn trust_anyone(mut self) -> Tls {
        self.trusts_anyone = true;
        self
    }

    /// Opens a connection for calls of one's own: encrypted if the dialer's address is `https`.
    ///
    /// # Errors
    /// The innermost reason why there is none.
    pub async fn connect(&self, dialer: Endpoint) -> Result<Channel, String> {
        let secured = match dialer.uri().scheme_str() {
            Some("https") => self.check().map_err(str::to_owned).and_then(|()| self.secure(dialer))?,
            _ => dialer,
        };
        secured.connect().await.map_err(|error| innermost(&error))
    }

    /// What is wrong with these settings on their face. The library below would take an authority
    /// without a certificate for "trust nobody" and fail at each connection.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_pem = |pem: &Certificate| pem.as_ref().windows(BEGIN.len()).any(|part| part == BEGIN);
        match self.authorities.iter().all(is_pem) {
            true => Ok(()),
            false => Err("an authority is no PEM certificate"),
        }
    }

    /// The endpoint with these settings.
    pub(crate) fn secure(&self, endpoint: Endpoint) -> Result<Endpoint, String> {
        let verifier = match self.trusts_anyone {
            true => anyone::verifier(provider()),
            false => self.verifier()?,
        };
        let secured = endpoint.tls_config_with_verifier(self.for_endpoint(), verifier);
        secured.map_err(|error| innermost(&error))
    }

    /// What believes the servers that the authorities vouch for.
    fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, String> {
        let mut roots = Roots::empty();
        for pem in &self.authorities {
            for certificate in CertificateDer::pem_slice_iter(pem.as_ref()) {
                // One that cannot be used vouches for nobody; Go, too, passes over it.
                drop(roots.add(certificate.map_err(|error| error.to_string())?));
            }
        }
        if self.authorities.is_empty() {
            let found = rustls_native_certs::load_native_certs();
            // Some of a system's are ancient, and are nobody's loss.
            found.certs.into_iter().for_each(|certificate| drop(roots.add(certificate)));
        }
        meerkat_trust::servers(roots, provider())
            .map_err(|error| format!("no authority can be trusted: {error}"))
    }

    fn for_endpoint(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some(identity) = &self.identity {
            config = config.identity(identity.clone());
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain.clone());
        }
        config
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("identity", &self.identity.is_some())
            .field("domain", &self.domain)
            .field("trusts_anyone", &self.trusts_anyone)
            .finish()
    }
}

/// The cryptography that the process has chosen, as the transport takes it.
fn provider() -> Arc<CryptoProvider> {
    let chosen = CryptoProvider::get_default().cloned();
    chosen.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}
