//! Ports on 127.0.0.1 that stay ours for as long as we hold them.
//!
//! A member keeps its port while it is dead, and others start beside it all the time, so a port that was
//! bound, released and hoped for will not do. A [`Port`] is bound all the time, by a socket that does not
//! listen. Who binds it plainly is refused, and the system gives it to nobody who asks for any port, nor to
//! an outgoing connection. A server, which sets `SO_REUSEADDR`, listens on it beside us. The system takes
//! the port back when the process ends, whatever way that is.
//!
//! Only tests use this.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

/// One port, ours until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _bound: Socket,
}

impl Port {
    /// Takes a port that nobody has, and on which no connection of the past lingers.
    ///
    /// # Errors
    /// If the system has none left.
    pub fn take() -> io::Result<Self> {
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        bound.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        // Only now: had it been set before, the port might have been another's who set it too.
        bound.set_reuse_address(true)?;
        let address = bound.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { number: address.port(), _bound: bound })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its number; the port stays ours until this process ends.
    pub fn keep(self) -> u16 {
        static KEPT: Mutex<Vec<Port>> = Mutex::new(Vec::new());
        let number = self.number;
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn address(port: &Port) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))
    }

    fn bind_plainly(address: SocketAddr) -> io::Result<()> {
        Socket::new(Domain::IPV4, Type::STREAM, None)?.bind(&address.into())
    }

    #[test]
    fn a_held_port_is_nobody_elses() {
        let held: Vec<Port> = (0..200).map(|_| Port::take().expect("a port")).collect();
        let mut numbers: Vec<u16> = held.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.len());
        for port in &held {
            assert_eq!(
                bind_plainly(address(port)).map_err(|error| error.kind()),
                Err(io::ErrorKind::AddrInUse)
            );
        }
    }

    #[test]
    fn a_server_comes_and_goes_on_a_held_port() {
        let port = Port::take().expect("a port");
        for _ in 0..2 {
            let server = TcpListener::bind(address(&port)).expect("it is left to a server");
            TcpListener::bind(address(&port)).expect_err("one server at a time");
            // The side that closes first is the one whose end lingers.
            let client = TcpStream::connect(address(&port)).expect("it listens");
            drop(server.accept().expect("a connection"));
            drop(client);
        }
    }

    #[test]
    fn a_port_that_was_let_go_is_free() {
        let port = Port::take().expect("a port");
        let address = address(&port);
        drop(port);
        bind_plainly(address).expect("free");
    }
}
