//! Sockets for the URLs a member listens on.

use crate::config::MemberUrl;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::Connected;

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {url}: {source}; is another process using the port?")]
pub struct ListenError {
    url: String,
    source: io::Error,
}

/// Binds every address that the URLs' hosts resolve to. A host with an IPv4 and an IPv6 address
/// needs only one of them to work: containers often lack the other.
pub(crate) async fn bind(urls: &[MemberUrl]) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners = Vec::new();
    for url in urls {
        let failed = |source| ListenError { url: url.to_string(), source };
        let authority = (url.host().trim_start_matches('[').trim_end_matches(']'), url.port());
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(authority).await.map_err(failed)?.collect();
        let mut bound = 0;
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    listeners.push(listener);
                    bound += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(failed(error)),
                Err(error) => last_error = error,
            }
        }
        if bound == 0 {
            return Err(failed(last_error));
        }
    }
    Ok(listeners)
}

/// A port that clients or peers come in at. TCP, but for simulation.
pub trait Listener: Send + 'static {
    type Io: AsyncRead + AsyncWrite + Connected + Send + Unpin + 'static;

    /// The next connection, and who is at its other end.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// Asks that small answers are not held back.
    fn hurry(_io: &Self::Io) -> io::Result<()> {
        Ok(())
    }
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }

    fn hurry(io: &TcpStream) -> io::Result<()> {
        io.set_nodelay(true)
    }
}

/// The ports of a member, open.
pub struct Ports<L> {
    pub client: Vec<L>,
    pub peer: Vec<L>,
    pub metrics: Vec<L>,
}
