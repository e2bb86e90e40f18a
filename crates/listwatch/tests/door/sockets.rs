//! Watches over WebSockets.

use crate::rig::{MAPS, PATIENCE, Rig};
use futures::{SinkExt, StreamExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

const BASE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

async fn connect(rig: &Rig, query: &str, accept: &str) -> WebSocketStream<TcpStream> {
    let url = format!("ws://{}{MAPS}?watch=true{query}", rig.address);
    let mut request = url.into_client_request().expect("a request");
    request.headers_mut().insert("origin", format!("http://{}", rig.address).parse().expect("a value"));
    request.headers_mut().insert("accept", accept.parse().expect("a value"));
    let began = Instant::now();
    loop {
        let stream = TcpStream::connect(rig.address).await.expect("the door is open");
        match tokio_tungstenite::client_async(request.clone(), stream).await {
            // A cache that is still being filled asks to come back, as every client does.
            Err(Error::Http(answer)) if answer.status() == 429 && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            socket => return socket.expect("a socket").0,
        }
    }
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Option<Message> {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message")?.ok()
}

#[tokio::test]
async fn who_may_not_come_in() {
    let rig = Rig::new().await;
    let path = format!("{MAPS}?watch=true");
    let code = async |more: &[(&str, &str)]| {
        let headers = [&BASE[..], more].concat();
        rig.send("GET", &path, &headers, "").await.status().as_u16()
    };
    assert_eq!(code(&[]).await, 403);
    assert_eq!(code(&[("origin", "http://evil.example")]).await, 403, "a page of somebody else's");
    assert_eq!(code(&[("origin", "http://localhost"), ("sec-websocket-protocol", "a, b")]).await, 400);
    assert_eq!(code(&[("origin", "http://localhost"), ("sec-websocket-protocol", "a")]).await, 101);
    let token = "base64url.bearer.authorization.k8s.io.YWJj";
    assert_eq!(code(&[("origin", "http://localhost"), ("sec-websocket-protocol", token)]).await, 400);
}

#[tokio::test]
async fn one_event_is_one_message() {
    let rig = Rig::new().await;
    rig.make("a", json!({})).await;
    rig.make("b", json!({})).await;
    let mut socket = connect(&rig, "&resourceVersion=0", "application/json").await;
    for name in ["a", "b"] {
        let Some(Message::Text(text)) = next(&mut socket).await else { panic!("a text") };
        let event: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        assert!(!text.contains('\n'));
    }
    // What the client says is heard and ignored, and its pings are answered.
    socket.send(Message::text("hello")).await.expect("sent");
    socket.send(Message::Ping(vec![1, 2].into())).await.expect("sent");
    assert!(matches!(next(&mut socket).await, Some(Message::Pong(_))));
    rig.make("c", json!({})).await;
    assert!(matches!(next(&mut socket).await, Some(Message::Text(text)) if text.contains("\"c\"")));
    assert!(rig.close().await < PATIENCE / 2);
    assert!(matches!(next(&mut socket).await, Some(Message::Close(_)) | None));
}

#[tokio::test]
async fn protobuf_comes_in_binary_and_a_watch_ends_when_it_should() {
    let rig = Rig::new().await;
    rig.make("a", json!({})).await;
    let accept = "application/vnd.kubernetes.protobuf";
    let mut socket = connect(&rig, "&resourceVersion=0&timeoutSeconds=1", accept).await;
    let Some(Message::Binary(bytes)) = next(&mut socket).await else { panic!("bytes") };
    assert!(bytes.windows(4).any(|part| part == b"k8s\0"));
    assert!(matches!(next(&mut socket).await, Some(Message::Close(_)) | None));
}

#[tokio::test]
async fn frames_that_are_none_end_the_socket_and_nothing_else() {
    let rig = Rig::new().await;
    let long_ping = [&[0x89, 0xfe, 0x00, 0x7e, 0, 0, 0, 0][..], &[b'x'; 126]].concat();
    let bad: [&[u8]; 5] = [
        // Not masked; of no known sort; longer than allowed; a ping that is too long; nonsense.
        &[0x81, 0x02, b'h', b'i'],
        &[0x8f, 0x80, 0, 0, 0, 0],
        &[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &long_ping,
        &[0xff; 64],
    ];
    for frame in bad {
        let mut stream = raw(&rig).await;
        stream.write_all(frame).await.expect("sent");
        ends(&mut stream).await;
    }
    assert_eq!(rig.get("/livez").await.code, 200);
}

/// A socket of which the bytes are ours to choose.
async fn raw(rig: &Rig) -> TcpStream {
    let mut stream = TcpStream::connect(rig.address).await.expect("the door is open");
    let mut head =
        format!("GET {MAPS}?watch=true HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n");
    BASE.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 1024];
    let length = stream.read(&mut answer).await.expect("an answer");
    assert!(answer[..length].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    stream
}

async fn ends(stream: &mut TcpStream) {
    let mut answer = vec![0; 1024];
    let end = async { while stream.read(&mut answer).await.is_ok_and(|length| 0 < length) {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the socket is closed");
}

/// A frame that may lie about everything: its sort, its end, its mask, its length.
fn any_frame(chance: &mut StdRng) -> Vec<u8> {
    let known = [0, 1, 2, 8, 9, 10];
    let sort =
        if chance.random_bool(0.8) { known[chance.random_range(0..known.len())] } else { chance.random() };
    let first = if chance.random_bool(0.8) { 0x80 | sort } else { sort };
    let payload: Vec<u8> = (0..chance.random_range(0..200)).map(|_| chance.random()).collect();
    let said = if chance.random_bool(0.8) { payload.len() as u64 } else { chance.random() };
    let mask = if chance.random_bool(0.9) { 0x80 } else { 0 };
    let length: Vec<u8> = match chance.random_range(0..3) {
        0 => vec![mask | (said & 0x7f) as u8],
        1 => [&[mask | 126][..], &(said as u16).to_be_bytes()].concat(),
        _ => [&[mask | 127][..], &said.to_be_bytes()].concat(),
    };
    let key: Vec<u8> = if mask == 0 { Vec::new() } else { chance.random::<[u8; 4]>().to_vec() };
    [&[first][..], &length, &key, &payload].concat()
}

#[tokio::test]
async fn frames_of_chance_harm_nobody_but_their_socket() {
    const SOCKETS: u64 = 300;
    let seed: u64 = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("frames of chance: MEERKAT_SEED={seed}");
    let rig = Rig::new().await;
    let mut witness = connect(&rig, "&resourceVersion=0", "application/json").await;
    for number in 0..SOCKETS {
        let mut chance = StdRng::seed_from_u64(seed.wrapping_mul(SOCKETS) + number);
        let mut stream = raw(&rig).await;
        for _ in 0..chance.random_range(1..6) {
            // It may have been closed in the middle.
            if stream.write_all(&any_frame(&mut chance)).await.is_err() {
                break;
            }
        }
        let _ = stream.shutdown().await;
        ends(&mut stream).await;
    }
    rig.make("after", json!({})).await;
    assert!(matches!(next(&mut witness).await, Some(Message::Text(text)) if text.contains("\"after\"")));
    assert_eq!(rig.get("/livez").await.code, 200);
}
