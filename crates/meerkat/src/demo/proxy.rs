//! The network between the clients and one member, which can be cut.
//!
//! Cut, it is a black hole: connections stay open, new ones are accepted, and no byte passes either
//! way, nor does the end of a connection. Healed, what was under way goes on where it stopped, as
//! TCP itself would. Each direction holds at most one chunk; connections beyond the bound wait in
//! the kernel until one ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Far more than the four clients of the demo ever open to one member.
const CONNECTIONS_MAX: usize = 256;
const CHUNK_BYTES: usize = 16 * 1024;

pub struct Proxy {
    port: u16,
    cut: watch::Sender<bool>,
    /// Ends with this value, and its connections with it.
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Listens on a port of its own and passes everything on to `member`.
    pub async fn start(member: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (cut, is_cut) = watch::channel(false);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, member, is_cut));
        Ok(Proxy { port, cut, _accepting: accepting })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn heal(&self) {
        self.cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, member: SocketAddr, cut: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else { return };
        let cut = cut.clone();
        connections.spawn(async move {
            // A connection that breaks is the ordinary end of one here.
            drop(carry(client, member, cut).await);
            drop(permit);
        });
    }
}

async fn carry(client: TcpStream, member: SocketAddr, mut cut: watch::Receiver<bool>) -> io::Result<()> {
    passable(&mut cut).await?;
    // A member that is down refuses, and the client is refused by the end of its connection.
    let server = TcpStream::connect(member).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let second = cut.clone();
    // The first direction that breaks ends both; one that ends well lets the other finish.
    tokio::try_join!(
        pump(&mut from_client, &mut to_server, cut),
        pump(&mut from_server, &mut to_client, second)
    )?;
    Ok(())
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut cut: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await;
        // The news, good or bad, waits as long as the network is cut.
        passable(&mut cut).await?;
        match read? {
            0 => return to.shutdown().await,
            length => to.write_all(&chunk[..length]).await?,
        }
    }
}

async fn passable(cut: &mut watch::Receiver<bool>) -> io::Result<()> {
    match cut.wait_for(|is_cut| !is_cut).await {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("the proxy has ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Long enough for loopback to have carried what it was going to carry.
    const MOMENT: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A server that sends back what it is sent.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    async fn dial(proxy: &Proxy) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).await.expect("the proxy listens")
    }

    async fn read_four(stream: &mut TcpStream) -> io::Result<[u8; 4]> {
        let mut bytes = [0; 4];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("in time")?;
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_cut_carries_nothing_closes_nothing_and_heals_without_loss() {
        let proxy = Proxy::start(echo().await).await.expect("a proxy");
        let mut stream = dial(&proxy).await;
        stream.write_all(b"ping").await.expect("written");
        assert_eq!(&read_four(&mut stream).await.expect("answered"), b"ping");

        proxy.cut();
        stream.write_all(b"held").await.expect("the kernel takes it");
        let mut late = dial(&proxy).await;
        late.write_all(b"late").await.expect("the kernel takes it");
        let mut byte = [0; 1];
        let silence = tokio::time::timeout(MOMENT, stream.read(&mut byte)).await;
        assert!(silence.is_err(), "neither a byte nor an end: {silence:?}");
        let silence = tokio::time::timeout(MOMENT, late.read(&mut byte)).await;
        assert!(silence.is_err(), "nor for a new connection: {silence:?}");

        proxy.heal();
        assert_eq!(&read_four(&mut stream).await.expect("answered"), b"held");
        assert_eq!(&read_four(&mut late).await.expect("answered"), b"late");
    }

    #[tokio::test]
    async fn a_member_that_is_down_ends_the_connection() {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = gone.local_addr().expect("bound");
        drop(gone);
        let proxy = Proxy::start(address).await.expect("a proxy");
        let mut stream = dial(&proxy).await;
        assert!(read_four(&mut stream).await.is_err(), "there is nobody to answer");
    }

    #[tokio::test]
    async fn connections_end_with_their_proxy() {
        let proxy = Proxy::start(echo().await).await.expect("a proxy");
        let mut stream = dial(&proxy).await;
        stream.write_all(b"ping").await.expect("written");
        read_four(&mut stream).await.expect("answered");
        drop(proxy);
        assert!(read_four(&mut stream).await.is_err());
    }
}
