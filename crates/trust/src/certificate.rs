//! Facts about a certificate that the library below keeps to itself: the common name of its subject,
//! whether it was made for particular names or addresses, and whether it may sign others.
//!
//! Only ever asked about certificates that have been verified or are trusted; what is malformed nevertheless
//! has no name, is made for nobody in particular and may sign nothing. Never panics, whatever the bytes.

use crate::der::{BITS, BMP_STRING, BOOLEAN, Elements, INTEGER, OBJECT_ID, OCTETS, SEQUENCE, SET};
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;

/// `[0]` and `[3]` of a certificate's body: its version and its extensions.
const VERSION: u8 = 0xa0;
pub(crate) const EXTENSIONS: u8 = 0xa3;
/// `[2]` and `[7]` of a name: of a host, and an address.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// 2.5.4.3, 2.5.29.15, 2.5.29.17 and 2.5.29.19, encoded.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// `keyCertSign`, the sixth bit from the left.
const CERT_SIGN: u8 = 0x04;
/// True, in the one way in which it may be written.
const TRUE: &[u8] = &[0xff];

/// The last common name of the subject, as Go takes it; none if it has none or is not text.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let subject = body(certificate)?.nth(SUBJECT)?.1;
    let mut found = None;
    for (tag, relative) in Elements(subject) {
        let attributes = Elements(relative).filter(|_| tag == SET);
        for (_, attribute) in attributes {
            let mut parts = Elements(attribute);
            if parts.next() == Some((OBJECT_ID, COMMON_NAME)) {
                found = parts.next().and_then(text);
            }
        }
    }
    found.filter(|name| !name.is_empty())
}

/// Whether it names hosts or addresses.
pub fn names_places(certificate: &CertificateDer<'_>) -> bool {
    alternative_names(certificate).any(|(tag, _)| matches!(tag, DNS_NAME | IP_ADDRESS))
}

/// The host names that it was made for.
pub fn host_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let names = alternative_names(certificate).filter(|(tag, _)| *tag == DNS_NAME);
    names.filter_map(|(_, name)| String::from_utf8(name.to_vec()).ok()).collect()
}

/// The addresses that it was made for.
pub fn addresses(certificate: &CertificateDer<'_>) -> Vec<IpAddr> {
    let address = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    };
    let found = alternative_names(certificate).filter(|(tag, _)| *tag == IP_ADDRESS);
    found.filter_map(|(_, bytes)| address(bytes)).collect()
}

/// Of the elements of a body without its version.
const SUBJECT: usize = 4;

/// The elements of what was signed, without the optional version.
fn body<'c>(certificate: &'c CertificateDer<'_>) -> Option<impl Iterator<Item = (u8, &'c [u8])>> {
    let (_, whole) = Elements(certificate.as_ref()).find(|(tag, _)| *tag == SEQUENCE)?;
    let (_, signed) = Elements(whole).find(|(tag, _)| *tag == SEQUENCE)?;
    Some(Elements(signed).filter(|(tag, _)| *tag != VERSION))
}

fn alternative_names<'c>(certificate: &'c CertificateDer<'_>) -> impl Iterator<Item = (u8, &'c [u8])> {
    Elements(names_extension(certificate).unwrap_or_default())
}

fn names_extension<'c>(certificate: &'c CertificateDer<'_>) -> Option<&'c [u8]> {
    Elements(extension(certificate, SUBJECT_ALT_NAME)?).next().map(|(_, names)| names)
}

/// What is inside the extension of that kind.
fn extension<'c>(certificate: &'c CertificateDer<'_>, kind: &[u8]) -> Option<&'c [u8]> {
    let (_, wrapped) = body(certificate)?.find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, extensions) = Elements(wrapped).next()?;
    for (_, extension) in Elements(extensions) {
        let mut parts = Elements(extension);
        if parts.next() == Some((OBJECT_ID, kind)) {
            return parts.find(|(tag, _)| *tag == OCTETS).map(|(_, value)| value);
        }
    }
    None
}

/// What an authority may sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signer {
    /// How many authorities may stand between it and the last certificate; as many as one likes if none.
    pub(crate) path_length: Option<u8>,
}

/// Whether it may sign certificates, by the rule of Go: it says that it is an authority, and if it says
/// anything of what its key is for, then this.
pub(crate) fn signer(certificate: &CertificateDer<'_>) -> Option<Signer> {
    let (_, constraints) = Elements(extension(certificate, BASIC_CONSTRAINTS)?).next()?;
    let mut constraints = Elements(constraints);
    if constraints.next() != Some((BOOLEAN, TRUE)) {
        return None;
    }
    let path_length = match constraints.next() {
        None => None,
        Some((INTEGER, [length])) if *length < 0x80 => Some(*length),
        Some(_) => return None,
    };
    if let Some(usage) = extension(certificate, KEY_USAGE) {
        // The first byte says how many bits of the last do not count.
        let Some((BITS, [_, first, ..])) = Elements(usage).next() else { return None };
        if first & CERT_SIGN == 0 {
            return None;
        }
    }
    Some(Signer { path_length })
}

fn text((tag, bytes): (u8, &[u8])) -> Option<String> {
    if tag == BMP_STRING {
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16(&units).ok();
    }
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, KeyPair,
        KeyUsagePurpose,
    };

    fn made(names: &[(DnType, DnValue)], hosts: &[&str]) -> CertificateDer<'static> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("good hosts");
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), name.clone());
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn the_common_name_is_found_among_others() {
        let long = "x".repeat(300);
        for name in ["root", "zü", long.as_str()] {
            let it = made(
                &[
                    (DnType::OrganizationName, utf8("org")),
                    (DnType::CommonName, utf8(name)),
                    (DnType::CountryName, utf8("XX")),
                ],
                &["localhost", "127.0.0.1"],
            );
            assert_eq!(common_name(&it).as_deref(), Some(name));
            assert!(names_places(&it));
            assert_eq!(host_names(&it), ["localhost"]);
            assert_eq!(addresses(&it), [IpAddr::from([127, 0, 0, 1])]);
        }
        let wide = DnValue::BmpString("wide".try_into().expect("text"));
        assert_eq!(common_name(&made(&[(DnType::CommonName, wide)], &[])).as_deref(), Some("wide"));
    }

    #[test]
    fn there_may_be_none() {
        let it = made(&[(DnType::OrganizationName, utf8("org"))], &[]);
        assert_eq!(common_name(&it), None);
        assert!(!names_places(&it));
        assert!(names_places(&made(&[], &["10.0.0.1"])));
    }

    #[test]
    fn only_an_authority_signs_and_only_if_its_key_is_for_that() {
        let (any, two) = (BasicConstraints::Unconstrained, BasicConstraints::Constrained(2));
        let (sign, other) = (KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature);
        for (is_ca, usages, expected) in [
            (IsCa::NoCa, vec![], None),
            (IsCa::ExplicitNoCa, vec![sign], None),
            (IsCa::Ca(any), vec![], Some(None)),
            (IsCa::Ca(any), vec![other, sign], Some(None)),
            (IsCa::Ca(any), vec![other], None),
            (IsCa::Ca(two), vec![sign], Some(Some(2))),
        ] {
            let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
            (params.is_ca, params.key_usages) = (is_ca, usages);
            let key = KeyPair::generate().expect("a key");
            let it = params.self_signed(&key).expect("a certificate").der().clone();
            let found = signer(&it).map(|signer| signer.path_length);
            assert_eq!(found, expected, "{is_ca:?} {:?}", params.key_usages);
        }
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let good = made(&[(DnType::CommonName, utf8("root"))], &["localhost"]);
        for at in 0..good.len() {
            let cut = CertificateDer::from(good[..at].to_vec());
            let _ = (common_name(&cut), names_places(&cut), host_names(&cut), signer(&cut));
            for other in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut bytes = good.to_vec();
                bytes[at] = other;
                let changed = CertificateDer::from(bytes);
                let _ =
                    (common_name(&changed), names_places(&changed), host_names(&changed), signer(&changed));
            }
        }
    }
}
