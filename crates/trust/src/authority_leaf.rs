//! A certificate of an authority, shown by who should show one of its own.
//!
//! The library below refuses such a certificate for its `CA:TRUE` before it looks at anything else but the
//! time. Here it is given the same certificate without that one extension, and verifies all the rest. The
//! signature under the certificate is over what was shown, and is checked over that: [`OverWhatWasShown`]
//! puts the bytes that were signed back in the place of those that were shortened, and changes nothing else.
//!
//! Believed is what Go believes, and nothing that it would not:
//!
//! - a certificate that is in the trusted file itself, byte for byte, and that signed itself. That its owner
//!   has the key is shown by the handshake, as ever;
//! - a certificate, in the file or not, that leads to an authority in the file, where each that signed is an
//!   authority whose key is for signing, and the one in the file is itself in time, for this purpose, and
//!   allows as many authorities below it as there are. The library takes an authority in the file for
//!   granted; here, as in Go, it must itself stand up to what is asked of the others.

use crate::certificate::{BASIC_CONSTRAINTS, EXTENSIONS, signer};
use crate::der::{Elements, OBJECT_ID, SEQUENCE, element};
use crate::roots::Roots;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, TrustAnchor,
    UnixTime,
};
use rustls::{CertificateError, Error, OtherError};
use std::fmt;
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy, VerifiedPath,
};

/// Whether this is why a certificate was refused.
pub(crate) fn is_why(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else { return false };
    matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

pub(crate) struct AuthorityLeaves {
    pub(crate) roots: Roots,
    /// Of the roots, those that may sign.
    pub(crate) signers: Vec<TrustAnchor<'static>>,
    pub(crate) revoked: Vec<CertRevocationList<'static>>,
    pub(crate) algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

/// What is asked of a chain.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) now: UnixTime,
    pub(crate) usage: KeyUsage,
}

type Judge<'j> = &'j dyn Fn(&VerifiedPath<'_>) -> Result<(), webpki::Error>;

impl AuthorityLeaves {
    /// Whether such a certificate is believed. Its names are not looked at here.
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        asked: Asked,
    ) -> Result<(), Error> {
        if let Some(itself) = self.roots.same(leaf)
            && self.chain(leaf, std::slice::from_ref(itself), &[], asked, None).is_ok()
        {
            return Ok(());
        }
        let between: Vec<CertificateDer<'_>> =
            intermediates.iter().filter(|one| signer(one).is_some()).cloned().collect();
        let judge = |path: &VerifiedPath<'_>| self.judge_root(path, asked);
        self.chain(leaf, &self.signers, &between, asked, Some(&judge)).map_err(refused)
    }

    /// Whether the authority that a chain ends in may be believed to have begun it.
    fn judge_root(&self, path: &VerifiedPath<'_>, asked: Asked) -> Result<(), webpki::Error> {
        let between = path.intermediate_certificates().count();
        let stands = |(whole, signer): (&CertificateDer<'static>, crate::certificate::Signer)| {
            let is_long_enough = signer.path_length.is_none_or(|length| between <= usize::from(length));
            let itself = std::slice::from_ref(path.anchor());
            is_long_enough && self.chain(whole, itself, &[], asked, None).is_ok()
        };
        match self.roots.behind(path.anchor()).any(stands) {
            true => Ok(()),
            false => Err(webpki::Error::UnknownIssuer),
        }
    }

    fn chain(
        &self,
        leaf: &CertificateDer<'_>,
        anchors: &[TrustAnchor<'_>],
        between: &[CertificateDer<'_>],
        asked: Asked,
        judge: Option<Judge<'_>>,
    ) -> Result<(), webpki::Error> {
        let shortened = Shortened::new(leaf).ok_or(webpki::Error::BadDer)?;
        let algorithms: Vec<OverWhatWasShown<'_>> =
            self.algorithms.iter().map(|inner| OverWhatWasShown { inner: *inner, of: &shortened }).collect();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let revoked: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        // As in the verifier of callers: a list says who is out, and nothing about those that it does not name.
        let revocation = RevocationOptionsBuilder::new(&revoked).ok().map(|options| {
            let options = options.with_depth(RevocationCheckDepth::Chain);
            options.with_status_policy(UnknownStatusPolicy::Allow).build()
        });
        let end_entity = EndEntityCert::try_from(&shortened.whole)?;
        end_entity
            .verify_for_usage(&algorithms, anchors, between, asked.now, asked.usage, revocation, judge)
            .map(|_| ())
    }
}

/// A certificate without its basic constraints.
struct Shortened<'c> {
    whole: CertificateDer<'static>,
    /// What of it would be signed, and what was.
    body: Vec<u8>,
    shown: &'c [u8],
}

impl<'c> Shortened<'c> {
    fn new(certificate: &'c CertificateDer<'_>) -> Option<Shortened<'c>> {
        let (_, parts) = Elements(certificate).next()?;
        let mut parts = Elements(parts);
        let (_, fields, shown) = parts.next_whole()?;
        let body = element(SEQUENCE, &shorten(fields)?);
        // What follows is the kind of the signature, and the signature.
        let whole = element(SEQUENCE, &[body.as_slice(), parts.0].concat());
        Some(Shortened { whole: CertificateDer::from(whole), body, shown })
    }
}

fn shorten(fields: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(fields.len());
    let mut fields = Elements(fields);
    while let Some((tag, content, whole)) = fields.next_whole() {
        if tag != EXTENSIONS {
            kept.extend_from_slice(whole);
            continue;
        }
        let (_, extensions) = Elements(content).next()?;
        let (mut extensions, mut others) = (Elements(extensions), Vec::with_capacity(extensions.len()));
        while let Some((_, extension, whole)) = extensions.next_whole() {
            if Elements(extension).next() != Some((OBJECT_ID, BASIC_CONSTRAINTS)) {
                others.extend_from_slice(whole);
            }
        }
        kept.extend(element(EXTENSIONS, &element(SEQUENCE, &others)));
    }
    Some(kept)
}

/// Checks a signature as the algorithm within does, over the certificate that was shown if it is asked about
/// the shortened one.
#[derive(Debug)]
struct OverWhatWasShown<'c> {
    inner: &'static dyn SignatureVerificationAlgorithm,
    of: &'c Shortened<'c>,
}

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shortened").field(&self.whole).finish()
    }
}

impl SignatureVerificationAlgorithm for OverWhatWasShown<'_> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let signed = if message == self.of.body { self.of.shown } else { message };
        self.inner.verify_signature(public_key, signed, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.signature_alg_id()
    }
}

#[derive(thiserror::Error)]
#[error(
    "the certificate is one of an authority (CA:TRUE), which must be in the trusted CA file itself, or be \
     issued by an authority in that file that is in time and may sign: {0:?}"
)]
struct NotBelieved(webpki::Error);

/// Errors of certificates are shown in this form.
impl fmt::Debug for NotBelieved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn refused(error: webpki::Error) -> Error {
    Error::InvalidCertificate(match error {
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(Arc::new(NotBelieved(other)))),
    })
}
