//! Who is sent away, and with which words.

use crate::rig::{MAPS, PATIENCE, Rig, config_map};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_listwatch::door::authn::{Authenticator, Credentials, User};
use meerkat_listwatch::door::authz::{Act, Authorizer, Rule, Verdict};
use meerkat_listwatch::door::{Access, DoorConfig};
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::json;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reads wait for a cache that does not come forward, so that requests pile up.
#[tokio::test]
async fn who_asks_for_too_much_is_sent_away() {
    let config = DoorConfig { in_flight_per_user: 2, waiting_per_user: 2, ..DoorConfig::default() };
    let rig = Rig::with(config, Arc::new(MemoryStore::new())).await;
    assert_eq!(rig.get(MAPS).await.code, 200);
    // Waited for, for three seconds.
    let path = format!("{MAPS}?resourceVersion=1000000");
    let replies = join_all((0..8).map(|_| rig.get(&path))).await;
    let count = |code: u16| replies.iter().filter(|reply| reply.code == code).count();
    assert_eq!((count(504), count(429)), (4, 4));
    let busy = replies.iter().find(|reply| reply.code == 429).expect("one");
    assert_eq!((busy.header("retry-after"), &busy.json()["reason"]), ("1", &json!("TooManyRequests")));
    // Watches count only until they are set up.
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(rig.watch(&format!("{MAPS}?watch=true"), "").await);
    }
    assert!(watches.iter().all(|watch| watch.code == 200));
    assert_eq!(rig.get(MAPS).await.code, 200);
}

/// The head of a create and half of its body.
async fn half_sent(rig: &Rig, name: &str) -> (TcpStream, String) {
    let body = config_map(name, json!({})).to_string();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let (first, rest) = body.split_at(body.len() / 2);
    let mut stream = TcpStream::connect(rig.address).await.expect("the door is open");
    stream.write_all(format!("{head}{first}").as_bytes()).await.expect("sent");
    (stream, rest.to_owned())
}

#[tokio::test]
async fn who_sends_slowly_keeps_nobody_from_being_answered() {
    let config = DoorConfig { in_flight_per_user: 2, waiting_per_user: 4, ..DoorConfig::default() };
    let rig = Rig::with(config, Arc::new(MemoryStore::new())).await;
    let mut slow = Vec::new();
    for name in ["a", "b", "c"] {
        slow.push(half_sent(&rig, name).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(rig.get(MAPS).await.code, 200);
    }
    // Far less than the ten seconds that a body may take.
    assert!(began.elapsed() < Duration::from_secs(6), "too slow: {:?}", began.elapsed());
    for (stream, rest) in &mut slow {
        stream.write_all(rest.as_bytes()).await.expect("sent");
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 201");
    }
}

#[tokio::test]
async fn one_client_does_not_take_all_that_its_user_has() {
    let config = DoorConfig { in_flight_per_user: 4, waiting_per_user: 4, ..DoorConfig::default() };
    let rig = Rig::with(config, Arc::new(MemoryStore::new())).await;
    assert_eq!(rig.get(MAPS).await.code, 200);
    // Waited for, for three seconds.
    let path = format!("{MAPS}?resourceVersion=1000000");
    let codes = RefCell::new(Vec::new());
    let count = |code: u16| codes.borrow().iter().filter(|found| **found == code).count();
    let greedy = join_all((0..8).map(async |_| {
        let reply = rig.ask("GET", &path, &[("user-agent", "greedy/1 (x)")], "").await;
        codes.borrow_mut().push(reply.code);
    }));
    let modest = async {
        // All that can wait do when others are sent away.
        while count(429) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let reply = rig.ask("GET", MAPS, &[("user-agent", "modest/1")], "").await;
        assert_eq!((reply.code, count(504)), (200, 0), "not with the greedy ones");
    };
    futures::join!(greedy, modest);
    assert_eq!((count(504), count(429)), (6, 2));
}

struct ByToken;

impl Authenticator for ByToken {
    fn user<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<User, Refusal>> {
        Box::pin(async {
            match credentials.bearer.as_deref() {
                Some("bad") => Err(Refusal::new(Reason::Unauthorized, "Unauthorized")),
                Some(name) => Ok(User { name: name.to_owned(), groups: Vec::new(), rules: 0 }),
                None => Ok(User::anonymous()),
            }
        })
    }
}

/// All may read, and anna may write.
struct Anna;

impl Authorizer for Anna {
    fn may(&self, user: &User, act: &Act<'_>) -> Verdict {
        let reads = |verb: &str| matches!(verb, "get" | "list" | "watch");
        let allowed = match act {
            Act::Resource { verb, name, .. } => (reads(verb) && *name != "hidden") || user.name == "anna",
            Act::Page { verb, .. } => reads(verb),
        };
        assert!(user.name != "panic", "somebody made it panic");
        Verdict { allowed, reason: String::new(), rules: 0 }
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
        Vec::new()
    }
}

#[tokio::test]
async fn who_may_not_is_told_so_and_a_panic_is_an_answer() {
    let access = Access { authenticator: Arc::new(ByToken), authorizer: Arc::new(Anna) };
    let config = DoorConfig { access, ..DoorConfig::default() };
    let rig = Rig::with(config, Arc::new(MemoryStore::new())).await;
    let make = async |token: &str| {
        let headers = [("authorization", token), ("content-type", "application/json")];
        rig.ask("POST", MAPS, &headers, config_map("a", json!({})).to_string()).await.code
    };
    assert_eq!(make("Bearer bad").await, 401);
    assert_eq!(make("Bearer otto").await, 403);
    assert_eq!(make("Bearer anna").await, 201);
    assert_eq!(rig.get(MAPS).await.code, 200);
    // A name in a selector is a name.
    assert_eq!(rig.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dhidden")).await.code, 403);
    assert_eq!(make("Bearer panic").await, 500);
    assert_eq!(rig.get(MAPS).await.code, 200);
}

/// One connection of HTTP/2 whose streams have little room.
async fn narrow(rig: &Rig) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(rig.address).await.expect("the door is open");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1_000).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn who_takes_nothing_of_a_stream_does_not_keep_what_is_in_it() {
    let store = Arc::new(MemoryStore::new());
    let put = |nth: usize| {
        let name = format!("m{nth:03}");
        let object = json!({ "metadata": { "name": name, "uid": name }, "data": { "a": "x".repeat(8_000) } });
        store.put(&format!("/registry/configmaps/default/{name}"), object.to_string())
    };
    let last = (0..100).map(put).max().expect("some");
    let config = DoorConfig { stall: Duration::from_secs(2), ..DoorConfig::default() };
    let rig = Rig::with(config, store.clone()).await;
    let mut client = narrow(&rig).await;
    let mut open = async |path: &str| {
        let uri = format!("http://{}{path}", rig.address);
        let request = Request::get(uri).body(Full::default()).expect("a request");
        let response = client.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let mut list = open(MAPS).await;
    let mut watch = open(&format!("{MAPS}?watch=1&resourceVersion={last}")).await;
    for nth in 100..110 {
        put(nth);
    }
    let watches = async || {
        let text = rig.get("/metrics").await.text();
        let line = text.lines().find(|line| line.starts_with("meerkat_listwatch_watches ")).expect("counted");
        line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    let began = std::time::Instant::now();
    while watches().await != 0 {
        assert!(began.elapsed() < PATIENCE, "the watch is never given up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut bytes = 0;
    let cut = loop {
        match tokio::time::timeout(PATIENCE, list.frame()).await.expect("it goes on") {
            Some(Ok(frame)) => bytes += frame.into_data().map_or(0, |data| data.len()),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(cut && bytes < 800_000, "a list of which only {bytes} bytes were left must not seem whole");
    while let Some(frame) = tokio::time::timeout(PATIENCE, watch.frame()).await.expect("it ends") {
        frame.expect("in order");
    }
    assert_eq!(open("/healthz").await.collect().await.expect("a body").to_bytes(), "ok", "others go on");
}
