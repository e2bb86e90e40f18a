//! Sockets for the URLs a member listens on.

mod places;
mod port;
mod socket;

pub use port::{ListenError, Port, bind_client, bind_peer};
pub use socket::Socket;

pub(crate) use places::Places;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::server::Connected;

/// A port that clients or peers come in at. A [`Port`], but for simulation.
pub trait Listener: Send + 'static {
    type Io: AsyncRead + AsyncWrite + Connected + Send + Unpin + 'static;

    /// The next connection, and who is at its other end.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// Asks that small answers are not held back, and that it is found out who is gone.
    fn hurry(_io: &Self::Io) -> io::Result<()> {
        Ok(())
    }

    /// Whether nobody in between reads along.
    fn is_encrypted(_io: &Self::Io) -> bool {
        false
    }

    /// Whom the certificate of the other end names, where certificates say who a client is.
    fn common_name(_io: &Self::Io) -> Option<Arc<str>> {
        None
    }
}

/// The ports of a member, open.
pub struct Ports<L> {
    pub client: Vec<L>,
    /// For plain HTTP only.
    pub client_http: Vec<L>,
    pub peer: Vec<L>,
    pub metrics: Vec<L>,
}
