//! A watch over a WebSocket: one event, one message.
//!
//! What a client must send: an Origin, because a browser always does and nobody else has a reason to be
//! here; and one subprotocol at most, beside the one that carries a token. What it sends later is read, so
//! that its pings are answered and its close is seen, and otherwise ignored.

use super::answer::{self, Body, header, header_list};
use super::request::{Asked, Held};
use super::watch::Told;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use meerkat_kubernetes::status::{Reason, Refusal};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Nobody has anything to say to us that is longer.
const INCOMING_BYTES_MAX: usize = 64 << 10;
/// How long one message may take to go out.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub fn is_wanted(headers: &HeaderMap) -> bool {
    header_list(headers, &CONNECTION).any(|part| part.eq_ignore_ascii_case("upgrade"))
        && header_list(headers, &UPGRADE).any(|part| part.eq_ignore_ascii_case("websocket"))
}

/// The token that a subprotocol carries, because a browser cannot set a header.
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    let encoded = header_list(headers, &SEC_WEBSOCKET_PROTOCOL).find_map(|name| name.strip_prefix(BEARER))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

#[derive(Debug, PartialEq)]
struct Handshake {
    accept: String,
    protocol: Option<String>,
}

fn handshake(headers: &HeaderMap) -> Result<Handshake, Refusal> {
    if header(headers, &ORIGIN).is_empty() {
        return Err(Refusal::new(Reason::Forbidden, "a WebSocket needs an Origin"));
    }
    if header(headers, &SEC_WEBSOCKET_VERSION) != "13" {
        return Err(Refusal::bad_request("the version of WebSockets here is 13"));
    }
    let key = header(headers, &SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(Refusal::bad_request("a WebSocket needs a Sec-WebSocket-Key"));
    }
    let offered: Vec<&str> = header_list(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
    let has_token = offered.iter().any(|name| name.starts_with(BEARER));
    let named: Vec<&str> = offered.into_iter().filter(|name| !name.starts_with(BEARER)).collect();
    let protocol = match named.as_slice() {
        [] if has_token => {
            return Err(Refusal::bad_request(
                "beside the one that carries a token one more subprotocol is needed",
            ));
        }
        [] => None,
        [one] => Some((*one).to_owned()),
        _ => return Err(Refusal::bad_request("a watch takes one subprotocol at most")),
    };
    Ok(Handshake { accept: derive_accept_key(key.as_bytes()), protocol })
}

pub async fn answer(asked: &Asked, upgrade: OnUpgrade, held: Held) -> Result<Response<Body>, Refusal> {
    let handshake = handshake(&asked.headers)?;
    let told = Told::begin(asked).await?;
    let starting_stall = asked.door.starting_stall;
    tokio::spawn(async move {
        // Without an upgrade the client has gone.
        let _held = held;
        if let Ok(upgraded) = upgrade.await {
            serve(TokioIo::new(upgraded), told, starting_stall).await;
        }
    });
    let mut response = answer::new(StatusCode::SWITCHING_PROTOCOLS, "application/json", answer::full(""));
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let text =
        |text: &str| HeaderValue::from_str(text).map_err(|_| Refusal::bad_request("a header is no text"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, text(&handshake.accept)?);
    if let Some(protocol) = &handshake.protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, text(protocol)?);
    }
    Ok(response)
}

async fn serve(io: impl AsyncRead + AsyncWrite + Unpin + Send, mut told: Told, starting_stall: Duration) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(INCOMING_BYTES_MAX))
        .max_frame_size(Some(INCOMING_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let patience =
        |told: &Told| if told.is_starting { starting_stall.min(SEND_TIMEOUT) } else { SEND_TIMEOUT };
    loop {
        let within = patience(&told);
        tokio::select! {
            frames = told.next() => {
                let Some(frames) = frames else { break };
                let within = patience(&told);
                for frame in &frames {
                    if !send(&mut socket, message(&told, frame), within).await {
                        return;
                    }
                }
            }
            () = until_gone(&mut socket, within) => break,
        }
    }
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.close(None)).await;
    // Until the client has said goodbye too, or it is clear that it will not.
    let rest = async { while let Some(Ok(_)) = socket.next().await {} };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, rest).await;
}

/// Reads until the client has said goodbye, or does not take its pongs. May be given up at any await and
/// begun anew.
///
/// Nothing is read while something is left to be written: reading a ping queues its pong, and tungstenite
/// would queue as many as a client asks for that reads none of them.
async fn until_gone(socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>, within: Duration) {
    while let Ok(Ok(())) = tokio::time::timeout(within, socket.flush()).await {
        match socket.next().await {
            Some(Ok(Message::Text(_) | Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_) | Message::Frame(_)) | Err(_)) | None => return,
        }
    }
}

fn message(told: &Told, frame: &Bytes) -> Message {
    let bytes = told.form.message(frame);
    if told.form.is_text()
        && let Ok(text) = Utf8Bytes::try_from(bytes.clone())
    {
        return Message::Text(text);
    }
    Message::Binary(bytes)
}

async fn send(
    socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>,
    message: Message,
    within: Duration,
) -> bool {
    matches!(tokio::time::timeout(within, socket.send(message)).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use tokio::io::AsyncWriteExt;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    const GOOD: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("origin", "http://localhost"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn with(protocols: &'static str) -> Result<Handshake, u16> {
        let mut all = GOOD.to_vec();
        all.push(("sec-websocket-protocol", protocols));
        handshake(&headers(&all)).map_err(|refusal| refusal.code())
    }

    #[test]
    fn the_handshake_of_the_standard() {
        assert!(is_wanted(&headers(&GOOD)));
        let done = handshake(&headers(&GOOD)).expect("it is a good one");
        assert_eq!(done.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(done.protocol, None);
    }

    #[test]
    fn who_leaves_something_out_is_refused() {
        for (left_out, code) in [("origin", 403), ("sec-websocket-version", 400), ("sec-websocket-key", 400)]
        {
            let rest: Vec<_> = GOOD.into_iter().filter(|(name, _)| *name != left_out).collect();
            assert_eq!(handshake(&headers(&rest)).map_err(|refusal| refusal.code()), Err(code), "{left_out}");
        }
        assert!(!is_wanted(&headers(&GOOD[1..])));
    }

    #[test]
    fn one_subprotocol_at_most_beside_the_token() {
        assert_eq!(with("any.thing").map(|done| done.protocol), Ok(Some("any.thing".to_owned())));
        assert_eq!(with("a, b").map(|done| done.protocol), Err(400));
        const TOKEN: &str = "base64url.bearer.authorization.k8s.io.YWJj";
        assert_eq!(with(TOKEN).map(|done| done.protocol), Err(400));
        let both = "base64url.bearer.authorization.k8s.io.YWJj, a";
        assert_eq!(with(both).map(|done| done.protocol), Ok(Some("a".to_owned())));
        assert_eq!(bearer(&headers(&[("sec-websocket-protocol", both)])), Some("abc".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pings_and_never_reads_is_not_read_from_and_is_given_up() {
        let within = Duration::from_secs(30);
        let (mut client, io) = tokio::io::duplex(1 << 10);
        let heard = tokio::spawn(async move {
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            until_gone(&mut socket, within).await;
        });
        // The longest: its head, a mask of zeroes, and what it carries.
        let ping = [&[0x89, 0x80 | 125][..], &[0; 4 + 125]].concat();
        let mut taken = 0;
        while taken < 1 << 20
            && let Ok(Ok(())) = tokio::time::timeout(within / 10, client.write_all(&ping)).await
        {
            taken += ping.len();
        }
        assert!(taken < 16 << 10, "{taken} bytes of pings were taken");
        assert!(tokio::time::timeout(within, heard).await.is_ok(), "it still waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_hears_every_pong() {
        const PINGS: usize = 1_000;
        let (client, io) = tokio::io::duplex(1 << 10);
        let heard = tokio::spawn(async move {
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            until_gone(&mut socket, Duration::from_secs(30)).await;
        });
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let (mut says, mut hears) = client.split();
        let saying = tokio::spawn(async move {
            for _ in 0..PINGS {
                says.send(Message::Ping(vec![0; 125].into())).await.expect("it is heard");
            }
            says
        });
        for _ in 0..PINGS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(matches!(hears.next().await, Some(Ok(Message::Pong(_)))));
        }
        drop((saying.await, hears));
        heard.await.expect("it has ended");
    }
}
