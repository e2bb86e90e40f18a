//! Two facts about a certificate that the library below keeps to itself: the common name of its
//! subject, and whether it was made for particular names or addresses.
//!
//! Only ever asked about certificates that have been verified; what is malformed nevertheless has no
//! name and is made for nobody in particular. Never panics, whatever the bytes.

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const BMP_STRING: u8 = 0x1e;
/// `[0]` and `[3]` of a certificate's body: its version and its extensions.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `[2]` and `[7]` of a name: of a host, and an address.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// 2.5.4.3 and 2.5.29.17, encoded.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The last common name of the subject, as Go takes it; none if it has none or is not text.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
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
pub(super) fn names_places(certificate: &CertificateDer<'_>) -> bool {
    alternative_names(certificate).any(|(tag, _)| matches!(tag, DNS_NAME | IP_ADDRESS))
}

/// The host names that it was made for.
pub(super) fn host_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let names = alternative_names(certificate).filter(|(tag, _)| *tag == DNS_NAME);
    names.filter_map(|(_, name)| String::from_utf8(name.to_vec()).ok()).collect()
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
    let (_, wrapped) = body(certificate)?.find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, extensions) = Elements(wrapped).next()?;
    for (_, extension) in Elements(extensions) {
        let mut parts = Elements(extension);
        if parts.next() == Some((OBJECT_ID, SUBJECT_ALT_NAME)) {
            let (_, value) = parts.find(|(tag, _)| *tag == OCTETS)?;
            return Elements(value).next().map(|(_, names)| names);
        }
    }
    None
}

fn text((tag, bytes): (u8, &[u8])) -> Option<String> {
    if tag == BMP_STRING {
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16(&units).ok();
    }
    String::from_utf8(bytes.to_vec()).ok()
}

/// One element after the other: tag and content. Ends at the first that is malformed.
struct Elements<'d>(&'d [u8]);

impl<'d> Iterator for Elements<'d> {
    type Item = (u8, &'d [u8]);

    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((usize::from(first), rest));
    }
    let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    if digits.is_empty() || size_of::<u32>() < digits.len() {
        return None;
    }
    Some((digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

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
    fn no_bytes_are_too_strange() {
        let good = made(&[(DnType::CommonName, utf8("root"))], &["localhost"]);
        for at in 0..good.len() {
            let cut = CertificateDer::from(good[..at].to_vec());
            let _ = (common_name(&cut), names_places(&cut), host_names(&cut));
            for other in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut bytes = good.to_vec();
                bytes[at] = other;
                let changed = CertificateDer::from(bytes);
                let _ = (common_name(&changed), names_places(&changed), host_names(&changed));
            }
        }
    }
}
