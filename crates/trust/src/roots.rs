//! The certificates that are trusted: as anchors of chains, and as they were given.

use crate::certificate::{Signer, signer};
use rustls::pki_types::{CertificateDer, TrustAnchor};
use rustls::{Error, RootCertStore};

#[derive(Clone, Debug)]
pub struct Roots {
    store: RootCertStore,
    whole: Vec<CertificateDer<'static>>,
}

impl Roots {
    pub fn empty() -> Roots {
        Roots { store: RootCertStore::empty(), whole: Vec::new() }
    }

    /// Trusts one more.
    ///
    /// # Errors
    /// If it is no certificate that could be trusted.
    pub fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), Error> {
        self.store.add(certificate.clone())?;
        self.whole.push(certificate);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    pub(crate) fn store(&self) -> RootCertStore {
        self.store.clone()
    }

    /// The one with these very bytes, as an anchor.
    pub(crate) fn same(&self, certificate: &CertificateDer<'_>) -> Option<&TrustAnchor<'static>> {
        self.all().find(|(whole, _)| *whole == certificate).map(|(_, anchor)| anchor)
    }

    /// Those that may sign others.
    pub(crate) fn signers(&self) -> Vec<TrustAnchor<'static>> {
        let may_sign = self.all().filter(|(whole, _)| signer(whole).is_some());
        may_sign.map(|(_, anchor)| anchor.clone()).collect()
    }

    /// Those that are that anchor, and what each may sign. There may be several: an authority can have more
    /// than one certificate in the same name and for the same key.
    pub(crate) fn behind(
        &self,
        anchor: &TrustAnchor<'_>,
    ) -> impl Iterator<Item = (&CertificateDer<'static>, Signer)> {
        let anchor = anchor.to_owned();
        let same = self.all().filter(move |(_, other)| **other == anchor);
        same.filter_map(|(whole, _)| signer(whole).map(|signer| (whole, signer)))
    }

    fn all(&self) -> impl Iterator<Item = (&CertificateDer<'static>, &TrustAnchor<'static>)> {
        // Both were given their elements in one order.
        self.whole.iter().zip(&self.store.roots)
    }
}
