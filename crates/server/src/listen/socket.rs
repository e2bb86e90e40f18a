//! A connection that came in: over TCP or in the file system, encrypted or not.
//!
//! A plain one looks at the first byte that comes: a caller that begins a TLS handshake is told of in
//! the log, with what to do, and its connection ends.

use crate::punctual::FIRST_WORDS_WITHIN;
use crate::tls::Greeted;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// How a TLS handshake begins, and neither HTTP/1 nor HTTP/2 does.
const HANDSHAKE: u8 = 0x16;

/// Bytes to and from a caller.
pub struct Socket {
    kind: Kind,
    /// Among those that may be open, until this is dropped.
    _place: OwnedSemaphorePermit,
}

enum Kind {
    Plain {
        stream: Stream,
        /// Until the first byte has come.
        from: Option<SocketAddr>,
    },
    Encrypted {
        stream: Box<TlsStream<Stream>>,
        common_name: Option<Arc<str>>,
    },
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Whether the caller begins with a TLS handshake, by the first byte, which is left where it is. None
    /// for one that has gone, or says nothing in time.
    pub(super) async fn begins_with_tls(&self) -> Option<bool> {
        // A socket in the file system is open to callers of one kind.
        let Stream::Tcp(stream) = self else { return Some(true) };
        let mut first = [0];
        let looked = tokio::time::timeout(FIRST_WORDS_WITHIN, stream.peek(&mut first)).await;
        let length = looked.ok()?.ok()?;
        (0 < length).then_some(first == [HANDSHAKE])
    }
}

impl Socket {
    pub(super) fn plain(stream: Stream, from: SocketAddr, place: OwnedSemaphorePermit) -> Socket {
        Socket { kind: Kind::Plain { stream, from: Some(from) }, _place: place }
    }

    pub(super) fn encrypted(greeted: Greeted<Stream>, place: OwnedSemaphorePermit) -> Socket {
        let kind = Kind::Encrypted { stream: Box::new(greeted.stream), common_name: greeted.common_name };
        Socket { kind, _place: place }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self.kind, Kind::Encrypted { .. })
    }

    /// Whom the certificate of the other end names, where certificates say who a client is.
    pub fn common_name(&self) -> Option<Arc<str>> {
        match &self.kind {
            Kind::Plain { .. } => None,
            Kind::Encrypted { common_name, .. } => common_name.clone(),
        }
    }

    /// What is below, for options of the system.
    pub fn tcp(&self) -> Option<&TcpStream> {
        let stream = match &self.kind {
            Kind::Plain { stream, .. } => stream,
            Kind::Encrypted { stream, .. } => stream.get_ref().0,
        };
        match stream {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
        }
    }
}

/// The call, on whichever there is.
macro_rules! on_each {
    ($kind:expr, $stream:ident => $call:expr) => {
        match $kind {
            Kind::Plain { stream: Stream::Tcp($stream), .. } => $call,
            Kind::Plain { stream: Stream::Unix($stream), .. } => $call,
            Kind::Encrypted { stream: $stream, .. } => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begin = into.filled().len();
        let outcome = on_each!(&mut self.kind, stream => Pin::new(stream).poll_read(cx, into));
        if let Kind::Plain { from, .. } = &mut self.kind
            && let Some(caller) = *from
            && let Some(first) = into.filled().get(begin)
        {
            if *first == HANDSHAKE {
                tracing::warn!(
                    remote_addr = %caller,
                    "rejected connection: the caller speaks TLS, and this port does not: use http:// in its \
                     endpoints, or give this port a certificate and an https:// address"
                );
                into.set_filled(begin);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "TLS on a plain port")));
            }
            *from = None;
        }
        outcome
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_each!(&mut self.kind, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_each!(&mut self.kind, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        on_each!(&self.kind, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(&mut self.kind, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(&mut self.kind, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl Connected for Socket {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
