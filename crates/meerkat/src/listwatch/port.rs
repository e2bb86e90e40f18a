//! A port of the member's kind, encrypted or not, as the door wants one.

use std::io;
use std::net::SocketAddr;

use meerkat_listwatch::door::{Incoming, prepare_tcp};
use meerkat_server::{Listener, Port, Socket};

/// An open port for the door.
pub struct DoorPort(pub Port);

impl Incoming for DoorPort {
    type Io = Socket;

    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        Listener::accept(&mut self.0).await
    }

    fn prepare(io: &Socket) -> io::Result<()> {
        io.tcp().map_or(Ok(()), prepare_tcp)
    }
}
