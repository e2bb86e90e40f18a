//! What the task of a connection writes in one turn leaves in one system call.
//!
//! HTTP/2 writes each frame of more than a kilobyte by itself, and smaller ones each time its buffer is full. An event
//! for five hundred streams of one connection would be five hundred calls. A [`Corked`] socket keeps what is
//! written while its connection is polled, and [`in_turns`] sends it when the turn is over.
//!
//! Always true: bytes leave in the order they were written, and at most [`CORK_BYTES`] are kept. After a turn nothing
//! is kept but what the socket did not take; the task wakes when it takes more. Outside of turns, as after an upgrade to
//! a WebSocket, writes go to the socket at once.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// As much as etcd collects before it writes.
const CORK_BYTES: usize = 32 << 10;

/// An idle connection keeps no more room than this for what it will write.
const ROOM_BYTES: usize = 1 << 10;

/// For the last bytes of a connection whose service has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(10);

/// A socket whose writes are sent at the end of a turn.
pub(crate) struct Corked<T>(Arc<Mutex<Cork<T>>>);

/// Begins and ends the turns of a [`Corked`] socket.
pub(crate) struct Turns<T>(Arc<Mutex<Cork<T>>>);

struct Cork<T> {
    socket: T,
    kept: Vec<u8>,
    /// How many of the kept bytes the socket has.
    sent: usize,
    in_turn: bool,
    /// Why the end of a turn could not send. Told at the next use.
    failed: Option<io::Error>,
}

/// `socket`, and what sends for it.
pub(crate) fn cork<T>(socket: T) -> (Corked<T>, Turns<T>) {
    let cork = Cork { socket, kept: Vec::new(), sent: 0, in_turn: false, failed: None };
    let shared = Arc::new(Mutex::new(cork));
    (Corked(shared.clone()), Turns(shared))
}

/// Runs a connection on a corked socket.
pub(crate) async fn in_turns<C, T>(connection: C, turns: Turns<T>) -> C::Output
where
    C: Future,
    T: AsyncWrite + Unpin,
{
    let output = {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            lock(&turns.0).in_turn = true;
            let polled = connection.as_mut().poll(context);
            lock(&turns.0).end_turn(context);
            polled
        })
        .await
    };
    // A connection that ends in order has closed its socket, and so sent all. One that became a WebSocket may not have.
    let rest = poll_fn(|context| lock(&turns.0).send(context));
    let _ = tokio::time::timeout(LAST_WORDS_WITHIN, rest).await;
    output
}

/// A panic while a socket is used leaves bytes unsent at worst, and ends the connection.
fn lock<T>(shared: &Mutex<Cork<T>>) -> MutexGuard<'_, Cork<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncWrite + Unpin> Cork<T> {
    fn end_turn(&mut self, context: &mut Context<'_>) {
        self.in_turn = false;
        if let Poll::Ready(Err(error)) = self.send(context) {
            self.failed = Some(error);
            context.waker().wake_by_ref();
        }
    }

    /// Ready when the socket has all that was written.
    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            let sent = ready!(Pin::new(&mut self.socket).poll_write(context, &self.kept[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.kept.clear();
        self.kept.shrink_to(ROOM_BYTES);
        self.sent = 0;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Corked<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut cork = lock(&self.0);
        if let Some(error) = cork.failed.take() {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut cork.socket).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut cork = lock(&self.0);
        cork.check()?;
        if !cork.in_turn {
            ready!(cork.send(context))?;
            return Pin::new(&mut cork.socket).poll_write(context, bytes);
        }
        if CORK_BYTES <= cork.kept.len() {
            ready!(cork.send(context))?;
        }
        let taken = bytes.len().min(CORK_BYTES - cork.kept.len());
        cork.kept.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut cork = lock(&self.0);
        cork.check()?;
        if cork.in_turn { Poll::Ready(Ok(())) } else { cork.send(context) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut cork = lock(&self.0);
        cork.check()?;
        ready!(cork.send(context))?;
        Pin::new(&mut cork.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// Counts the writes that reach a socket.
    struct Counted(DuplexStream, Arc<AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, into)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let written = Pin::new(&mut self.0).poll_write(context, bytes);
            self.1.fetch_add(usize::from(written.is_ready()), Ordering::Relaxed);
            written
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    fn counted(room: usize) -> (DuplexStream, Counted, Arc<AtomicUsize>) {
        let (near, far) = tokio::io::duplex(room);
        let writes = Arc::new(AtomicUsize::new(0));
        (near, Counted(far, writes.clone()), writes)
    }

    #[tokio::test]
    async fn writes_of_one_turn_leave_in_one() {
        let (mut near, far, writes) = counted(1 << 20);
        let (mut socket, turns) = cork(far);
        let connection = async move {
            for _ in 0..100 {
                socket.write_all(&[7; 300]).await.expect("room");
                socket.flush().await.expect("open");
            }
            tokio::task::yield_now().await;
            socket.write_all(&[8; 300]).await.expect("room");
            socket.shutdown().await.expect("open");
        };
        in_turns(connection, turns).await;
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).await.expect("closed in order");
        assert_eq!(heard.len(), 101 * 300);
        assert_eq!(writes.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_gets_all_bytes_in_order() {
        for seed in 0..50 {
            let mut chance = StdRng::seed_from_u64(seed);
            let (mut near, far, _) = counted(chance.random_range(1..5_000));
            let (mut socket, turns) = cork(far);
            let said: Vec<u8> =
                (0..chance.random_range(0..200_000_u32)).map(|at| at.to_le_bytes()[0]).collect();
            let mut chance_of_turns = StdRng::seed_from_u64(seed);
            let (saying, expected) = (said.clone(), said);
            let connection = async move {
                let mut rest = saying.as_slice();
                while !rest.is_empty() {
                    let (piece, after) =
                        rest.split_at(chance_of_turns.random_range(1..=rest.len().min(40_000)));
                    socket.write_all(piece).await.expect("open");
                    rest = after;
                    match chance_of_turns.random_range(0..3) {
                        0 => socket.flush().await.expect("open"),
                        1 => tokio::task::yield_now().await,
                        _ => {}
                    }
                }
                socket.shutdown().await.expect("open");
            };
            let reading = async {
                let mut heard = Vec::new();
                near.read_to_end(&mut heard).await.expect("closed in order");
                heard
            };
            let (heard, ()) = tokio::join!(reading, in_turns(connection, turns));
            assert!(heard == expected, "seed {seed}");
        }
    }

    #[tokio::test]
    async fn upgraded_connection_writes_at_once() {
        let (mut near, far, writes) = counted(1 << 20);
        let (mut socket, turns) = cork(far);
        let upgraded = in_turns(
            async move {
                socket.write_all(b"101").await.expect("room");
                socket
            },
            turns,
        );
        let mut socket = upgraded.await;
        assert_eq!(writes.load(Ordering::Relaxed), 1);
        socket.write_all(b"frame").await.expect("room");
        let mut heard = [0; 8];
        near.read_exact(&mut heard).await.expect("both");
        assert_eq!(&heard, b"101frame");
    }

    #[tokio::test]
    async fn lost_socket_ends_its_connection() {
        let (near, far, _) = counted(1 << 20);
        let (mut socket, turns) = cork(far);
        drop(near);
        let connection = async move {
            socket.write_all(&[7; 300]).await.expect("kept");
            tokio::task::yield_now().await;
            socket.read_u8().await.expect_err("it is known to be lost").kind()
        };
        assert_eq!(in_turns(connection, turns).await, io::ErrorKind::BrokenPipe);
    }
}
