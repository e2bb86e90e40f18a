//! Clients that begin something and do not go on: each beginning has a time by which it must end.
//!
//! A connection must say what it speaks within [`FIRST_WORDS_WITHIN`], and a request that is one message
//! must be whole within [`REQUEST_WITHIN`]. So a client that sends a byte now and then holds a
//! connection for seconds, not for ever. Streams may be silent for as long as they like: watching is
//! mostly that.

use axum::body::Body;
use http::{Request, Response};
use http_body::Frame;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tower::Service;

/// To say "HTTP/2", or the head of an HTTP/1 request.
pub(crate) const FIRST_WORDS_WITHIN: Duration = Duration::from_secs(10);

/// For all of a request that is one message: 2 MiB at 100 KB/s and some.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// HTTP/2's opening words and the head of the first frame.
const FIRST_WORDS_BYTES: usize = 24 + 9;

/// Methods whose requests have no end.
const STREAMS: &[&str] = &["/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive"];

/// A socket whose first words must come in time.
pub(crate) struct FirstWords<T> {
    inner: T,
    /// `None` once they have come.
    waiting: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<T> FirstWords<T> {
    pub(crate) fn of(inner: T) -> FirstWords<T> {
        let deadline = Box::pin(tokio::time::sleep(FIRST_WORDS_WITHIN));
        FirstWords { inner, waiting: Some((deadline, 0)) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstWords<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, into);
        let Some((deadline, heard)) = &mut self.waiting else { return read };
        *heard += into.filled().len() - before;
        if FIRST_WORDS_BYTES <= *heard {
            self.waiting = None;
        } else if read.is_pending() && deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client said nothing in time",
            )));
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstWords<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// A service whose requests must be whole in time.
#[derive(Clone)]
pub(crate) struct WholeInTime<S>(pub(crate) S);

impl<S> Service<Request<Body>> for WholeInTime<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        if STREAMS.contains(&request.uri().path()) {
            return self.0.call(request);
        }
        self.0.call(request.map(|inner| Body::new(InTime { inner, deadline: None })))
    }
}

/// Something that takes a request from its client did not come to its end in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request did not end in time")]
pub(crate) struct Late;

/// The outcome, if it comes as soon as a whole request must.
pub(crate) async fn in_time<T>(coming: impl Future<Output = T>) -> Result<T, Late> {
    tokio::time::timeout(REQUEST_WITHIN, coming).await.map_err(|_| Late)
}

/// The body of a request that must end in time.
struct InTime {
    inner: Body,
    /// From the first wait on: most bodies are there at once.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for InTime {
    type Data = bytes::Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(REQUEST_WITHIN)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(Late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_or_almost_nothing_ends_in_ten_seconds() {
        for words in [&b""[..], b"PRI"] {
            let (mut client, server) = tokio::io::duplex(64);
            client.write_all(words).await.expect("room");
            let mut server = FirstWords::of(server);
            let (began, mut heard) = (tokio::time::Instant::now(), Vec::new());
            let error = server.read_to_end(&mut heard).await.expect_err("too late");
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::TimedOut, words));
            assert!(began.elapsed() < FIRST_WORDS_WITHIN + Duration::from_secs(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_spoke_may_be_silent_for_ever() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(&[7; FIRST_WORDS_BYTES]).await.expect("room");
        let mut server = FirstWords::of(server);
        let mut heard = [0; FIRST_WORDS_BYTES + 1];
        let read = tokio::time::timeout(Duration::from_secs(3_600), server.read_exact(&mut heard));
        assert!(read.await.is_err(), "it still waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_trickles_ends_in_thirty_seconds() {
        let trickle = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, io::Error>(bytes::Bytes::from_static(b"x")), ()))
        });
        let body = Body::new(InTime { inner: Body::from_stream(trickle), deadline: None });
        let frames: Vec<_> = body.into_data_stream().take(100).collect().await;
        let whole = frames.iter().filter(|frame| frame.is_ok()).count();
        assert!((28..=31).contains(&whole), "{whole} bytes came before the end");
        assert!(frames.iter().any(Result::is_err), "and then it was over");
    }
}
