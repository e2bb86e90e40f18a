//! The flags about TLS, as the server wants them.

use meerkat_server::config::{RawSecurity, RawTls};

use super::given::Given;

pub fn raw_tls(given: &Given) -> Result<RawTls, String> {
    let text = |name| given.text(name).to_owned();
    Ok(RawTls {
        client: RawSecurity {
            cert_file: text("cert-file"),
            key_file: text("key-file"),
            client_cert_file: text("client-cert-file"),
            client_key_file: text("client-key-file"),
            trusted_ca_file: text("trusted-ca-file"),
            client_cert_auth: given.switch("client-cert-auth"),
            crl_file: text("client-crl-file"),
            allowed_cns: String::new(),
            allowed_hostnames: text("client-cert-allowed-hostname"),
            auto_tls: given.switch("auto-tls"),
            skip_client_san_verification: false,
        },
        peer: RawSecurity {
            cert_file: text("peer-cert-file"),
            key_file: text("peer-key-file"),
            client_cert_file: text("peer-client-cert-file"),
            client_key_file: text("peer-client-key-file"),
            trusted_ca_file: text("peer-trusted-ca-file"),
            client_cert_auth: given.switch("peer-client-cert-auth"),
            crl_file: text("peer-crl-file"),
            allowed_cns: text("peer-cert-allowed-cn"),
            allowed_hostnames: text("peer-cert-allowed-hostname"),
            auto_tls: given.switch("peer-auto-tls"),
            skip_client_san_verification: given.switch("peer-skip-client-san-verification"),
        },
        cipher_suites: text("cipher-suites"),
        min_version: text("tls-min-version"),
        max_version: text("tls-max-version"),
        self_signed_cert_validity_years: given.number("self-signed-cert-validity")?,
    })
}
