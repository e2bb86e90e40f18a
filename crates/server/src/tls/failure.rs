//! What is said of a handshake that failed, in the words of Go where operators look for them.

use rustls::{AlertDescription, CertificateError, Error};
use std::io;
use std::net::IpAddr;

/// What TLS made of it; none if it was the connection that failed.
pub(super) fn of(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

pub(super) fn text(error: &io::Error) -> String {
    match of(error) {
        Some(Error::AlertReceived(alert)) => format!("remote error: tls: {}", of_alert(*alert)),
        _ => error.to_string(),
    }
}

/// The same of a caller, whose name matters only to the lists of those allowed.
pub(super) fn text_of_caller(error: &io::Error) -> String {
    let text = text(error);
    let is_listed = CertificateError::NotValidForName;
    match of(error) {
        Some(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
            format!("client certificate authentication failed: {text}")
        }
        Some(Error::InvalidCertificate(other)) if *other == is_listed => {
            format!("client certificate authentication failed: {text}")
        }
        _ => text,
    }
}

/// Why a certificate is not for the address that its caller comes from, in the words of Go and etcd.
pub(super) fn of_address(from: IpAddr, addresses: &[String], names: &[String]) -> String {
    if names.is_empty() {
        return format!("x509: certificate is valid for {}, not {from}", addresses.join(", "));
    }
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("tls: \"{from}\" does not match any of DNSNames [{}]", names.join(" "))
}

fn of_alert(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::IllegalParameter => "illegal parameter",
        AlertDescription::InternalError => "internal error",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_reads_as_in_go_and_a_certificate_off_the_list_as_in_etcd() {
        let failed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let alert = failed(Error::AlertReceived(AlertDescription::BadCertificate));
        assert_eq!(text(&alert), "remote error: tls: bad certificate");
        let off = failed(Error::InvalidCertificate(CertificateError::NotValidForName));
        assert!(text_of_caller(&off).starts_with("client certificate authentication failed: "));
        let late = failed(Error::InvalidCertificate(CertificateError::Expired));
        assert_eq!(text_of_caller(&late), late.to_string());
    }

    #[test]
    fn certificate_of_another_address_is_refused_in_gos_words() {
        let from = IpAddr::from([10, 0, 1, 10]);
        let addresses = ["127.0.0.1".to_owned(), "10.0.1.11".to_owned()];
        assert_eq!(
            of_address(from, &addresses, &[]),
            "x509: certificate is valid for 127.0.0.1, 10.0.1.11, not 10.0.1.10"
        );
        let names = ["localhost".to_owned(), "*.example.com".to_owned()];
        assert_eq!(
            of_address(from, &addresses, &names),
            r#"tls: "10.0.1.10" does not match any of DNSNames ["localhost" "*.example.com"]"#
        );
    }
}
