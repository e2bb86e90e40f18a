//! Connections: taken, kept honest, and ended in order.

use super::stall::Impatient;
use super::{Alive, Door, Incoming, request};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

/// From one request to the end of the headers of the next: longer than clients keep an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// From a connection to its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Watches are silent for long. Who is gone without a word is found by these.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// The first line and the headers, with two selectors as long as anybody sends.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Requests of one connection at one time. Many informers share one.
const STREAMS_MAX: u32 = 1_000;
/// Of one of them, what is made before the client takes it.
const SEND_BYTES_MAX: usize = 64 << 10;
/// After a failure to accept, which is most often that there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until the door closes. When there are as many as there may be, others wait outside.
pub async fn accept<L: Incoming>(door: Arc<Door>, mut listener: L, alive: Alive) {
    let mut ending = door.ending.clone();
    loop {
        let taken = async {
            let permit = door.connections.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let (taken, permit) = tokio::select! {
            taken = taken => match taken {
                Some(taken) => taken,
                None => return,
            },
            _ = ending.wait_for(|ending| *ending) => return,
        };
        match taken {
            Ok((stream, peer)) => {
                tokio::spawn(serve::<L>(door.clone(), stream, peer, alive.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Incoming for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> std::io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }

    fn prepare(io: &TcpStream) -> std::io::Result<()> {
        prepare_tcp(io)
    }
}

/// What the door asks of the system for a connection over TCP.
///
/// # Errors
/// If the connection is gone.
pub fn prepare_tcp(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_TIMEOUT);
    SockRef::from(stream).set_tcp_keepalive(&keep_alive)
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    builder
}

async fn serve<L: Incoming>(
    door: Arc<Door>,
    stream: L::Io,
    peer: SocketAddr,
    alive: Alive,
    permit: OwnedSemaphorePermit,
) {
    if let Err(error) = L::prepare(&stream) {
        tracing::debug!(%error, %peer, "a connection was gone at once");
        return;
    }
    let mut ending = door.ending.clone();
    // A WebSocket that this becomes holds it on.
    let permit = Arc::new(permit);
    let stall = door.stall;
    let has_asked = Arc::new(AtomicBool::new(false));
    let asked = has_asked.clone();
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        let (door, held) = (door.clone(), (alive.clone(), permit.clone()));
        async move { Ok::<_, Infallible>(request::answer(door, peer, held, request).await) }
    });
    let builder = builder();
    let stream = TokioIo::new(Impatient::new(stream, stall));
    let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
    let mut first_request = pin!(tokio::time::sleep(FIRST_REQUEST_TIMEOUT));
    let (mut is_ending, mut is_watched) = (false, true);
    loop {
        tokio::select! {
            outcome = connection.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, %peer, "a connection ended");
                }
                return;
            }
            () = first_request.as_mut(), if is_watched => {
                if !has_asked.load(Ordering::Relaxed) {
                    return;
                }
                is_watched = false;
            }
            _ = ending.wait_for(|ending| *ending), if !is_ending => {
                connection.as_mut().graceful_shutdown();
                is_ending = true;
            }
        }
    }
}
