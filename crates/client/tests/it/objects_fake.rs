//! Informers of a door that answers as it is told: what real members seldom say.

use crate::patience::{until, within};
use meerkat_client::Informer;
use meerkat_client::listwatch::{Door, Resource};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A request line that was seen, and when.
type Seen = Arc<Mutex<Vec<(Instant, String)>>>;

/// A member that gives these answers to lists and watches, one after the other, and the last for ever.
/// A watch that was answered with 200 ends with its answer.
async fn fake(answers: &'static [&'static str]) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => break,
                }
            }
            let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
            let number = {
                let mut seen = noted.lock().expect("not poisoned");
                seen.push((Instant::now(), line));
                seen.len() - 1
            };
            let answer = answers[number.min(answers.len() - 1)];
            let (head, body) = answer.split_once('|').expect("a head and a body");
            let answer = format!(
                "HTTP/1.1 {head}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}"
            );
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    (address, seen)
}

fn lines(seen: &Seen) -> Vec<String> {
    let seen = seen.lock().expect("not poisoned");
    let path = |line: &String| line.split(' ').nth(1).unwrap_or_default().to_owned();
    let shown = |(_, line): &(Instant, String)| match path(line).split_once("resourceVersion=") {
        Some((_, rest)) => format!("watch {}", rest.split('&').next().unwrap_or_default()),
        None => path(line).rsplit_once('?').map_or(path(line), |(_, query)| format!("list {query}")),
    };
    seen.iter().map(shown).collect()
}

fn start(door: &Door) -> Informer<Value> {
    Informer::objects(door, Resource::core("pods")).json::<Value>().page_size(2).start()
}

const ADDED: &str = r#"200 OK|{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"n","resourceVersion":"6"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}
"#;

#[tokio::test]
async fn a_version_that_is_gone_is_followed_by_a_list_and_a_bookmark_moves_on() {
    let (address, seen) = fake(&[
        r#"200 OK|{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"3"}}]}"#,
        ADDED,
        "200 OK|{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n",
        r#"200 OK|{"metadata":{"resourceVersion":"20"},"items":[{"metadata":{"name":"c","namespace":"n","resourceVersion":"19"}}]}"#,
        "503 Service Unavailable|{}",
    ])
    .await;
    let informer = start(&Door::new([address]).expect("a door"));
    until("it has listed again", || informer.status().relists() == 1).await;
    until("it watches again", || lines(&seen).len() >= 5).await;
    assert_eq!(lines(&seen)[..5], ["list limit=2", "watch 5", "watch 9", "list limit=2", "watch 20"]);
    let keys: Vec<_> = informer.store().list().iter().map(|object| object.key.clone()).collect();
    assert_eq!(keys, ["n/c"]);
}

#[tokio::test]
async fn a_revision_that_is_told_again_costs_no_list_and_is_told_once() {
    let (address, seen) = fake(&[
        r#"200 OK|{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}]}"#,
        r#"200 OK|{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}}
{"type":"DELETED","object":{"metadata":{"name":"z","namespace":"n","resourceVersion":"5"}}}
{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"n","resourceVersion":"6"}}}
"#,
        r#"200 OK|{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"n","resourceVersion":"6"}}}
{"type":"ADDED","object":{"metadata":{"name":"c","namespace":"n","resourceVersion":"6"}}}
"#,
        "503 Service Unavailable|{}",
    ])
    .await;
    let informer = start(&Door::new([address]).expect("a door"));
    until("it has all of it", || informer.store().len() == 3).await;
    assert_eq!(informer.status().relists(), 0);
    assert_eq!(lines(&seen)[..3], ["list limit=2", "watch 5", "watch 6"]);
}

#[tokio::test]
async fn a_list_whose_token_has_expired_starts_again() {
    let (address, seen) = fake(&[
        r#"200 OK|{"metadata":{"resourceVersion":"5","continue":"t1"},"items":[{"metadata":{"name":"a","resourceVersion":"3"}}]}"#,
        r#"410 Gone|{"kind":"Status","code":410,"reason":"Expired"}"#,
        r#"200 OK|{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"b","resourceVersion":"6"}}]}"#,
        "503 Service Unavailable|{}",
    ])
    .await;
    let informer = start(&Door::new([address]).expect("a door"));
    within("the first list", informer.wait_for_sync()).await.expect("running");
    assert_eq!(lines(&seen)[..3], ["list limit=2", "list limit=2&continue=t1", "list limit=8"]);
    assert_eq!(informer.store().len(), 1);
}

#[tokio::test]
async fn a_busy_member_is_left_alone_for_as_long_as_it_asks() {
    let (address, seen) = fake(&[
        r#"200 OK|{"metadata":{"resourceVersion":"5"},"items":[]}"#,
        "429 Too Many Requests\r\nretry-after: 2|{}",
        "429 Too Many Requests\r\nretry-after: 2|{}",
        ADDED,
    ])
    .await;
    let informer = start(&Door::new([address]).expect("a door"));
    until("it was told something", || informer.store().len() == 1).await;
    let times: Vec<Instant> = seen.lock().expect("not poisoned").iter().map(|(at, _)| *at).collect();
    assert_eq!(lines(&seen)[..4], ["list limit=2", "watch 5", "watch 5", "watch 5"]);
    for pair in times[1..4].windows(2) {
        assert!(Duration::from_secs(2) <= pair[1] - pair[0], "{:?}", pair[1] - pair[0]);
    }
    assert_eq!(informer.status().relists(), 0);
}
