//! What TLS is made of, from files in PEM: certificates, keys, authorities, revocations.

use crate::config::{KeyPair, SecurityError};
use meerkat_trust::Roots;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Why TLS cannot be served or dialled with what was given. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {file}: {reason}", file = file.display())]
    File { file: PathBuf, reason: String },
    #[error("{cert} and {key} cannot be used together: {source}", cert = cert.display(), key = key.display())]
    Pair { cert: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("nobody could be let in by {file}: {reason}", file = file.display())]
    Authorities { file: PathBuf, reason: String },
    #[error("this system's own authorities cannot be used: {0}; name yours with a trusted CA file")]
    SystemAuthorities(String),
    #[error("no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("no TLS can be spoken so: {0}")]
    Protocol(#[from] rustls::Error),
    #[error(transparent)]
    Flags(#[from] SecurityError),
}

impl TlsError {
    pub(super) fn file(file: &Path, reason: impl ToString) -> TlsError {
        TlsError::File { file: file.to_owned(), reason: reason.to_string() }
    }
}

/// A certificate with its chain, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

pub(super) fn identity(pair: &KeyPair) -> Result<Identity, TlsError> {
    let chain = certificates(&pair.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&pair.key_file)
        .map_err(|error| TlsError::file(&pair.key_file, format!("no private key in PEM: {error}")))?;
    Ok(Identity { chain, key })
}

/// What a mismatch of certificate and key is called.
pub(super) fn mismatch(pair: &KeyPair) -> impl FnOnce(rustls::Error) -> TlsError {
    let (cert, key) = (pair.cert_file.clone(), pair.key_file.clone());
    move |source| TlsError::Pair { cert, key, source }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error: rustls::pki_types::pem::Error| TlsError::file(file, error);
    let found = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if found.is_empty() {
        return Err(TlsError::file(file, "no certificate in PEM"));
    }
    Ok(found)
}

/// Those of a file, or this system's own.
pub(super) fn authorities(file: Option<&Path>) -> Result<Roots, TlsError> {
    let mut store = Roots::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        // Some of a system's are ancient, and are nobody's loss.
        found.certs.into_iter().for_each(|certificate| drop(store.add(certificate)));
        if store.is_empty() {
            let reason =
                found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
            return Err(TlsError::SystemAuthorities(reason));
        }
        return Ok(store);
    };
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| TlsError::file(file, error))?;
    }
    Ok(store)
}

/// Revocation lists, in PEM or as one list in DER.
pub(super) fn revocations(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = std::fs::read(file).map_err(|error| TlsError::file(file, error))?;
    if !bytes.starts_with(b"-----") {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    let found = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| TlsError::file(file, error))?;
    if found.is_empty() {
        return Err(TlsError::file(file, "no revocation list in PEM"));
    }
    Ok(found)
}

/// What tells one state of a file from the next without reading it. A file that is gone has one too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, SystemTime, (i64, i64))>);

pub(super) fn stamp(file: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let now = std::fs::metadata(file).ok();
    // The last changes with owner and mode, too: what could not be read may be readable now.
    let changed = |now: &std::fs::Metadata| (now.ctime(), now.ctime_nsec());
    Stamp(now.and_then(|now| Some((now.ino(), now.len(), now.modified().ok()?, changed(&now)))))
}
