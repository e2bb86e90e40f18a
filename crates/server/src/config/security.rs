//! What the flags say about TLS, checked once.
//!
//! One [`Security`] for the client ports and one for the peer ports, as in etcd; versions and cipher
//! suites are the same for both. Pure: whether the files can be read is found out when they are
//! opened, before the disk is touched.

use std::path::PathBuf;

use thiserror::Error;

use super::{MemberUrl, Transport};

/// Flags of one side, before any rule is applied. An empty path is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawSecurity {
    pub cert_file: String,
    pub key_file: String,
    /// What is shown to others when this member dials them, if not the above.
    pub client_cert_file: String,
    pub client_key_file: String,
    pub trusted_ca_file: String,
    pub client_cert_auth: bool,
    pub crl_file: String,
    pub allowed_cns: String,
    pub allowed_hostnames: String,
    pub auto_tls: bool,
    pub skip_client_san_verification: bool,
}

/// Flags of both sides, before any rule is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTls {
    pub client: RawSecurity,
    pub peer: RawSecurity,
    pub cipher_suites: String,
    pub min_version: String,
    pub max_version: String,
    pub self_signed_cert_validity_years: u32,
}

impl Default for RawTls {
    fn default() -> RawTls {
        RawTls {
            client: RawSecurity::default(),
            peer: RawSecurity::default(),
            cipher_suites: String::new(),
            min_version: "TLS1.2".to_owned(),
            max_version: String::new(),
            self_signed_cert_validity_years: 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecurityError {
    #[error("--{prefix}cert-file and --{prefix}key-file go together: give both")]
    HalfAPair { prefix: &'static str },
    #[error(
        "TLS key/cert (--{prefix}cert-file, --{prefix}key-file) must be provided for {side} url {url} with HTTPS scheme (or --{prefix}auto-tls)"
    )]
    NoCertificate { prefix: &'static str, side: &'static str, url: MemberUrl },
    #[error("client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url")]
    NoCertificateForMetrics,
    #[error("--peer-cert-allowed-cn and --peer-cert-allowed-hostname are mutually exclusive")]
    TwoAllowLists,
    #[error("--{prefix}auto-tls makes a certificate that no authority has signed; it cannot go with {with}")]
    AutoWith { prefix: &'static str, with: String },
    #[error(
        "--{flag} needs --{prefix}trusted-ca-file or --{prefix}client-cert-auth: nobody shows a certificate"
    )]
    NobodyToCheck { flag: &'static str, prefix: &'static str },
    #[error("unexpected TLS version {0:?}: expected TLS1.2 or TLS1.3")]
    Version(String),
    #[error("--tls-min-version TLS1.3 is above --tls-max-version TLS1.2")]
    VersionsCrossed,
    #[error("cipher suites cannot be configured when only TLS1.3 is enabled")]
    SuitesOfTls13,
    #[error("unexpected TLS cipher suite {0:?}")]
    UnknownSuite(String),
    #[error("none of the --cipher-suites is offered here; those that are: {0}")]
    NoSuiteLeft(String),
    #[error("--self-signed-cert-validity must be at least 1 (year) and at most 100")]
    Validity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// Which protocol is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub min: TlsVersion,
    pub max: TlsVersion,
    /// Of TLS 1.2, by the names that the registry gives them. Empty: all that are offered here.
    pub suites: Vec<&'static str>,
    /// Asked for, and not offered here: without forward secrecy, or not authenticated encryption.
    pub suites_left_out: Vec<String>,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// How one side is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// What this member shows. With `auto_tls` it is made when first needed.
    pub own: Option<KeyPair>,
    /// What it shows when it dials, if not `own`.
    pub dialing: Option<KeyPair>,
    pub trusted_ca_file: Option<PathBuf>,
    /// Callers must show a certificate that was signed by whom we trust.
    pub callers_prove: bool,
    /// `--client-cert-auth` itself: the name in a client's certificate is who it is.
    pub names_are_users: bool,
    pub crl_file: Option<PathBuf>,
    pub allowed_cns: Vec<String>,
    pub allowed_hostnames: Vec<String>,
    pub auto_tls: bool,
    /// What a certificate must name when this member dials, if not the host that it dials.
    pub server_name: Option<String>,
    /// Whether a caller's address must be among those that its certificate was made for.
    pub check_callers_address: bool,
}

/// TLS of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    pub client: Security,
    pub peer: Security,
    pub protocol: Protocol,
    pub self_signed_years: u32,
}

/// Suites of TLS 1.2 that are offered.
const OFFERED: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Names that etcd knows for two of them.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// Suites that etcd would take and that are not offered here, and those of TLS 1.3, which are always on.
const LEFT_OUT: &[&str] = &[
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

const CLIENT: &str = "";
const PEER: &str = "peer-";

impl TlsConfig {
    pub fn from_flags(raw: &RawTls) -> Result<TlsConfig, SecurityError> {
        if !(1..=100).contains(&raw.self_signed_cert_validity_years) {
            return Err(SecurityError::Validity);
        }
        let mut client = security(&raw.client, CLIENT)?;
        // A client may call from anywhere; a member calls from where its certificate says.
        client.check_callers_address = false;
        Ok(TlsConfig {
            client,
            peer: security(&raw.peer, PEER)?,
            protocol: protocol(raw)?,
            self_signed_years: raw.self_signed_cert_validity_years,
        })
    }

    /// Whether what listens at these has a certificate to show.
    pub(super) fn check_listeners(
        &self,
        client_urls: &[&[MemberUrl]],
        peer_urls: &[MemberUrl],
        metrics_urls: &[MemberUrl],
    ) -> Result<(), SecurityError> {
        let client_urls = client_urls.iter().flat_map(|urls| urls.iter());
        let sides = [
            (&self.client, CLIENT, "client", client_urls.collect::<Vec<_>>()),
            (&self.peer, PEER, "peer", peer_urls.iter().collect()),
        ];
        let is_encrypted = |url: &&MemberUrl| url.transport() == Transport::Tls;
        let has_none = |security: &Security| security.own.is_none() && !security.auto_tls;
        for (security, prefix, side, urls) in sides {
            let encrypted = urls.into_iter().find(is_encrypted);
            if let Some(url) = encrypted.filter(|_| has_none(security)) {
                return Err(SecurityError::NoCertificate { prefix, side, url: url.clone() });
            }
        }
        match metrics_urls.iter().find(is_encrypted) {
            Some(_) if has_none(&self.client) => Err(SecurityError::NoCertificateForMetrics),
            _ => Ok(()),
        }
    }

    /// What an operator should hear: protection that was asked for and does not reach a listener.
    pub fn notices(&self, client_urls: &[MemberUrl], peer_urls: &[MemberUrl]) -> Vec<String> {
        let mut notices = Vec::new();
        for (side, security, urls) in [("client", &self.client, client_urls), ("peer", &self.peer, peer_urls)]
        {
            for url in urls.iter().filter(|url| url.transport() == Transport::Plain) {
                if security.own.is_some() {
                    notices.push(format!("{url} is not encrypted although {side} key and cert files are given: they are not used for it"));
                }
                if security.callers_prove {
                    notices.push(format!("{url} is not encrypted although {side} certificates are to be checked: whoever reaches it is let in"));
                }
            }
        }
        if !self.protocol.suites_left_out.is_empty() {
            let names = self.protocol.suites_left_out.join(",");
            notices.push(format!("--cipher-suites: not offered here, and left out: {names}"));
        }
        notices
    }
}

fn security(raw: &RawSecurity, prefix: &'static str) -> Result<Security, SecurityError> {
    let own = pair(&raw.cert_file, &raw.key_file, prefix)?;
    let dialing = pair(
        &raw.client_cert_file,
        &raw.client_key_file,
        if prefix == CLIENT { "client-" } else { "peer-client-" },
    )?;
    // As in etcd: whom to trust means that everybody is asked.
    let callers_prove = raw.client_cert_auth || !raw.trusted_ca_file.is_empty();
    // etcd takes what is given over what it would make.
    let auto_tls = raw.auto_tls && own.is_none();
    if auto_tls && callers_prove {
        let with = format!("--{prefix}trusted-ca-file or --{prefix}client-cert-auth");
        return Err(SecurityError::AutoWith { prefix, with });
    }
    let security = Security {
        own,
        dialing,
        trusted_ca_file: path(&raw.trusted_ca_file),
        callers_prove,
        names_are_users: raw.client_cert_auth,
        crl_file: path(&raw.crl_file),
        allowed_cns: list(&raw.allowed_cns),
        allowed_hostnames: list(&raw.allowed_hostnames),
        auto_tls,
        server_name: None,
        check_callers_address: !raw.skip_client_san_verification,
    };
    check_allow_lists(&security, prefix)?;
    Ok(security)
}

/// An allow-list that is never looked at would be a lock without a door.
fn check_allow_lists(security: &Security, prefix: &'static str) -> Result<(), SecurityError> {
    if !security.allowed_cns.is_empty() && !security.allowed_hostnames.is_empty() {
        return Err(SecurityError::TwoAllowLists);
    }
    if security.callers_prove {
        return Ok(());
    }
    let (hostname, crl) = match prefix {
        CLIENT => ("client-cert-allowed-hostname", "client-crl-file"),
        _ => ("peer-cert-allowed-hostname", "peer-crl-file"),
    };
    let lists = [
        ("peer-cert-allowed-cn", security.allowed_cns.is_empty()),
        (hostname, security.allowed_hostnames.is_empty()),
        (crl, security.crl_file.is_none()),
    ];
    match lists.into_iter().find(|(_, is_empty)| !is_empty) {
        Some((flag, _)) => Err(SecurityError::NobodyToCheck { flag, prefix }),
        None => Ok(()),
    }
}

fn pair(cert: &str, key: &str, prefix: &'static str) -> Result<Option<KeyPair>, SecurityError> {
    match (path(cert), path(key)) {
        (None, None) => Ok(None),
        (Some(cert_file), Some(key_file)) => Ok(Some(KeyPair { cert_file, key_file })),
        _ => Err(SecurityError::HalfAPair { prefix }),
    }
}

fn path(text: &str) -> Option<PathBuf> {
    Some(text).filter(|text| !text.is_empty()).map(PathBuf::from)
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn protocol(raw: &RawTls) -> Result<Protocol, SecurityError> {
    let min = version(&raw.min_version)?.unwrap_or(TlsVersion::Tls12);
    let max = version(&raw.max_version)?.unwrap_or(TlsVersion::Tls13);
    if max < min {
        return Err(SecurityError::VersionsCrossed);
    }
    let asked = list(&raw.cipher_suites);
    if min == TlsVersion::Tls13 && !asked.is_empty() {
        return Err(SecurityError::SuitesOfTls13);
    }
    let (mut suites, mut suites_left_out) = (Vec::new(), Vec::new());
    for name in &asked {
        let known =
            OTHER_NAMES.iter().find(|(other, _)| other == name).map_or(name.as_str(), |(_, known)| known);
        match OFFERED.iter().find(|offered| **offered == known) {
            Some(offered) => suites.push(*offered),
            None if LEFT_OUT.contains(&known) => suites_left_out.push(name.clone()),
            None => return Err(SecurityError::UnknownSuite(name.clone())),
        }
    }
    if suites.is_empty() && !asked.is_empty() {
        return Err(SecurityError::NoSuiteLeft(OFFERED.join(",")));
    }
    Ok(Protocol { min, max, suites, suites_left_out })
}

fn version(text: &str) -> Result<Option<TlsVersion>, SecurityError> {
    match text {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::Tls12)),
        "TLS1.3" => Ok(Some(TlsVersion::Tls13)),
        other => Err(SecurityError::Version(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut RawTls)) -> Result<TlsConfig, SecurityError> {
        let mut raw = RawTls::default();
        change(&mut raw);
        TlsConfig::from_flags(&raw)
    }

    fn check_refused(expected: &str, change: impl FnOnce(&mut RawTls)) {
        let refused = with(change).expect_err(expected).to_string();
        assert!(refused.contains(expected), "{refused:?} should contain {expected:?}");
    }

    fn give_peer_certificate(raw: &mut RawTls) {
        raw.peer.cert_file = "c".to_owned();
        raw.peer.key_file = "k".to_owned();
    }

    #[test]
    fn what_cannot_protect_is_refused_and_names_its_flag() {
        check_refused("--cert-file and --key-file go together", |raw| raw.client.cert_file = "c".to_owned());
        check_refused("--peer-client-cert-file and", |raw| raw.peer.client_key_file = "k".to_owned());
        check_refused("--peer-cert-allowed-cn needs", |raw| raw.peer.allowed_cns = "a".to_owned());
        check_refused("--client-crl-file needs", |raw| raw.client.crl_file = "a".to_owned());
        check_refused("mutually exclusive", |raw| {
            raw.peer.trusted_ca_file = "ca".to_owned();
            raw.peer.allowed_cns = "a".to_owned();
            raw.peer.allowed_hostnames = "b".to_owned();
        });
        check_refused("--auto-tls makes a certificate", |raw| {
            raw.client.auto_tls = true;
            raw.client.client_cert_auth = true;
        });
        check_refused("--self-signed-cert-validity", |raw| raw.self_signed_cert_validity_years = 0);
    }

    #[test]
    fn whom_to_trust_means_that_everybody_is_asked() {
        let config = with(|raw| {
            give_peer_certificate(raw);
            raw.peer.trusted_ca_file = "ca".to_owned();
        });
        let peer = config.expect("good").peer;
        assert!(peer.callers_prove && !peer.names_are_users && peer.check_callers_address);
    }

    #[test]
    fn given_files_win_over_those_that_would_be_made() {
        let config = with(|raw| {
            give_peer_certificate(raw);
            raw.peer.auto_tls = true;
        });
        assert!(!config.expect("good").peer.auto_tls);
    }

    #[test]
    fn versions_and_suites_are_those_that_etcd_takes() {
        check_refused("unexpected TLS version \"SSL3\"", |raw| raw.min_version = "SSL3".to_owned());
        check_refused("is above", |raw| {
            raw.min_version = "TLS1.3".to_owned();
            raw.max_version = "TLS1.2".to_owned();
        });
        check_refused("only TLS1.3 is enabled", |raw| {
            raw.min_version = "TLS1.3".to_owned();
            raw.cipher_suites = OFFERED[0].to_owned();
        });
        check_refused("unexpected TLS cipher suite \"ROT13\"", |raw| raw.cipher_suites = "ROT13".to_owned());
        check_refused("none of the --cipher-suites", |raw| {
            raw.cipher_suites = "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned();
        });
        let protocol = with(|raw| {
            raw.cipher_suites =
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_RSA_WITH_AES_128_CBC_SHA".to_owned();
        });
        let protocol = protocol.expect("one is left").protocol;
        assert_eq!(protocol.suites, ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
        assert_eq!(protocol.suites_left_out, ["TLS_RSA_WITH_AES_128_CBC_SHA"]);
    }

    #[test]
    fn an_encrypted_listener_needs_a_certificate_and_a_plain_one_is_told_of() {
        let urls = |text: &str| MemberUrl::parse_list(text).expect("good");
        let none = with(|_| {}).expect("good");
        let refused =
            none.check_listeners(&[&urls("https://127.0.0.1:1")], &[], &[]).expect_err("no certificate");
        assert!(
            refused
                .to_string()
                .contains("(--cert-file, --key-file) must be provided for client url https://127.0.0.1:1")
        );
        assert!(none.check_listeners(&[], &urls("https://127.0.0.1:1"), &[]).is_err());
        let given = with(give_peer_certificate).expect("good");
        assert_eq!(given.check_listeners(&[], &urls("https://127.0.0.1:1"), &[]), Ok(()));
        let told = given.notices(&[], &urls("https://127.0.0.1:1,http://127.0.0.1:2"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("http://127.0.0.1:2 is not encrypted"), "{told:?}");
    }
}
