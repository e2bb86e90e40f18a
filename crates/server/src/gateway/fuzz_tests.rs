//! Bytes that nobody would send, and JSON that somebody almost would: none makes the gateway panic, and
//! whatever it takes is a message again.

use super::json_in;
use super::json_out;
use super::routes::Routes;
use super::split::Split;
use bytes::Bytes;
use prost_reflect::MessageDescriptor;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const SEED: u64 = 20_261_117;
const ROUNDS: usize = 4_000;

const WELL_FORMED: &[(&str, &str)] = &[
    (
        "/v3/kv/range",
        r#"{"key":"Zm9v","range_end":"Zm9w","limit":"5","sort_order":"DESCEND","keysOnly":true}"#,
    ),
    (
        "/v3/kv/txn",
        r#"{"compare":[{"key":"YQ==","target":"MOD","mod_revision":"3","result":"LESS"}],"success":[{"requestPut":{"key":"YQ==","value":"Yg=="}},{"request_txn":{"failure":[{"request_range":{"key":"YQ=="}}]}}]}"#,
    ),
    (
        "/v3/watch",
        r#"{"create_request":{"key":"Zm9v","filters":["NOPUT",1],"start_revision":"7"}} {"cancelRequest":{"watch_id":3}}"#,
    ),
    ("/v3/lease/grant", r#"{"TTL":60,"ID":"-77"}"#),
    (
        "/v3/election/proclaim",
        r#"{"leader":{"name":"bg==","key":"bi80ZA==","rev":"9","lease":77},"value":"dg=="}"#,
    ),
    ("/v3/maintenance/alarm", r#"{"action":"ACTIVATE","memberID":"18446744073709551615","alarm":2}"#),
];

/// What is put into JSON to break it.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "-",
    "1e999",
    "1.5",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "ü",
    "9223372036854775808",
    "\\",
    "[[[[[[[[",
    "{\"a\":",
    "true",
    "\"key\":\"Zm9v\"",
];

/// How many messages were read before the end or an error.
fn feed(kind: &MessageDescriptor, bytes: &[u8], random: &mut StdRng) -> (usize, bool) {
    let mut split = Split::new(4_096);
    let mut read = 0;
    let mut rest = bytes;
    loop {
        match split.next() {
            Err(_) => return (read, true),
            Ok(Some(json)) => match json_in::message(kind, &json) {
                Err(error) => {
                    assert!(!error.status().message().is_empty());
                    return (read, true);
                }
                Ok(message) => {
                    let json = json_out::message(&message);
                    let again = serde_json::from_str(&json).expect("what is written is JSON");
                    let again = json_in::message(kind, &again).expect("and a message");
                    assert_eq!(json_out::message(&again), json);
                    read += 1;
                }
            },
            Ok(None) if rest.is_empty() => {
                split.end();
                match split.next() {
                    Ok(None) => return (read, false),
                    Ok(Some(_)) => read += 1,
                    Err(_) => return (read, true),
                }
            }
            Ok(None) => {
                let (piece, after) = rest.split_at(random.random_range(1..=rest.len()));
                split.push(&Bytes::copy_from_slice(piece));
                rest = after;
            }
        }
    }
}

fn mutate(json: &str, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = json.as_bytes().to_vec();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..=bytes.len());
        match random.random_range(0..4) {
            0 => drop(bytes.splice(at..at, PIECES[random.random_range(0..PIECES.len())].bytes())),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => bytes[at] = random.random(),
            _ => {
                let end = random.random_range(at..=bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

#[test]
fn no_bytes_make_it_panic() {
    let routes = Routes::new();
    let mut random = StdRng::seed_from_u64(SEED);
    for _ in 0..ROUNDS {
        let (path, _) = WELL_FORMED[random.random_range(0..WELL_FORMED.len())];
        let kind = routes.find(path).expect("a path of ours").descriptor.input();
        let length = random.random_range(0..64);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        feed(&kind, &bytes, &mut random);
    }
}

#[test]
fn no_mutation_of_json_makes_it_panic_and_some_are_read_and_some_refused() {
    let routes = Routes::new();
    let mut random = StdRng::seed_from_u64(SEED);
    let (mut read, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let (path, json) = WELL_FORMED[round % WELL_FORMED.len()];
        let kind = routes.find(path).expect("a path of ours").descriptor.input();
        assert!(!feed(&kind, json.as_bytes(), &mut random).1, "{json}");
        let (messages, badly) = feed(&kind, &mutate(json, &mut random), &mut random);
        read += usize::from(0 < messages && !badly);
        refused += usize::from(badly);
    }
    assert!(ROUNDS / 20 < read && ROUNDS / 4 < refused, "{read} read, {refused} refused");
}
