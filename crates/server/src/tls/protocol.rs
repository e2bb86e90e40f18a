//! Versions and cipher suites, as the library below knows them.

use crate::config::{Protocol, TlsVersion};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};
use std::sync::Arc;

/// HTTP/2 first: gRPC speaks nothing else.
pub(super) fn alpn() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

pub(super) fn provider(protocol: &Protocol) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !protocol.suites.is_empty() {
        provider.cipher_suites.retain(|suite| is_asked_for(suite, &protocol.suites));
    }
    Arc::new(provider)
}

/// As in etcd, only suites of TLS 1.2 are chosen from; those of 1.3 are all good.
fn is_asked_for(suite: &SupportedCipherSuite, names: &[&str]) -> bool {
    match suite {
        SupportedCipherSuite::Tls13(_) => true,
        SupportedCipherSuite::Tls12(_) => names.contains(&name(suite.suite()).as_str()),
    }
}

fn name(suite: CipherSuite) -> String {
    format!("{suite:?}")
}

pub(super) fn versions(protocol: &Protocol) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::Tls12, &version::TLS12), (TlsVersion::Tls13, &version::TLS13)];
    let allowed = all.into_iter().filter(|(version, _)| (protocol.min..=protocol.max).contains(version));
    allowed.map(|(_, version)| version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RawTls, TlsConfig};

    fn protocol(suites: &str, min: &str, max: &str) -> Protocol {
        let raw = RawTls {
            cipher_suites: suites.to_owned(),
            min_version: min.to_owned(),
            max_version: max.to_owned(),
            ..RawTls::default()
        };
        TlsConfig::from_flags(&raw).expect("good flags").protocol
    }

    #[test]
    fn every_suite_that_can_be_asked_for_exists() {
        let all = provider(&protocol("", "", "")).cipher_suites.len();
        assert_eq!(all, 9);
        for name in [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ] {
            assert_eq!(
                provider(&protocol(name, "", "")).cipher_suites.len(),
                4,
                "{name} and three of TLS 1.3"
            );
        }
    }

    #[test]
    fn versions_are_a_range() {
        assert_eq!(versions(&protocol("", "", "")).len(), 2);
        assert_eq!(versions(&protocol("", "TLS1.3", ""))[0].version, rustls::ProtocolVersion::TLSv1_3);
        assert_eq!(versions(&protocol("", "", "TLS1.2"))[0].version, rustls::ProtocolVersion::TLSv1_2);
    }
}
