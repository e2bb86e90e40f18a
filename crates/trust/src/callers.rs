//! Whether a caller that must show a certificate is let in by it.

use crate::authority_leaf::{Asked, AuthorityLeaves, is_why};
use crate::roots::Roots;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertRevocationListError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use webpki::{KeyUsage, OwnedCertRevocationList};

/// Lets in those that these vouch for, or that show one of these, unless a list names them as revoked, or one
/// that stands between them and a root. A list says nothing of those that it does not name.
///
/// # Errors
/// If there are none, or a list cannot be read.
pub fn callers(
    roots: Roots,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let algorithms = provider.signature_verification_algorithms.all;
    let read = |list: &CertificateRevocationListDer<'_>| OwnedCertRevocationList::from_der(list);
    let lists: Result<Vec<_>, _> = revoked.iter().map(|list| read(list).map(Into::into)).collect();
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.store()), provider);
    if !revoked.is_empty() {
        builder = builder.with_crls(revoked).allow_unknown_revocation_status();
    }
    // It has the better words for a list that cannot be read.
    let inner = builder.build()?;
    let revoked = lists.map_err(|_| VerifierBuilderError::InvalidCrl(CertRevocationListError::ParseError))?;
    let authorities = AuthorityLeaves { signers: roots.signers(), roots, revoked, algorithms };
    Ok(Arc::new(Callers { inner, authorities }))
}

struct Callers {
    inner: Arc<dyn ClientCertVerifier>,
    authorities: AuthorityLeaves,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Callers {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if is_why(&error) => {
                let asked = Asked { now, usage: KeyUsage::client_auth() };
                self.authorities.verify(end_entity, intermediates, asked)?;
                Ok(ClientCertVerified::assertion())
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
