//! From what a person writes for an endpoint to something that can be connected to.

use crate::config::Config;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Endpoint;

/// HTTP/2 pings on connections with open streams. Slower than etcd's limit of one in 5 s, below
/// which it closes the connection; the prober is what finds dead members fast.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// What one stream, and one connection, may have in flight towards us. Above the default of 64 KiB,
/// which is less than a long list needs to flow at full speed.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// The endpoint's name (a URL without a path, or a socket's) and how to connect to it.
pub(crate) fn endpoint(address: &str, config: &Config) -> Result<(Arc<str>, Endpoint), Error> {
    let name = normal(address)?;
    let wrong = |error: tonic::transport::Error| Error::invalid(format!("bad endpoint {address:?}: {error}"));
    let endpoint = Endpoint::from_shared(name.clone())
        .map_err(wrong)?
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let endpoint = secured(&name, endpoint, config)?;
    Ok((name.into(), endpoint))
}

#[cfg(feature = "tls")]
fn secured(name: &str, endpoint: Endpoint, config: &Config) -> Result<Endpoint, Error> {
    if !name.starts_with("https://") {
        return Ok(endpoint);
    }
    config.tls.check().map_err(|reason| Error::invalid(format!("bad TLS settings for {name}: {reason}")))?;
    let wrong = |error| Error::invalid(format!("bad TLS settings for {name}: {error}"));
    config.tls.secure(endpoint).map_err(wrong)
}

#[cfg(not(feature = "tls"))]
fn secured(name: &str, endpoint: Endpoint, _: &Config) -> Result<Endpoint, Error> {
    match name.starts_with("https://") {
        true => Err(Error::invalid(format!("{name} needs the feature \"tls\" of this library"))),
        false => Ok(endpoint),
    }
}

fn normal(address: &str) -> Result<String, Error> {
    let address = address.trim();
    if address.strip_prefix("unix://").is_some_and(|path| !path.is_empty()) {
        return Ok(address.to_owned());
    }
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let authority = rest.trim_end_matches('/');
    let known = scheme == "http" || scheme == "https";
    if !known || authority.is_empty() || authority.contains('/') {
        let text = format!(
            "bad endpoint {address:?}: give host:port, http://host:port, https://host:port or unix://path"
        );
        return Err(Error::invalid(text));
    }
    Ok(format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_brought_to_one_form() {
        let table = [
            ("127.0.0.1:2379", Some("http://127.0.0.1:2379")),
            (" http://a:1/ ", Some("http://a:1")),
            ("https://a:1", Some("https://a:1")),
            ("[::1]:2379", Some("http://[::1]:2379")),
            ("unix:///run/a.sock", Some("unix:///run/a.sock")),
            ("unix://", None),
            ("", None),
            ("ftp://a:1", None),
            ("http://a:1/path", None),
            ("http://", None),
        ];
        for (address, wanted) in table {
            assert_eq!(normal(address).ok().as_deref(), wanted, "{address:?}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let config = Config::new(["a:1"]);
        assert!(endpoint("a b:1", &config).is_err());
        assert!(endpoint("a:1", &config).is_ok());
    }
}
