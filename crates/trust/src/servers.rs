//! Whether a server is who it was dialled as.

use crate::authority_leaf::{Asked, AuthorityLeaves, is_why};
use crate::roots::Roots;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use webpki::KeyUsage;

/// Believes servers that these vouch for, or that show one of these.
///
/// # Errors
/// If there are none.
pub fn servers(
    roots: Roots,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, VerifierBuilderError> {
    let algorithms = provider.signature_verification_algorithms.all;
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots.store()), provider).build()?;
    let authorities = AuthorityLeaves { signers: roots.signers(), roots, revoked: Vec::new(), algorithms };
    Ok(Arc::new(Servers { inner, authorities }))
}

struct Servers {
    inner: Arc<WebPkiServerVerifier>,
    authorities: AuthorityLeaves,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_why(&error) => {
                let asked = Asked { now, usage: KeyUsage::server_auth() };
                self.authorities.verify(end_entity, intermediates, asked)?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
