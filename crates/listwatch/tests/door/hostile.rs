//! Requests that nobody means well with.

use crate::rig::{MAPS, PATIENCE, Rig};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn what_is_out_of_bounds_is_refused() {
    let rig = Rig::new().await;
    rig.make("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let many: Vec<_> = (0..10_001).map(|_| json!({ "op": "test", "path": "/x", "value": null })).collect();
    let reply = rig.patch(&path, "application/json-patch+json", &json!(many)).await;
    assert_eq!(reply.code, 413, "{}", reply.text());
    let huge = json!({ "metadata": { "name": "h" }, "data": { "a": "x".repeat(4 << 20) } });
    assert_eq!(rig.write("POST", MAPS, &huge).await.code, 413);
    let deep =
        format!("{{\"metadata\":{{\"name\":\"d\"}},\"data\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    for form in ["application/json", "application/yaml"] {
        let reply = rig.ask("POST", MAPS, &[("content-type", form)], deep.clone()).await;
        assert_eq!(reply.code, 400, "{form}");
    }
    let bomb = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 100_000].join(","));
    assert_eq!(rig.ask("POST", MAPS, &[("content-type", "application/yaml")], bomb).await.code, 400);
    for selector in ["a%3Db%3Dc", "a%20in%20(", "!!a", "a,,b", "%00", "a%3D".repeat(9_000).as_str()] {
        let reply = rig.get(&format!("{MAPS}?labelSelector={selector}")).await;
        assert!((400..500).contains(&reply.code), "{selector}: {}", reply.code);
    }
    for (revision, start) in [(1, "../../secrets/x"), (0, "a"), (-7, "a"), (1, "a//b"), (1, "/"), (1, "")] {
        let token = json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": start });
        let token = URL_SAFE_NO_PAD.encode(token.to_string());
        assert_eq!(
            rig.get(&format!("{MAPS}?limit=1&continue={token}")).await.code,
            400,
            "{revision} {start}"
        );
    }
    for path in
        ["/api/v1/namespaces/../pods", "/api/v1/namespaces/%2e%2e/pods", "/api//v1", "/api/v1/pods%00"]
    {
        assert_eq!(rig.get(path).await.code, 400, "{path}");
    }
    assert_eq!(rig.get("/livez").await.code, 200);
}

const METHODS: [&str; 9] = ["GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "BREW"];
const PATHS: [&str; 14] = [
    MAPS,
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/configmaps/a/status",
    "/api/v1/namespaces",
    "/api/v1/watch/configmaps",
    "/api/v1/namespaces/x/finalize",
    "/apis/apps/v1/namespaces/default/deployments/a/scale",
    "/apis/events.k8s.io/v1/events",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/openapi/v3/api/v1",
    "/apis",
    "/version",
    "/healthz",
];
const QUERIES: [&str; 14] = [
    "watch=true&timeoutSeconds=1",
    "limit=1",
    "limit=-5",
    "resourceVersion=1",
    "resourceVersion=99999999999999999999",
    "resourceVersionMatch=Exact",
    "sendInitialEvents=true",
    "labelSelector=a%3Db",
    "fieldSelector=metadata.name%3Da",
    "continue=abc",
    "dryRun=All",
    "fieldManager=x&force=true",
    "includeObject=Object&pretty=1",
    "timeout=200ms",
];
const FORMS: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const ACCEPTED: [&str; 5] = [
    "*/*",
    "application/json",
    "application/yaml, application/json;q=0.5",
    "application/vnd.kubernetes.protobuf, application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
];
const BODIES: [&str; 9] = [
    "",
    "{}",
    "[]",
    "null",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"}},"data":{"x":"y"}}"#,
    r#"{"metadata":{"finalizers":["a/b"]},"spec":{"replicas":1},"status":{}}"#,
    r#"[{"op":"add","path":"/data/z","value":"1"},{"op":"test","path":"/x","value":null}]"#,
    r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"}}"#,
    "k8s\0\n\u{8}\n\u{2}v1\u{12}",
];

fn pick<'a>(chance: &mut StdRng, from: &[&'a str]) -> &'a str {
    from[chance.random_range(0..from.len())]
}

/// Some bytes otherwise, some gone, some twice.
fn mutated(chance: &mut StdRng, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..chance.random_range(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = chance.random_range(0..bytes.len());
        match chance.random_range(0..3) {
            0 => bytes[at] = chance.random(),
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, bytes[at]),
        }
    }
    bytes
}

fn any_request(chance: &mut StdRng) -> Vec<u8> {
    let (method, path) = (pick(chance, &METHODS), pick(chance, &PATHS));
    let queries: Vec<&str> = (0..chance.random_range(0..3)).map(|_| pick(chance, &QUERIES)).collect();
    let target = format!("{path}?{}", queries.join("&"));
    let target = if chance.random_bool(0.3) {
        let bytes = mutated(chance, &target);
        String::from_utf8_lossy(&bytes).replace(|c: char| c.is_whitespace() || c.is_control(), "x")
    } else {
        target
    };
    let text = pick(chance, &BODIES);
    let body = if chance.random_bool(0.5) { mutated(chance, text) } else { text.as_bytes().to_vec() };
    let form = pick(chance, if method == "PATCH" { &PATCHES } else { &FORMS });
    let accept = pick(chance, &ACCEPTED);
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {form}\r\naccept: {accept}\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// The code of the answer. It comes to an end, unless it is that of a watch.
async fn code_of(rig: &Rig, request: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(rig.address).await.expect("the door is open");
    stream.write_all(request).await.expect("sent");
    let shown = String::from_utf8_lossy(request).into_owned();
    let mut answer = Vec::new();
    let read = async {
        let is_watch = |answer: &[u8]| {
            let head = String::from_utf8_lossy(answer);
            head.starts_with("HTTP/1.1 200") && head.contains("chunked\r\n") && shown.contains("watch")
        };
        while !is_watch(&answer) && stream.read_buf(&mut answer).await.is_ok_and(|length| 0 < length) {}
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("no end of the answer to {shown}"));
    let head = String::from_utf8_lossy(&answer).into_owned();
    let code =
        head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    code.unwrap_or_else(|| panic!("no answer to {shown}: {head}"))
}

#[tokio::test]
async fn anything_has_an_answer() {
    let rig = Rig::new().await;
    let mut chance = StdRng::seed_from_u64(20);
    let (mut good, mut refused) = (0, 0);
    for _ in 0..60 {
        let requests: Vec<Vec<u8>> = (0..20).map(|_| any_request(&mut chance)).collect();
        let codes = futures::future::join_all(requests.iter().map(|request| code_of(&rig, request))).await;
        for (request, code) in requests.iter().zip(codes) {
            match code {
                200..400 => good += 1,
                400..500 | 504 => refused += 1,
                _ => panic!("{code} for {}", String::from_utf8_lossy(request)),
            }
        }
    }
    assert!(100 < good && 100 < refused, "{good} {refused}");
    assert_eq!(rig.get("/readyz").await.code, 200);
}
