//! How a member without data learns who the others are, if `--initial-cluster` does not say.
//!
//! Pure: which way was chosen and whether the choice makes sense. Asking is for whoever runs the member,
//! before it begins; a member that has data ignores all of this.

use std::fmt;
use std::time::Duration;

use super::{ConfigError, Keepalive, RawFlags, TlsConfig};

/// Flags, before any rule is applied. An empty text is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDiscovery {
    pub srv: String,
    pub srv_name: String,
    pub token: String,
    /// Comma-separated.
    pub endpoints: String,
    pub dial_timeout: Duration,
    pub request_timeout: Duration,
    pub keepalive: Keepalive,
    pub insecure_transport: bool,
    pub insecure_skip_tls_verify: bool,
    pub cert: String,
    pub key: String,
    pub cacert: String,
    pub user: String,
    pub password: Secret,
}

impl Default for RawDiscovery {
    fn default() -> RawDiscovery {
        RawDiscovery {
            srv: String::new(),
            srv_name: String::new(),
            token: String::new(),
            endpoints: String::new(),
            dial_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            keepalive: Keepalive { interval: Duration::from_secs(2), timeout: Duration::from_secs(6) },
            insecure_transport: true,
            insecure_skip_tls_verify: false,
            cert: String::new(),
            key: String::new(),
            cacert: String::new(),
            user: String::new(),
            password: Secret::default(),
        }
    }
}

/// A text that no log gets to see.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where the initial cluster is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// In the SRV records of a domain.
    Dns(DnsDiscovery),
    /// At a cluster that runs already, where the members of this one tell each other of themselves.
    Registry(RegistryDiscovery),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsDiscovery {
    pub domain: String,
    /// Of several clusters in one domain, this one.
    pub service_name: Option<String>,
}

/// Which cluster is looked for, and how its registry is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryDiscovery {
    pub token: String,
    /// At least one, as they were written.
    pub endpoints: Vec<String>,
    pub dial_timeout: Duration,
    pub request_timeout: Duration,
    pub keepalive: Keepalive,
    pub insecure_transport: bool,
    pub insecure_skip_tls_verify: bool,
    /// Files; empty if not given.
    pub cert: String,
    pub key: String,
    pub cacert: String,
    pub login: Option<(String, Secret)>,
}

pub(super) fn read(raw: &RawFlags) -> Result<Option<Discovery>, ConfigError> {
    let flags = &raw.discovery;
    let is_listed = raw.initial_cluster.as_deref().is_some_and(|text| !text.is_empty());
    let ways = [is_listed, !flags.srv.is_empty(), is_at_a_registry(flags)];
    if 1 < ways.iter().filter(|chosen| **chosen).count() {
        return Err(ConfigError::ConflictingBootstrap);
    }
    if flags.token.is_empty() != flags.endpoints.is_empty() {
        return Err(ConfigError::HalfARegistry);
    }
    if is_at_a_registry(flags) {
        return Ok(Some(Discovery::Registry(registry(flags)?)));
    }
    Ok((!flags.srv.is_empty()).then(|| {
        Discovery::Dns(DnsDiscovery {
            domain: flags.srv.clone(),
            service_name: Some(flags.srv_name.clone()).filter(|name| !name.is_empty()),
        })
    }))
}

fn registry(flags: &RawDiscovery) -> Result<RegistryDiscovery, ConfigError> {
    let endpoints: Vec<String> = flags.endpoints.split(',').map(|text| text.trim().to_owned()).collect();
    if endpoints.iter().any(String::is_empty) {
        return Err(ConfigError::EmptyEndpoint);
    }
    Ok(RegistryDiscovery {
        token: flags.token.clone(),
        endpoints,
        dial_timeout: flags.dial_timeout,
        request_timeout: flags.request_timeout,
        keepalive: flags.keepalive,
        insecure_transport: flags.insecure_transport,
        insecure_skip_tls_verify: flags.insecure_skip_tls_verify,
        cert: flags.cert.clone(),
        key: flags.key.clone(),
        cacert: flags.cacert.clone(),
        login: login(&flags.user, &flags.password)?,
    })
}

/// `name:password`, or a name and a password. A member has nobody to ask for one that is missing.
fn login(user: &str, password: &Secret) -> Result<Option<(String, Secret)>, ConfigError> {
    let apart = user.split_once(':').filter(|_| password.0.is_empty());
    match (user.is_empty(), password.0.is_empty(), apart) {
        (true, true, _) => Ok(None),
        (false, _, Some((name, password))) => Ok(Some((name.to_owned(), Secret(password.to_owned())))),
        (false, false, None) => Ok(Some((user.to_owned(), password.clone()))),
        (false, true, None) | (true, false, _) => Err(ConfigError::HalfALogin),
    }
}

/// Whether the flags mean to find the cluster in DNS, so that this member alone is not it. As in etcd, the
/// name of a service counts for nothing beside a registry.
pub(super) fn is_in_dns(raw: &RawDiscovery) -> bool {
    !is_at_a_registry(raw) && (!raw.srv.is_empty() || !raw.srv_name.is_empty())
}

/// Whether the flags mean to find the cluster at a service, to which this member tells of itself.
pub(super) fn is_at_a_registry(raw: &RawDiscovery) -> bool {
    !raw.endpoints.is_empty()
}

/// Tells clusters apart that are found at services: their members' ids rest on the token.
pub(super) fn token(discovery: Option<&Discovery>) -> Option<String> {
    match discovery {
        Some(Discovery::Registry(registry)) => Some(registry.token.clone()),
        Some(Discovery::Dns(_)) | None => None,
    }
}

/// Whom a domain names must have a certificate of the domain, unless an authority of the cluster's own
/// vouches for its members; as in etcd.
pub(super) fn expect_domain(tls: &mut TlsConfig, discovery: Option<&Discovery>) {
    if let (Some(Discovery::Dns(dns)), None) = (discovery, &tls.peer.trusted_ca_file) {
        tls.peer.server_name = Some(dns.domain.trim_end_matches('.').to_owned());
    }
}
