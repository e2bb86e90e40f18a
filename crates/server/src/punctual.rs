//! Clients that begin something and do not go on: each beginning has a time by which it must end.
//!
//! A connection must say what it speaks within [`FIRST_WORDS_WITHIN`], the head of a request over HTTP/1
//! must be whole as soon after its first byte, and a request that is one message must be whole within
//! [`REQUEST_WITHIN`]. So a client that sends a byte now and then holds a
//! connection for seconds, not for ever. Streams may be silent for as long as they like: watching is
//! mostly that.

use crate::methods::Kind;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// To say "HTTP/2", or the head of an HTTP/1 request.
pub(crate) const FIRST_WORDS_WITHIN: Duration = Duration::from_secs(10);

/// For all of a request that is one message: 2 MiB at 100 KB/s and some.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// How long a connection over HTTP/1 may be silent between two requests: longer than those that keep one
/// for later do.
pub(crate) const IDLE_WITHIN: Duration = Duration::from_secs(5 * 60);

/// HTTP/2's opening words and the head of the first frame.
const FIRST_WORDS_BYTES: usize = 24 + 9;

/// No method of HTTP/1 is called so.
const HTTP2_BEGINS: &[u8] = b"PRI ";

/// How one connection over HTTP/1 stands. Over HTTP/2 it stays as it began.
#[derive(Default)]
pub(crate) struct Heads {
    /// Heads that came whole.
    whole: AtomicU64,
    /// Whether the last one's request is not answered yet.
    answering: AtomicBool,
}

impl Heads {
    /// A head has come whole.
    pub(crate) fn came(&self) {
        self.whole.fetch_add(1, Ordering::Relaxed);
        self.answering.store(true, Ordering::Relaxed);
    }

    /// The answer to it, if there was one. With its end the next head may begin.
    pub(crate) fn answered(self: &Arc<Heads>, response: Response<Body>) -> Response<Body> {
        // What becomes something else, as a WebSocket, has no next head.
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switches || !self.answering.load(Ordering::Relaxed) {
            return response;
        }
        response.map(|inner| Body::new(Answer { inner, heads: self.clone() }))
    }
}

/// The body of an answer over HTTP/1.
struct Answer {
    inner: Body,
    heads: Arc<Heads>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.heads.answering.store(false, Ordering::Relaxed);
    }
}

impl http_body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

/// A socket on which what begins must come in time: the first words, and over HTTP/1 each head from its
/// first byte on.
pub(crate) struct FirstWords<T> {
    inner: T,
    heads: Arc<Heads>,
    /// The first bytes, up to [`FIRST_WORDS_BYTES`] of them.
    heard: usize,
    begins_as_http2: bool,
    /// For what has begun, and how many heads were whole then.
    deadline: Option<(Pin<Box<Sleep>>, u64)>,
}

impl<T> FirstWords<T> {
    pub(crate) fn of(inner: T, heads: Arc<Heads>) -> FirstWords<T> {
        let deadline = Box::pin(tokio::time::sleep(FIRST_WORDS_WITHIN));
        FirstWords { inner, heads, heard: 0, begins_as_http2: true, deadline: Some((deadline, 0)) }
    }

    fn hear(&mut self, came: &[u8]) {
        if self.heard < FIRST_WORDS_BYTES {
            let rest = HTTP2_BEGINS.get(self.heard..).unwrap_or_default();
            self.begins_as_http2 &= came.iter().zip(rest).all(|(byte, expected)| byte == expected);
            self.heard += came.len();
        }
        let whole = self.heads.whole.load(Ordering::Relaxed);
        let is_http2 = self.begins_as_http2 && FIRST_WORDS_BYTES <= self.heard;
        if is_http2 || self.deadline.as_ref().is_some_and(|(_, then)| *then != whole) {
            self.deadline = None;
        }
        let begins = !came.is_empty() && !self.heads.answering.load(Ordering::Relaxed);
        if begins && !is_http2 && self.deadline.is_none() {
            self.deadline = Some((Box::pin(tokio::time::sleep(FIRST_WORDS_WITHIN)), whole));
        }
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
        self.hear(&into.filled()[before..]);
        if read.is_pending()
            && let Some((deadline, _)) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
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

impl<T: Connected> Connected for FirstWords<T> {
    type ConnectInfo = T::ConnectInfo;

    fn connect_info(&self) -> T::ConnectInfo {
        self.inner.connect_info()
    }
}

/// The request of a call, which must come whole in time unless its client may go on sending.
pub(crate) fn whole_in_time(request: Request<Body>, kind: Kind) -> Request<Body> {
    if kind.client_streams() {
        return request;
    }
    request.map(|inner| Body::new(InTime { inner, deadline: None }))
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
            let mut server = FirstWords::of(server, Arc::default());
            let (began, mut heard) = (tokio::time::Instant::now(), Vec::new());
            let error = server.read_to_end(&mut heard).await.expect_err("too late");
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::TimedOut, words));
            assert!(began.elapsed() < FIRST_WORDS_WITHIN + Duration::from_secs(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_over_http2_that_spoke_may_be_silent_for_ever() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n123456789").await.expect("room");
        let mut server = FirstWords::of(server, Arc::default());
        let mut heard = [0; FIRST_WORDS_BYTES + 1];
        let read = tokio::time::timeout(Duration::from_secs(3_600), server.read_exact(&mut heard));
        assert!(read.await.is_err(), "it still waits");
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_ten_seconds_from_its_first_byte_and_silence_before_it_has_more() {
        let (mut client, server) = tokio::io::duplex(256);
        let heads = Arc::new(Heads::default());
        let mut server = FirstWords::of(server, heads.clone());
        let head = b"GET /health HTTP/1.1\r\nHost: somebody.example\r\n\r\n";
        let mut heard = vec![0; head.len()];
        for _ in 0..3 {
            client.write_all(head).await.expect("room");
            server.read_exact(&mut heard).await.expect("the head");
            heads.came();
            let answer = heads.answered(Response::new(Body::empty()));
            // However long the answer takes, and the time until the next request.
            for answer in [Some(answer), None] {
                let read = tokio::time::timeout(Duration::from_secs(100), server.read_exact(&mut heard));
                assert!(read.await.is_err(), "it still waits");
                drop(answer);
            }
        }
        client.write_all(&head[..7]).await.expect("room");
        let began = tokio::time::Instant::now();
        let error = server.read_exact(&mut heard).await.expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < FIRST_WORDS_WITHIN + Duration::from_secs(1));
    }

    /// A byte a second, to a method of that path; the frames that came.
    async fn trickled(path: &str) -> Vec<bool> {
        let trickle = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, io::Error>(bytes::Bytes::from_static(b"x")), ()))
        });
        let request = Request::new(Body::from_stream(trickle));
        let body = whole_in_time(request, crate::methods::treatment(path).kind).into_body();
        body.into_data_stream().take(100).map(|frame| frame.is_ok()).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_trickles_ends_in_thirty_seconds() {
        for path in ["/etcdserverpb.KV/Put", "/etcdserverpb.Maintenance/Snapshot", "/etcdserverpb.KV/Nope"] {
            let frames = trickled(path).await;
            let whole = frames.iter().filter(|is_whole| **is_whole).count();
            assert!((28..=31).contains(&whole), "{path}: {whole} bytes came before the end");
            assert!(whole < frames.len(), "{path}: and then it was over");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_of_clients_are_not_cut() {
        for path in [
            "/etcdserverpb.Watch/Watch",
            "/etcdserverpb.Lease/LeaseKeepAlive",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ] {
            assert_eq!(trickled(path).await, [true; 100], "{path}");
        }
    }
}
