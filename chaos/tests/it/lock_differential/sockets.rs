//! The gateway's WebSockets and its `Grpc-Timeout`, compared with etcd's.
//!
//! The frames are made by hand: what is sent is what is written here. All are below 64 KiB.

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::driver::Product;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::gateway::without_ids;
use super::http;
use super::start;

const WITHIN: Duration = Duration::from_secs(10);
/// To be sure that no more comes.
const SILENT_FOR: Duration = Duration::from_millis(500);

const WATCH: &str = r#"{"create_request":{"key":"Zm9v"}}"#;
const OTHER: &str = r#"{"create_request":{"key":"YmFy"}}"#;

struct Row {
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    says: &'static [&'static str],
    /// Messages that are awaited.
    hears: usize,
}

const ROWS: &[Row] = &[
    Row { path: "/v3/watch", headers: &[], says: &[WATCH, OTHER], hears: 2 },
    Row { path: "/v3beta/watch", headers: &[], says: &[WATCH], hears: 1 },
    Row { path: "/v3/watch?method=GET", headers: &[], says: &[WATCH], hears: 1 },
    Row { path: "/v3/lease/keepalive", headers: &[], says: &[r#"{"ID":5}"#, r#"{"ID":"6"}"#], hears: 2 },
    Row { path: "/v3/nope", headers: &[], says: &["{}"], hears: 1 },
    Row { path: "/v3/watch", headers: &[("origin", "http://a.example")], says: &[WATCH], hears: 1 },
    Row { path: "/v3/watch", headers: &[("sec-websocket-version", "12")], says: &[], hears: 0 },
];

/// (`Grpc-Timeout`, path, body)
const TIMES: &[(&str, &str, &str)] = &[
    ("1n", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("5S", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("0S", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("-1S", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("x", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("5", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    ("1s", "/v3/watch", WATCH),
    ("1n", "/v3/watch", WATCH),
];

/// Both products, side by side.
pub async fn compare() -> Result<(), Failure> {
    let (etcd, meerkat) = (start(Product::Etcd, &[]).await?, start(Product::Meerkat, &[]).await?);
    let ports = [&etcd, &meerkat].map(|cluster| cluster.members()[0].client_port());
    let mut findings = Vec::new();
    for row in ROWS {
        let (one, two) = (converse(ports[0], row).await?, converse(ports[1], row).await?);
        if one != two {
            findings
                .push(format!("{} {:?}\n    etcd:    {one:?}\n    meerkat: {two:?}", row.path, row.headers));
        }
    }
    for (time, path, body) in TIMES {
        let mut seen = Vec::new();
        for port in ports {
            let answer = http::send(port, "POST", path, &[("Grpc-Timeout", *time)], body.as_bytes()).await?;
            seen.push((answer.status, without_ids(&answer.body)));
        }
        if seen[0] != seen[1] {
            findings.push(format!("{time} {path}\n    etcd:    {:?}\n    meerkat: {:?}", seen[0], seen[1]));
        }
    }
    for (port, codes) in ports.into_iter().zip([&["4", "2"][..], &["4"]]) {
        findings.extend(a_stream_ends_in_time(port, codes).await?);
    }
    Failure::from_findings("both gateways have the same sockets and times", findings)?;
    etcd.finish()?;
    meerkat.finish()
}

/// The first line is the answer, the last says why there are no more. Which code etcd has for it depends on
/// which of two tasks sees it first.
async fn a_stream_ends_in_time(port: u16, codes: &[&str]) -> Result<Option<String>, Failure> {
    let headers = [("Grpc-Timeout", "3S")];
    let answer = http::send(port, "POST", "/v3/watch", &headers, WATCH.as_bytes()).await?;
    let lines: Vec<&str> = answer.body.lines().collect();
    let is_last = |line: &str| {
        line.contains("context deadline exceeded")
            && codes.iter().any(|code| line.starts_with(&format!("{{\"error\":{{\"grpc_code\":{code},")))
    };
    let good = answer.status == 200 && lines.len() == 2 && is_last(lines[1]);
    Ok((!good).then(|| format!("a watch of 3 s at {port}: {answer:?}")))
}

/// The status and the answer to the handshake, and the messages.
async fn converse(port: u16, row: &Row) -> Result<(u16, Option<String>, Vec<String>), Failure> {
    let mut headers = vec![("upgrade", "websocket"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
    headers.extend_from_slice(row.headers);
    if !row.headers.iter().any(|(name, _)| *name == "sec-websocket-version") {
        headers.push(("sec-websocket-version", "13"));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut head = format!("GET {} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: Upgrade\r\n", row.path);
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    let mut bytes = Vec::new();
    let switched = http::read(&mut stream, &mut bytes, WITHIN, |_| true).await?;
    let accept = switched.header("sec-websocket-accept").map(str::to_owned);
    let mut heard = Vec::new();
    if switched.status == 101 {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        bytes.drain(..head);
        for said in row.says {
            stream.write_all(&masked(said)).await?;
        }
        hear(&mut stream, &mut bytes, &mut heard, row.hears).await?;
    }
    Ok((switched.status, accept, heard))
}

/// A text in one frame of a client.
fn masked(text: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).expect("short")];
    assert!(text.len() < 126, "one byte of length");
    frame.extend_from_slice(&mask);
    frame.extend(text.bytes().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

/// The texts that come, until there are enough and a while longer.
async fn hear(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    heard: &mut Vec<String>,
    enough: usize,
) -> Result<(), Failure> {
    loop {
        while let Some((kind, text)) = next_frame(bytes) {
            // 1 is a text; the end has no words that count.
            if kind == 1 {
                heard.push(without_ids(&text));
            }
        }
        let patience = if heard.len() < enough { WITHIN } else { SILENT_FOR };
        match tokio::time::timeout(patience, stream.read_buf(bytes)).await {
            // However it ends, it has ended.
            Err(_) | Ok(Ok(0) | Err(_)) => return Ok(()),
            Ok(Ok(_)) => {}
        }
    }
}

fn next_frame(bytes: &mut Vec<u8>) -> Option<(u8, String)> {
    let (kind, short) = (bytes.first()? & 0x0f, usize::from(bytes.get(1)? & 0x7f));
    let (head, length) = match short {
        126 => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
        _ => (2, short),
    };
    let text = String::from_utf8_lossy(bytes.get(head..head + length)?).into_owned();
    bytes.drain(..head + length);
    Some((kind, text))
}
