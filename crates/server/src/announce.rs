//! Says that the member serves: to those who read the log, and to systemd.

use crate::config::{Config, Transport};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Writes the lines that harnesses written for etcd wait for, and tells systemd.
pub(crate) fn announce(config: &Config) {
    tracing::info!("ready to serve client requests");
    let traffic = if config.listen_client_http_urls.is_empty() { "grpc+http" } else { "grpc" };
    let urls = config.listen_client_urls.iter().map(|url| (url, traffic));
    for (url, traffic) in urls.chain(config.listen_client_http_urls.iter().map(|url| (url, "http"))) {
        let address = url.address();
        match url.transport() {
            Transport::Tls => tracing::info!(traffic, address, "serving client traffic securely"),
            Transport::Plain => tracing::info!(
                traffic,
                address,
                "serving client traffic insecurely; this is strongly discouraged!"
            ),
        }
    }
    tell_manager();
}

/// Tells the manager of services that started this process, if one did, that it serves.
pub fn tell_manager() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())
        && let Err(error) = notify(&socket.to_string_lossy())
    {
        tracing::warn!(%error, "systemd was not told that this process is ready");
    }
}

/// One datagram to where a service manager waits for it; a name that begins with `@` is no file.
fn notify(socket: &str) -> std::io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_of_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let listening = UnixDatagram::bind(&path).expect("bound");
        notify(&path.to_string_lossy()).expect("told");
        let mut heard = [0; 32];
        let length = listening.recv(&mut heard).expect("one");
        assert_eq!(&heard[..length], b"READY=1");
        assert!(notify("/nowhere/at/all").is_err());
    }
}
