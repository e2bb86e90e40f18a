//! A connection whose other end takes nothing does not live for ever.
//!
//! TCP keeps a connection alive whose peer answers and never reads, and whatever waits to be written keeps what
//! it was made of. So a write that makes no progress for long enough is an error, and the connection ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Gives up on a peer that has taken nothing for some time.
pub struct Impatient<T> {
    io: T,
    patience: Duration,
    /// Runs while a write is stuck.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> Impatient<T> {
    pub fn new(io: T, patience: Duration) -> Impatient<T> {
        Impatient { io, patience, waiting: None }
    }

    /// What a write came to; an error in the place of a wait that is too long.
    fn judge<R>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        if waiting.deadline() <= Instant::now() || waiting.as_mut().poll(cx).is_ready() {
            let why = format!("the other end has taken nothing for {} s", patience.as_secs());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Impatient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Impatient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.judge(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.judge(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.judge(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
        Poll::Ready(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_and_who_takes_little_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut ours = Impatient::new(ours, Duration::from_secs(60));
        let reader = tokio::spawn(async move {
            let mut taken = [0; 4];
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut taken).await.expect("there is more");
            }
            // And no more.
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            drop(theirs);
        });
        ours.write_all(&[7; 20]).await.expect("they take it, slowly");
        let begun = Instant::now();
        let error = ours.write_all(&[7; 100]).await.expect_err("they take no more");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(200), "{:?}", begun.elapsed());
        reader.abort();
    }
}
