//! Who is believed, beyond what a chain of signatures says.
//!
//! [`AllowedCallers`] and [`AllowedServers`] ask the verifiers of `meerkat_trust` first and then look at the
//! allow-lists of etcd; [`Anybody`] believes all, which a member does only of peers that make their own
//! certificates, and a tool only when told to.

use meerkat_trust::certificate;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// The allow-lists of one side. With both empty, everybody that the authorities vouch for.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowList {
    pub(super) common_names: Vec<String>,
    pub(super) host_names: Vec<String>,
}

impl AllowList {
    pub(super) fn is_empty(&self) -> bool {
        self.common_names.is_empty() && self.host_names.is_empty()
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let common_name = certificate::common_name(certificate).unwrap_or_default();
        if !self.common_names.is_empty() && !self.common_names.contains(&common_name) {
            tracing::warn!(common_name, "certificate has a common name that is not allowed");
            return Err(refused(&self.common_names, common_name));
        }
        if self.host_names.is_empty() {
            return Ok(());
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        let is_for = |host: &String| {
            let name = ServerName::try_from(host.as_str());
            name.is_ok_and(|name| rustls::client::verify_server_name(&parsed, &name).is_ok())
        };
        match self.host_names.iter().any(is_for) {
            true => Ok(()),
            false => Err(refused(&self.host_names, certificate::host_names(certificate).join(","))),
        }
    }
}

/// As a wrong name, so that the other end is told what etcd tells it: `bad certificate`.
fn refused(allowed: &[String], shown: String) -> Error {
    let mut allowed = allowed.iter().filter_map(|name| ServerName::try_from(name.clone()).ok());
    Error::InvalidCertificate(match allowed.next() {
        Some(expected) => CertificateError::NotValidForNameContext { expected, presented: vec![shown] },
        None => CertificateError::NotValidForName,
    })
}

/// Whether a certificate that a member made for itself is good today.
pub(super) fn is_in_time(certificate: &CertificateDer<'static>) -> bool {
    let mut itself = RootCertStore::empty();
    if itself.add(certificate.clone()).is_err() {
        return false;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(itself), provider).build() else {
        return false;
    };
    // Times are looked at before names.
    let Ok(any_name) = ServerName::try_from("localhost") else { return false };
    let verdict = verifier.verify_server_cert(certificate, &[], &any_name, &[], UnixTime::now());
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    !matches!(
        verdict,
        Err(Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
        ))
    )
}

#[derive(Debug)]
pub(super) struct AllowedCallers {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) list: AllowList,
}

impl ClientCertVerifier for AllowedCallers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        self.list.check(end_entity)?;
        Ok(verified)
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

#[derive(Debug)]
pub(super) struct AllowedServers {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) list: AllowList,
}

impl ServerCertVerifier for AllowedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.list.check(end_entity)?;
        Ok(verified)
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

/// Believes whoever has the key of the certificate that it shows.
#[derive(Debug)]
pub(super) struct Anybody {
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
