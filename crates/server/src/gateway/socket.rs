//! What is said on a WebSocket of the gateway, once it is open: messages of the client to the call, lines of
//! the answer to the client.
//!
//! Always true: nothing is read while something is left to be written. Reading a ping queues its pong, and
//! tungstenite would queue as many as a client asks for that reads none of them. So what waits for a client
//! is one message and one pong at most, and a client that does not read is not read from either.

use super::Gateway;
use crate::punctual::IDLE_WITHIN;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt, SinkExt, Stream, StreamExt};
use http::Request;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// How long one message may take to go out.
const SEND_WITHIN: Duration = Duration::from_secs(60);
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Messages that were read and that the call has not taken yet.
const WAITING_MAX: usize = 4;
/// How long the next one may wait for its place among them while the call says nothing either. Until then it
/// is not known whether the client is still there.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Serves it for as long as both sides want. `call` is without its body.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send,
    gateway: &Gateway,
    call: Request<Body>,
) {
    let bytes_max = Some(gateway.json_bytes_max);
    let config = WebSocketConfig::default().max_message_size(bytes_max).max_frame_size(bytes_max);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    // A page may open a socket before it has anything to ask.
    let Ok(Some(first)) = timeout(IDLE_WITHIN, said(&mut socket)).await else { return };
    let (ask, asked) = mpsc::channel(WAITING_MAX);
    let asked = futures::stream::iter([first]).chain(ReceiverStream::new(asked));
    let call = call.map(|_| Body::from_stream(asked.map(Ok::<Bytes, Infallible>)));
    let mut lines = pin!(lines(gateway.serve(call).map(|response| response.into_body())));
    let mut untaken = None;
    loop {
        tokio::select! {
            line = lines.next() => {
                let Some(line) = line else { break };
                if !send(&mut socket, &line).await {
                    break;
                }
            }
            () = hear(&mut socket, &ask, &mut untaken) => break,
        }
    }
    // Not the socket's own `close`, which does not answer a client that has closed.
    let _ = timeout(CLOSE_WITHIN, SinkExt::close(&mut socket)).await;
}

/// Hands on what the client says, until it has gone or its call does not take it. May be given up at any
/// await and begun anew: a message that has no place yet is kept in `untaken`.
async fn hear(
    socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>,
    ask: &mpsc::Sender<Bytes>,
    untaken: &mut Option<Bytes>,
) {
    loop {
        if untaken.is_none() {
            *untaken = said(socket).await;
        }
        if untaken.is_none() {
            return;
        }
        let Ok(place) = timeout(TAKEN_WITHIN, ask.reserve()).await else { return };
        // A call that takes no more is still asked whether its client has gone.
        if let (Some(line), Ok(place)) = (untaken.take(), place) {
            place.send(line);
        }
    }
}

/// The next message with an end of line after it; none if there will be no more.
async fn said(socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) -> Option<Bytes> {
    loop {
        // The pong to the last ping, if there was one: before the next.
        timeout(SEND_WITHIN, socket.flush()).await.ok()?.ok()?;
        let said = match socket.next().await? {
            Ok(Message::Text(text)) => Bytes::from(text),
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Close(_) | Message::Frame(_)) | Err(_) => return None,
        };
        return Some([&said[..], b"\n"].concat().into());
    }
}

/// The lines of an answer, without their ends.
fn lines(answer: impl Future<Output = Body>) -> impl Stream<Item = Bytes> {
    let chunks = Box::pin(answer.map(Body::into_data_stream).flatten_stream());
    let state = Some((chunks, BytesMut::new()));
    futures::stream::unfold(state, |state| async move {
        let (mut chunks, mut waiting) = state?;
        loop {
            if let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let mut line = waiting.split_to(end + 1);
                line.truncate(end);
                return Some((line.freeze(), Some((chunks, waiting))));
            }
            match chunks.next().await {
                Some(Ok(chunk)) => waiting.extend_from_slice(&chunk),
                // An answer that is one message has no end of line.
                Some(Err(_)) | None => return Some((waiting.freeze(), None)),
            }
        }
    })
}

/// Whether the client has taken it.
async fn send(socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>, line: &[u8]) -> bool {
    if line.is_empty() {
        return true;
    }
    let message = Message::text(String::from_utf8_lossy(line).into_owned());
    matches!(timeout(SEND_WITHIN, socket.send(message)).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{frames, routes::Routes};
    use axum::response::Response;
    use http::{HeaderMap, HeaderValue};
    use http_body_util::BodyExt;
    use meerkat_proto::pb::etcdserver::AuthUserListResponse;
    use std::sync::Arc;
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;

    /// The longest ping: its head, a mask of zeroes, and what it carries.
    const PING: &[u8] = &{
        let mut ping = [0; 131];
        (ping[0], ping[1]) = (0x89, 0x80 | 125);
        ping
    };

    /// Holds what it is asked, and neither takes more of it nor answers.
    fn silent() -> axum::Router {
        axum::Router::new().fallback(async |request: Request<Body>| {
            let _held = request;
            std::future::pending::<()>().await
        })
    }

    /// A socket for a call of that path, answered by `inner`.
    fn open(path: &'static str, inner: axum::Router, capacity: usize) -> (DuplexStream, JoinHandle<()>) {
        let (client, io) = tokio::io::duplex(capacity);
        let (routes, pressure) = (Routes::new(), Arc::default());
        let gateway = Gateway { routes, inner, json_bytes_max: 1 << 20, pressure };
        let call = Request::post(path).body(Body::empty()).expect("a request");
        (client, tokio::spawn(async move { serve(io, &gateway, call).await }))
    }

    async fn speaking(client: DuplexStream) -> WebSocketStream<DuplexStream> {
        WebSocketStream::from_raw_socket(client, Role::Client, None).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pings_and_never_reads_is_not_read_from_and_ends() {
        for (path, first) in [("/v3/lock/lock", ""), ("/v3/lock/lock", "{}"), ("/v3/watch", "{}")] {
            let (client, serving) = open(path, silent(), 1 << 10);
            let mut client = speaking(client).await;
            if !first.is_empty() {
                client.send(Message::text(first)).await.expect("room");
            }
            let mut taken = 0;
            while taken < 1 << 20
                && let Ok(Ok(())) = timeout(Duration::from_secs(1), client.get_mut().write_all(PING)).await
            {
                taken += PING.len();
            }
            assert!(taken < 16 << 10, "{path} {first:?}: {taken} bytes of pings were taken");
            let ended = timeout(SEND_WITHIN + CLOSE_WITHIN, serving).await;
            assert!(ended.is_ok(), "{path} {first:?}: it still waits");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_hears_every_pong_and_its_answer_of_a_megabyte() {
        const PINGS: usize = 2_000;
        let inner = axum::Router::new().fallback(async || {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            let users = vec!["u".repeat(1 << 20)];
            let body = Body::from(frames::frame(&AuthUserListResponse { header: None, users }));
            let good = HeaderMap::from_iter([("grpc-status".parse().expect("one"), HeaderValue::from(0))]);
            Response::new(Body::new(body.with_trailers(async { Some(Ok(good)) })))
        });
        let (client, serving) = open("/v3/auth/user/list", inner, 1 << 10);
        let (mut says, mut hears) = speaking(client).await.split();
        let saying = tokio::spawn(async move {
            says.send(Message::text("{}")).await.expect("it is heard");
            for _ in 0..PINGS {
                says.send(Message::Ping(vec![b'p'; 125].into())).await.expect("it is heard");
            }
            says
        });
        let (mut pongs, mut text) = (0, String::new());
        while let Some(Ok(message)) = hears.next().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match message {
                Message::Pong(_) => pongs += 1,
                Message::Text(said) => text.push_str(&said),
                _ => {}
            }
        }
        assert_eq!(pongs, PINGS);
        assert!(text.starts_with("{\"users\":[") && 1 << 20 < text.len(), "{} bytes", text.len());
        drop((saying.await, hears));
        serving.await.expect("it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_more_than_its_call_takes_and_goes_is_gone() {
        let soon = Duration::from_secs(1);
        for (path, within) in [("/v3/lock/lock", soon), ("/v3/watch", TAKEN_WITHIN + soon)] {
            let (client, serving) = open(path, silent(), 4 << 10);
            let mut client = speaking(client).await;
            for _ in 0..20 {
                client.send(Message::text("{}")).await.expect("room");
            }
            client.close(None).await.expect("room");
            let ended = timeout(within, serving).await;
            assert!(ended.is_ok(), "{path}: it still waits");
        }
    }

    #[tokio::test]
    async fn an_answer_comes_in_lines_however_it_is_cut() {
        for size in [1, 2, 3, 100] {
            let chunks = b"one\n\ntwo\nrest".chunks(size).map(Ok::<_, Infallible>);
            let body = Body::from_stream(futures::stream::iter(chunks));
            let lines: Vec<Bytes> = lines(std::future::ready(body)).collect().await;
            assert_eq!(lines, ["one", "", "two", "rest"], "{size}");
        }
    }
}
