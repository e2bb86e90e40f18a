//! A door of one's own for each test, and a client that knows nothing of how it works.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use meerkat_listwatch::door::{DoorConfig, serve};
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Rig {
    pub address: SocketAddr,
    pub store: Arc<MemoryStore>,
    shutdown: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

pub struct Reply {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {:?}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::with(DoorConfig::default(), Arc::new(MemoryStore::new())).await
    }

    pub async fn with(config: DoorConfig, store: Arc<MemoryStore>) -> Rig {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (shutdown, ended) = oneshot::channel::<()>();
        let ended = async move {
            let _ = ended.await;
        };
        let served = tokio::spawn(serve(store.clone(), vec![listener], config, ended));
        let rig = Rig { address, store, shutdown: Some(shutdown), served };
        rig.until("/api/v1/namespaces/default", 200).await;
        rig
    }

    /// Asks until it is answered like this.
    pub async fn until(&self, path: &str, code: u16) {
        let began = std::time::Instant::now();
        while self.get(path).await.code != code {
            assert!(began.elapsed() < PATIENCE, "{path} is not answered with {code}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Closes the door, and says how long that took.
    pub async fn close(mut self) -> Duration {
        let began = std::time::Instant::now();
        drop(self.shutdown.take());
        tokio::time::timeout(PATIENCE, &mut self.served)
            .await
            .expect("it ends")
            .expect("no panic")
            .expect("ok");
        began.elapsed()
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("the door is open");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
        answer.unwrap_or_else(|_| panic!("no answer to {method} {path}")).expect("an answer")
    }

    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let response = self.send(method, path, headers, body).await;
        let (head, body) = response.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, body.collect()).await.expect("the body ends");
        let bytes = bytes.expect("a whole body").to_bytes();
        Reply { code: head.status.as_u16(), headers: head.headers, bytes }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Reply {
        self.ask("GET", path, &[("accept", accept)], "").await
    }

    pub async fn write(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.ask(method, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn patch(&self, path: &str, form: &str, body: &Value) -> Reply {
        self.ask("PATCH", path, &[("content-type", form)], body.to_string()).await
    }

    /// A config map in `default`, made; what came back.
    pub async fn make(&self, name: &str, labels: Value) -> Value {
        let body = config_map(name, labels);
        let reply = self.write("POST", MAPS, &body).await;
        assert_eq!(reply.code, 201, "{}", reply.text());
        reply.json()
    }

    pub async fn watch(&self, path: &str, accept: &str) -> Watch {
        let began = std::time::Instant::now();
        let mut response = self.send("GET", path, &[("accept", accept)], "").await;
        // A cache that is still being filled asks to come back, as every client does.
        while response.status().as_u16() == 429 && began.elapsed() < PATIENCE / 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            response = self.send("GET", path, &[("accept", accept)], "").await;
        }
        let (head, body) = response.into_parts();
        Watch { code: head.status.as_u16(), headers: head.headers, body, rest: Vec::new() }
    }
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn config_map(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": labels },
        "data": { "a": "1" },
    })
}

pub fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().expect("a version");
    version.parse().expect("a number")
}

pub struct Watch {
    pub code: u16,
    pub headers: HeaderMap,
    body: Incoming,
    rest: Vec<u8>,
}

impl Watch {
    /// The next line, or nothing if the stream has ended.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(String::from_utf8(line).expect("UTF-8"));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event");
            match frame {
                Some(frame) => {
                    let frame = frame.expect("a whole stream");
                    self.rest.extend_from_slice(frame.data_ref().expect("data"));
                }
                None => {
                    assert!(self.rest.is_empty(), "the stream ends inside a line");
                    return None;
                }
            }
        }
    }

    pub async fn event(&mut self) -> Value {
        let line = self.line().await.expect("one more event");
        serde_json::from_str(&line).expect("an event is a line of JSON")
    }

    /// Type, name and version of the next event.
    pub async fn brief(&mut self) -> (String, String, u64) {
        let event = self.event().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (event["type"].as_str().expect("a type").to_owned(), name, version(&event["object"]))
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self) -> bool {
        self.rest.is_empty()
            && tokio::time::timeout(Duration::from_millis(300), self.body.frame()).await.is_err()
    }
}
