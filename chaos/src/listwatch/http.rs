//! The door as a program without any library would use it: requests, and lines of a watch.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::Failure;

/// No answer but a watch's takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// An answer that was read to its end.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    pub body: Bytes,
}

impl Answered {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::broken(format!("not JSON ({error}): {:?}", String::from_utf8_lossy(&self.body)))
        })
    }
}

/// One request on a connection of its own. `server`: `http://host:port`.
pub async fn ask(server: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Answered, Failure> {
    Kept::open(server).await?.ask(method, path, body).await
}

/// A request that must be answered with one of these codes.
pub async fn expect(
    server: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
    codes: &[u16],
) -> Result<Value, Failure> {
    let answered = ask(server, method, path, body).await?;
    if codes.contains(&answered.status) {
        answered.json()
    } else {
        Err(Failure::broken(format!(
            "{method} {path}: {} and not {codes:?}: {}",
            answered.status,
            String::from_utf8_lossy(&answered.body)
        )))
    }
}

/// A connection that is kept for many requests, one at a time.
#[derive(Debug)]
pub struct Kept {
    sender: http1::SendRequest<Full<Bytes>>,
    address: String,
}

impl Kept {
    pub async fn open(server: &str) -> Result<Kept, Failure> {
        let address = server.strip_prefix("http://").unwrap_or(server).to_owned();
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // Ends with the last answer, or with whoever reads it.
        tokio::spawn(connection);
        Ok(Kept { sender, address })
    }

    /// The answer to one request, read to its end.
    pub async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Answered, Failure> {
        let asked = async {
            self.sender.ready().await.map_err(lost)?;
            let request = request(&self.address, method, path, body)?;
            let answer = self.sender.send_request(request).await.map_err(lost)?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.map_err(lost)?.to_bytes();
            Ok(Answered { status, body })
        };
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::slow(format!("{method} {path}: no answer in {ANSWER_WITHIN:?}"))),
        }
    }
}

async fn send(
    server: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<http::Response<Incoming>, Failure> {
    let mut kept = Kept::open(server).await?;
    let request = request(&kept.address, method, path, body)?;
    kept.sender.send_request(request).await.map_err(lost)
}

fn request(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<http::Request<Full<Bytes>>, Failure> {
    let mut request = http::Request::builder().method(method).uri(path).header("host", address);
    if body.is_some() {
        let form = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        request = request.header("content-type", form);
    }
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    request.body(Full::new(bytes)).map_err(|error| Failure::harness(format!("{method} {path}: {error}")))
}

fn lost(error: hyper::Error) -> Failure {
    Failure::harness(format!("the connection broke: {error}"))
}

/// A watch: one event per line.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    read: BytesMut,
}

/// What came next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Event(Value),
    /// The stream ended, or its connection broke: the watch is to be resumed.
    End,
}

impl Lines {
    /// Begins a watch; `path` says all that it asks for.
    pub async fn begin(server: &str, path: &str) -> Result<Lines, Failure> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, send(server, "GET", path, None))
            .await
            .map_err(|_| Failure::slow(format!("watch {path}: no answer in {ANSWER_WITHIN:?}")))??;
        let status = answer.status().as_u16();
        if status == 200 {
            return Ok(Lines { body: answer.into_body(), read: BytesMut::new() });
        }
        let body = answer.into_body().collect().await.map_err(lost)?.to_bytes();
        Err(Failure::harness(format!("watch {path}: {status}: {}", String::from_utf8_lossy(&body))))
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<Next, Failure> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                let event = serde_json::from_slice(&line).map_err(|error| {
                    Failure::broken(format!(
                        "a line of a watch is no event ({error}): {:?}",
                        String::from_utf8_lossy(&line)
                    ))
                })?;
                return Ok(Next::Event(event));
            }
            match self.body.frame().await {
                None | Some(Err(_)) => return Ok(Next::End),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.read.extend_from_slice(data);
                    }
                }
            }
        }
    }
}
