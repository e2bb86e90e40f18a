//! Cuts the body of an answer into pieces, so that a large answer does not hold up the other streams of its
//! connection.
//!
//! h2 sets aside as much of the client's window as a stream has given it to send. An answer that is one
//! frame of megabytes takes each window that the client grants, whole, and the event of a watch on the same
//! connection waits for the next one. Pieces of [`PIECE_BYTES`] take turns with the frames of other streams.

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The largest DATA frame that every HTTP/2 peer takes.
const PIECE_BYTES: usize = 16 << 10;

pub(crate) struct Pieces {
    inner: Body,
    /// What is left of the frame that is being cut.
    rest: Bytes,
}

impl Pieces {
    pub(crate) fn of(inner: Body) -> Pieces {
        Pieces { inner, rest: Bytes::new() }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) if PIECE_BYTES < data.len() => self.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = PIECE_BYTES.min(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_port::serve;
    use crate::client_port::tests::Once;
    use crate::config::{Config, RawFlags};
    use axum::routing::get;
    use futures::StreamExt;
    use h2::client::SendRequest;
    use http::Request;
    use http_body_util::BodyExt;
    use tokio::sync::watch;

    const LARGE_BYTES: usize = 8 << 20;
    const READERS: usize = 8;
    /// What the client grants its connection at a time.
    const WINDOW_BYTES: usize = 256 << 10;

    #[tokio::test]
    async fn pieces_have_the_bytes_and_the_size_of_the_body() {
        let whole: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let mut pieces = Pieces::of(Body::from(whole.clone()));
        let mut read = Vec::new();
        while let Some(frame) = pieces.frame().await {
            let data = frame.expect("the body is whole").into_data().expect("there are no trailers");
            assert!(data.len() <= PIECE_BYTES, "a piece of {} bytes", data.len());
            read.extend_from_slice(&data);
            assert_eq!(http_body::Body::size_hint(&pieces).exact(), Some((whole.len() - read.len()) as u64));
            assert_eq!(http_body::Body::is_end_stream(&pieces), read.len() == whole.len());
        }
        assert!(read == whole);
    }

    fn ask(client: &mut SendRequest<Bytes>, path: &str) -> h2::client::ResponseFuture {
        let request = Request::get(format!("http://member{path}")).body(()).expect("a request");
        client.send_request(request, true).expect("the connection is open").0
    }

    /// Eight answers of eight megabytes each, and then a small one, on a connection whose window the client
    /// grants anew as it reads.
    #[tokio::test]
    async fn small_answer_does_not_wait_for_large_ones_on_its_connection() {
        let (client, server) = tokio::io::duplex(64 << 10);
        let router = axum::Router::new()
            .route("/large", get(async || Bytes::from(vec![b'x'; LARGE_BYTES])))
            .route("/small", get(async || "event"));
        let config = Config::from_flags(RawFlags::default()).expect("the defaults");
        let (_stop, stopping) = watch::channel(false);
        let serving = tokio::spawn(async move { serve(Once(Some(server)), router, &config, stopping).await });
        let (mut client, mut connection) = h2::client::Builder::new()
            .initial_window_size(2 * LARGE_BYTES as u32)
            .initial_connection_window_size(WINDOW_BYTES as u32)
            .handshake::<_, Bytes>(client)
            .await
            .expect("it speaks HTTP/2");
        connection.set_target_window_size(WINDOW_BYTES as u32);
        let connection = tokio::spawn(connection);

        let mut large = futures::stream::FuturesUnordered::new();
        for _ in 0..READERS {
            large.push(ask(&mut client, "/large"));
        }
        let mut bodies = futures::stream::SelectAll::new();
        while let Some(answer) = large.next().await {
            bodies.push(Box::pin(stream_of(answer.expect("an answer").into_body())));
        }
        // All of them have begun and wait for the client.
        let mut read = 0;
        while read < 2 * WINDOW_BYTES {
            read += bodies.next().await.expect("there is more").expect("it is open");
        }
        let answer = ask(&mut client, "/small");
        let small = async move {
            let mut body = answer.await.expect("an answer").into_body();
            let mut event = Vec::new();
            while let Some(data) = body.data().await {
                event.extend_from_slice(&data.expect("it is open"));
            }
            event
        };
        let mut small = std::pin::pin!(small);
        let before = read;
        let event = loop {
            tokio::select! {
                biased;
                event = &mut small => break event,
                more = bodies.next() => read += more.expect("there is more").expect("it is open"),
            }
        };
        assert_eq!(event, b"event");
        let waited = read - before;
        assert!(waited <= 3 * WINDOW_BYTES, "{waited} bytes of other answers came first");
        connection.abort();
        serving.abort();
    }

    /// The lengths of the pieces of a body, each given back to the window when it is read.
    fn stream_of(body: h2::RecvStream) -> impl futures::Stream<Item = Result<usize, h2::Error>> {
        futures::stream::unfold(body, |mut body| async move {
            let data = match body.data().await? {
                Ok(data) => data,
                Err(error) => return Some((Err(error), body)),
            };
            let released = body.flow_control().release_capacity(data.len());
            Some((released.map(|()| data.len()), body))
        })
    }
}
