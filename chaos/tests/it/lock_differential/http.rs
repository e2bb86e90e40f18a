//! HTTP/1.1 by hand: what was sent is what is written here, and what comes back is seen as it is.

use std::time::Duration;

use meerkat_chaos::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, or as much of it as came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// One request on a connection of its own.
pub async fn send(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, Failure> {
    let mut stream = open(port, method, path, headers, &format!("content-length: {}", body.len())).await?;
    stream.write_all(body).await?;
    read(&mut stream, &mut Vec::new(), Duration::from_secs(15), |_| false).await
}

/// As [`send`], for an answer that does not end: what came within `within`, or until there were `lines`.
pub async fn listen(
    port: u16,
    path: &str,
    body: &str,
    lines: usize,
    within: Duration,
) -> Result<Answer, Failure> {
    let mut stream = open(port, "POST", path, &[], &format!("content-length: {}", body.len())).await?;
    stream.write_all(body.as_bytes()).await?;
    read(&mut stream, &mut Vec::new(), within, |answer| lines <= answer.body.lines().count()).await
}

/// Sends the head of a request whose length is told by `length`.
pub async fn open(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    length: &str,
) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{length}\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("host: 127.0.0.1:{port}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    Ok(stream)
}

/// Reads on until the other side closes, `enough` says so, or the time is over. `bytes` is all that came.
pub async fn read(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    within: Duration,
    enough: impl Fn(&Answer) -> bool,
) -> Result<Answer, Failure> {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let answer = parse(bytes);
        if answer.as_ref().is_some_and(&enough) {
            return answer.ok_or_else(|| Failure::harness("no answer"));
        }
        match tokio::time::timeout_at(deadline, stream.read_buf(bytes)).await {
            Ok(Ok(0)) | Err(_) => break,
            Ok(Ok(_)) => {}
            // Closed with a request half-read: what came before counts.
            Ok(Err(_)) => break,
        }
    }
    let silent = Answer { status: 0, head: String::new(), body: String::new() };
    Ok(parse(bytes).unwrap_or(silent))
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    Some(Answer { status, head: head.to_owned(), body })
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = rest.get(..size) else { break };
        whole.push_str(chunk);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}
