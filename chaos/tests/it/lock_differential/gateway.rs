//! The same requests to both gateways, answers compared byte for byte.
//!
//! Not compared, because they differ by nature: ids of clusters, members and terms. Allowed to differ:
//!
//! * the words (not the code) about JSON that cannot be read: etcd's are those of Go's library;
//! * requests on a stream that cannot be read: etcd answers the first with code 2 and passes the later ones
//!   over in silence, Meerkat answers code 3 in either case;
//! * bytes in base64 without padding or in the alphabet for URLs, and integers written as floats: refused by
//!   3.5, taken by 3.6 and by Meerkat. Bytes as an array of numbers: the other way round.

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, Product};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::AsyncWriteExt;

use super::http::{self, Answer};
use super::start;

/// Nobody waits so long: all of these streams say what is awaited of them, or end.
const STREAM_WITHIN: Duration = Duration::from_secs(10);

/// How much of two answers must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Equal {
    Bytes,
    /// Malformed: the words may differ.
    Code,
}

/// In this order: later ones see what earlier ones wrote.
const REQUESTS: &[(Equal, &str, &str)] = &[
    (Equal::Bytes, "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#),
    (Equal::Bytes, "/v3/kv/put", r#"{"key":"Zm9v","value":"YmF6","prev_kv":true}"#),
    (Equal::Bytes, "/v3/kv/put", r#"{"key":"Zm9x","value":"","prevKv":true}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    (Equal::Bytes, "/v3beta/kv/range", r#"{"key":"Zm9v"}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zg==","range_end":"Zw==","sort_order":"DESCEND"}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zg==","rangeEnd":"Zw==","limit":"1","sortTarget":1}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zm9v","keys_only":true,"unknown":{"a":[1]},"limit":null}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zm9v","revision":2}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zm9v","revision":"99"}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"bm9wZQ=="}"#),
    (Equal::Bytes, "/v3/kv/range", ""),
    (Equal::Bytes, "/v3/kv/range", "{}"),
    (Equal::Bytes, "/v3/kv/range", "null"),
    (Equal::Bytes, "/v3/kv/range", r#" {"key":"Zm9v"} trailing"#),
    (Equal::Bytes, "/v3/kv/range", "{\"key\":\"Zm\\n9v\"}"),
    (Equal::Bytes, "/v3/lease/grant", r#"{"TTL":600,"ID":77}"#),
    (Equal::Bytes, "/v3/lease/grant", r#"{"TTL":"600","ID":"77"}"#),
    (Equal::Bytes, "/v3/lease/grant", r#"{"TTL":9000000001,"ID":78}"#),
    (
        Equal::Bytes,
        "/v3/kv/txn",
        r#"{"compare":[{"key":"Zm9v","target":"VALUE","value":"YmF6"}],"success":[{"request_range":{"key":"Zm9v"}},{"requestPut":{"key":"Zw==","value":"eA==","lease":"77"}}],"failure":[{"request_txn":{}}]}"#,
    ),
    (
        Equal::Bytes,
        "/v3/kv/txn",
        r#"{"compare":[{"key":"Zm9v","target":"VALUE","value":"YmF6","result":"NOT_EQUAL"}],"failure":[{"request_delete_range":{"key":"Zm9x","prev_kv":true}},{"request_txn":{"success":[{"request_range":{"key":"Zm9v","keys_only":true}}]}}]}"#,
    ),
    (
        Equal::Bytes,
        "/v3/kv/txn",
        r#"{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}"#,
    ),
    (Equal::Bytes, "/v3/kv/txn", "{}"),
    (Equal::Bytes, "/v3/lease/leases", "{}"),
    (Equal::Bytes, "/v3/kv/lease/leases", ""),
    (Equal::Bytes, "/v3/lease/revoke", r#"{"ID":999}"#),
    (Equal::Bytes, "/v3/lease/timetolive", r#"{"ID":999}"#),
    (Equal::Bytes, "/v3/lock/unlock", "{}"),
    (Equal::Bytes, "/v3/lock/unlock", r#"{"key":"bm9wZQ=="}"#),
    (Equal::Bytes, "/v3/lock/lock", r#"{"name":"bA==","lease":77}"#),
    (Equal::Bytes, "/v3/lock/lock", r#"{"name":"bA==","lease":"77"}"#),
    (Equal::Bytes, "/v3/lock/lock", r#"{"name":"bA==","lease":99}"#),
    (Equal::Bytes, "/v3/election/leader", r#"{"name":"ZQ=="}"#),
    (Equal::Bytes, "/v3/election/proclaim", "{}"),
    (Equal::Bytes, "/v3/election/resign", "{}"),
    (Equal::Bytes, "/v3/election/campaign", r#"{"name":"ZQ==","lease":77,"value":"dg=="}"#),
    (Equal::Bytes, "/v3/election/leader", r#"{"name":"ZQ=="}"#),
    (
        Equal::Bytes,
        "/v3/election/proclaim",
        r#"{"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":1,"lease":77},"value":"dw=="}"#,
    ),
    (Equal::Bytes, "/v3/kv/lease/revoke", r#"{"ID":77}"#),
    (Equal::Bytes, "/v3/kv/deleterange", r#"{"key":"Zm9v","prev_kv":true}"#),
    (Equal::Bytes, "/v3/kv/compaction", r#"{"revision":"3"}"#),
    (Equal::Bytes, "/v3/kv/compaction", r#"{"revision":"3"}"#),
    (Equal::Bytes, "/v3/kv/compaction", r#"{"revision":"1000"}"#),
    (Equal::Bytes, "/v3/kv/range", r#"{"key":"Zm9v","revision":"2"}"#),
    (Equal::Bytes, "/v3/cluster/member/remove", r#"{"ID":"5"}"#),
    (Equal::Bytes, "/v3/cluster/member/add", r#"{"peerURLs":["nope"]}"#),
    (Equal::Bytes, "/v3/maintenance/transfer-leadership", r#"{"targetID":"1"}"#),
    (Equal::Bytes, "/v3/kv/nope", "{}"),
    (Equal::Bytes, "/v3/", "{}"),
    (Equal::Bytes, "/v3/kv/range/", r#"{"key":"Zm9v"}"#),
    (Equal::Bytes, "/v3alpha/kv/range", "{}"),
    (Equal::Code, "/v3/kv/range", r#"{"key":"#),
    (Equal::Code, "/v3/kv/range", "x"),
    (Equal::Code, "/v3/kv/range", "[]"),
    (Equal::Code, "/v3/kv/range", r#""text""#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"!!!"}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":1}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"Zm9v","limit":"x"}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"Zm9v","limit":1.5}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"Zm9v","limit":9223372036854775808}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"Zm9v","sort_order":"NOPE"}"#),
    (Equal::Code, "/v3/kv/range", r#"{"key":"Zm9v","keys_only":"true"}"#),
    (Equal::Code, "/v3/election/observe", "x"),
];

/// Path, body, and how many lines are awaited.
const STREAMS: &[(&str, &str, usize)] = &[
    ("/v3/lease/keepalive", r#"{"ID":5}{"ID":"6"}"#, 2),
    ("/v3/lease/keepalive", "", 1),
    ("/v3/watch", r#"{"create_request":{"key":"Zm9v","start_revision":"4"}}"#, 2),
    ("/v3/watch", r#"{"create_request":{"key":"Zm9v","start_revision":"1"}}"#, 2),
    ("/v3/watch", r#"{"createRequest":{"key":"YQ==","watch_id":"7"}} {"cancel_request":{"watch_id":7}}"#, 2),
    ("/v3/watch", r#"{"create_request":{"key":"Yg==","range_end":"YQ=="}}"#, 1),
];

pub async fn compare() -> Result<(), Failure> {
    let (etcd, meerkat) = (start(Product::Etcd, &[]).await?, start(Product::Meerkat, &[]).await?);
    let ports = [&etcd, &meerkat].map(|cluster| cluster.members()[0].client_port());
    let mut findings = Vec::new();
    for (equal, path, body) in REQUESTS {
        let [etcd, meerkat] = ports.map(|port| http::send(port, "POST", path, &[], body.as_bytes()));
        note(&mut findings, &format!("{path} {body}"), *equal, &etcd.await?, &meerkat.await?);
    }
    for (path, body, lines) in STREAMS {
        let [etcd, meerkat] = ports.map(|port| http::listen(port, path, body, *lines, STREAM_WITHIN));
        note(&mut findings, &format!("{path} {body}"), Equal::Bytes, &etcd.await?, &meerkat.await?);
    }
    for method in ["GET", "PUT", "OPTIONS", "DELETE"] {
        for path in ["/v3/kv/range", "/v3/nope", "/health"] {
            let [etcd, meerkat] = ports.map(|port| http::send(port, method, path, &[], b""));
            let (etcd, meerkat) = (etcd.await?, meerkat.await?);
            // The words about a path of ours that takes GET only are the library's.
            let equal = if path == "/health" { Equal::Code } else { Equal::Bytes };
            note(&mut findings, &format!("{method} {path}"), equal, &etcd, &meerkat);
        }
    }
    too_large(&ports, &mut findings).await?;
    Failure::from_findings("both gateways answer the same", findings)?;
    etcd.finish()?;
    meerkat.finish()
}

/// A message above what gRPC takes is refused in gRPC's words.
async fn too_large(ports: &[u16; 2], findings: &mut Vec<String>) -> Result<(), Failure> {
    let body = format!(r#"{{"key":"YQ==","value":"{}"}}"#, "AAAA".repeat(1 << 20));
    let [etcd, meerkat] = ports.map(|port| http::send(port, "POST", "/v3/kv/put", &[], body.as_bytes()));
    note(findings, "a put of 3 MiB", Equal::Bytes, &etcd.await?, &meerkat.await?);
    Ok(())
}

fn note(findings: &mut Vec<String>, what: &str, equal: Equal, etcd: &Answer, meerkat: &Answer) {
    let seen = |answer: &Answer| {
        let body = match equal {
            Equal::Bytes => without_ids(&answer.body),
            Equal::Code => format!("code {}", code(&answer.body)),
        };
        // Nobody has anything of a stream that said nothing.
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        let origin = answer.header("access-control-allow-origin").map(str::to_owned);
        (answer.status, kind, origin, body)
    };
    let (one, two) = (seen(etcd), seen(meerkat));
    let kind_matters = equal == Equal::Bytes && !one.3.is_empty();
    let same = one.0 == two.0 && one.2 == two.2 && one.3 == two.3 && (!kind_matters || one.1 == two.1);
    if !same {
        findings.push(format!("{what}\n    etcd:    {one:?}\n    meerkat: {two:?}"));
    }
}

fn code(body: &str) -> String {
    let json: Result<serde_json::Value, _> = serde_json::from_str(body);
    json.map_or_else(|_| "none".to_owned(), |json| json["code"].to_string())
}

/// Hides what differs by nature.
pub fn without_ids(body: &str) -> String {
    let mut text = body.to_owned();
    for name in ["cluster_id", "member_id", "raft_term"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(&format!("\"{name}\":\"")) {
            let begin = from + at + name.len() + 4;
            let end = begin + text[begin..].find('"').unwrap_or(0);
            text.replace_range(begin..end, "#");
            from = begin;
        }
    }
    text
}

/// A second watch on an open stream is created before the client has said all.
pub async fn streams_are_read_as_they_arrive() -> Result<(), Failure> {
    for product in [Product::Etcd, Product::Meerkat] {
        let cluster = start(product, &[]).await?;
        let port = cluster.members()[0].client_port();
        let mut stream = http::open(port, "POST", "/v3/watch", &[], "transfer-encoding: chunked").await?;
        let mut bytes = Vec::new();
        let asks = [r#"{"create_request":{"key":"YQ=="}}"#, r#"{"create_request":{"key":"Yg=="}}"#];
        for (index, ask) in asks.into_iter().enumerate() {
            let (first, second) = ask.split_at(11);
            for piece in [first, second] {
                stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let enough = |answer: &Answer| index < answer.body.lines().count();
            let answer = http::read(&mut stream, &mut bytes, Duration::from_secs(10), enough).await?;
            if answer.body.matches("\"created\":true").count() != index + 1 {
                return Err(Failure::broken(format!(
                    "{product:?} answers {answer:?} while the body is open"
                )));
            }
        }
        if product == Product::Meerkat {
            // What cannot be read is said so, and ends the stream.
            stream.write_all(b"1\r\nx\r\n0\r\n\r\n").await?;
            let answer = http::read(&mut stream, &mut bytes, Duration::from_secs(10), |_| false).await?;
            if !answer.body.lines().last().is_some_and(|line| line.contains("\"grpc_code\":3")) {
                return Err(Failure::broken(format!("the end of a malformed stream is {answer:?}")));
            }
        }
        cluster.finish()?;
    }
    Ok(())
}

/// JSON that somebody almost would send: each is answered, and in JSON.
pub async fn fuzz(seed: u64) -> Result<(), Failure> {
    let meerkat = start(Product::Meerkat, &[]).await?;
    let port = meerkat.members()[0].client_port();
    let mut random = StdRng::seed_from_u64(seed);
    let unary: Vec<_> = REQUESTS.iter().filter(|(_, path, _)| !path.contains("observe")).collect();
    let mut refused = 0;
    for round in 0..400 {
        let (_, path, body) = unary[random.random_range(0..unary.len())];
        let mut body = body.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..=body.len());
            match random.random_range(0..3) {
                0 => body.insert(at, random.random()),
                1 => body.truncate(at),
                _ => drop(body.drain(at..random.random_range(at..=body.len()))),
            }
        }
        // A lock may rightly wait.
        let sent = http::send(port, "POST", path, &[], &body);
        let Ok(answer) = tokio::time::timeout(Duration::from_secs(2), sent).await else { continue };
        let answer = answer?;
        let json = answer.body.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        let told = (answer.status == 404 && !json) || (json && answer.status != 0);
        if !told {
            let sent = String::from_utf8_lossy(&body);
            return Err(Failure::broken(format!("round {round}: {path} {sent:?} is answered {answer:?}")));
        }
        refused += usize::from(400 <= answer.status);
    }
    if refused < 50 {
        return Err(Failure::harness(format!("only {refused} requests were refused")));
    }
    meerkat.finish()
}

pub async fn flags() -> Result<(), Failure> {
    let off = start(
        Product::Meerkat,
        &["--enable-grpc-gateway=false", "--host-whitelist=example.com,127.0.0.1", "--cors=http://a"],
    )
    .await?;
    let port = off.members()[0].client_port();
    let mut findings = Vec::new();
    let mut expect = |what: &str, expected: &dyn Fn(&Answer) -> bool, answer: &Answer| {
        if !expected(answer) {
            findings.push(format!("{what}: {answer:?}"));
        }
    };
    let answer = http::send(port, "POST", "/v3/kv/range", &[], br#"{"key":"YQ=="}"#).await?;
    expect("the gateway is off", &|answer| answer.status == 404, &answer);
    let answer = http::send(port, "GET", "/version", &[("host", "evil.example")], b"").await?;
    expect("a stranger's host", &|answer| answer.status == 421, &answer);
    let answer = http::send(port, "GET", "/version", &[("host", "example.com:1")], b"").await?;
    expect("a listed host", &|answer| answer.status == 200, &answer);
    let origin = |answer: &Answer| answer.header("access-control-allow-origin").map(str::to_owned);
    expect("no origin", &|answer| origin(answer).is_none(), &answer);
    let answer = http::send(port, "GET", "/version", &[("origin", "http://a")], b"").await?;
    expect("a listed origin", &|answer| origin(answer).as_deref() == Some("http://a"), &answer);
    let answer = http::send(port, "GET", "/version", &[("origin", "http://b")], b"").await?;
    expect("another origin", &|answer| origin(answer).is_none(), &answer);
    Failure::from_findings("the flags of the gateway do what they say", findings)?;
    off.finish()
}

/// For the other tests of this program.
pub fn port(cluster: &Cluster) -> u16 {
    cluster.members()[0].client_port()
}
