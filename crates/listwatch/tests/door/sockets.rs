//! Watches over WebSockets.

use crate::rig::{MAPS, PATIENCE, Rig};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

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
    let stream = TcpStream::connect(rig.address).await.expect("the door is open");
    tokio_tungstenite::client_async(request, stream).await.expect("a socket").0
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
        let mut stream = TcpStream::connect(rig.address).await.expect("the door is open");
        let mut head =
            format!("GET {MAPS}?watch=true HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n");
        BASE.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = vec![0; 1024];
        let length = stream.read(&mut answer).await.expect("an answer");
        assert!(answer[..length].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        stream.write_all(frame).await.expect("sent");
        let end = async { while stream.read(&mut answer).await.is_ok_and(|length| 0 < length) {} };
        tokio::time::timeout(PATIENCE, end).await.expect("the socket is closed");
    }
    assert_eq!(rig.get("/livez").await.code, 200);
}
