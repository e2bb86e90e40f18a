//! What a tool said, made comparable: what differs from one run to the next by right is put into words.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::WireType;

use super::Row;
use crate::process::{run, stderr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub status: Option<i32>,
    pub stdout: String,
    /// The tool's own last word; libraries log lines of their own.
    pub error: String,
}

/// How much is put into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Ports, times taken, and ids that are drawn at random.
    Chance,
    /// Also whatever a server says about itself: its ids, terms, versions, sizes and hashes.
    Server,
}

pub fn ask(tool: &mut Command, endpoint: &str, row: &Row, mask: Mask) -> Said {
    let output = run(tool.args(["--endpoints", endpoint]).args(&row.words), row.input.as_bytes());
    let errors = stderr(&output);
    let about_itself = |line: &&str| {
        ["Error: ", "Failed to ", endpoint].iter().any(|start| line.starts_with(start))
            || line.contains("is unhealthy")
    };
    let complaint = errors.lines().rfind(about_itself).unwrap_or_default();
    let binary = mask == Mask::Server && row.text().ends_with("-w protobuf") && output.status.success();
    let printed = match binary {
        true => without_header(&output.stdout),
        false => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    Said {
        status: output.status.code(),
        stdout: masked(&printed, endpoint, mask),
        error: masked(complaint, endpoint, mask),
    }
}

/// The fields of a message, but for its header: the first field, or (leases) the numbers that lie flat.
fn without_header(message: &[u8]) -> String {
    let mut fields = Vec::new();
    let mut rest = message;
    while let Ok((tag, kind)) = prost::encoding::decode_key(&mut rest) {
        let value = match kind {
            WireType::LengthDelimited => {
                let length = prost::encoding::decode_varint(&mut rest).expect("a length") as usize;
                let (value, after) = rest.split_at(length);
                rest = after;
                format!("{value:?}")
            }
            WireType::Varint => prost::encoding::decode_varint(&mut rest).expect("a number").to_string(),
            other => panic!("no answer has a field of the kind {other:?}"),
        };
        fields.push((tag, kind, value));
    }
    let is_flat = fields.first().is_some_and(|(tag, kind, _)| *tag == 1 && *kind == WireType::Varint);
    let own = |tag: u32| if is_flat { [1, 2, 4].contains(&tag) } else { tag == 1 };
    let kept = fields.iter().filter(|(tag, ..)| !own(*tag));
    kept.map(|(tag, _, value)| format!("{tag}: {value}\n")).collect()
}

/// The text with one word for each thing that is allowed to differ.
pub fn masked(text: &str, endpoint: &str, mask: Mask) -> String {
    let port = endpoint.rsplit(':').next().unwrap_or_default();
    let text = text.lines().map(|line| masked_line(line, mask)).collect::<Vec<_>>().join("\n");
    // A word of its own: an id may have the same digits in it by chance.
    let is_port = |word: &str| word.trim_end_matches('.') == port;
    let text = words_masked(&text, |word| if is_port(word) { Some("PORT!") } else { random_word(word) });
    // The borders of a box are as wide as what was masked in it.
    if text.starts_with("+-") {
        text.split_whitespace().collect::<Vec<_>>().join(" ").replace('-', "")
    } else {
        text
    }
}

fn masked_line(line: &str, mask: Mask) -> String {
    let line = with_keys_readable(line);
    if mask == Mask::Chance {
        return line;
    }
    if let Ok(mut value) = serde_json::from_str::<serde_json::Value>(&line)
        && line.starts_with(['{', '['])
    {
        mask_json(&mut value);
        return value.to_string();
    }
    let own = OWN_FIELDS.iter().find(|name| line.starts_with(&format!("\"{name}\" :")));
    own.map_or(line, |name| format!("\"{name}\" : OWN"))
}

/// What a server says about itself, in the words of `fields` and of `json`.
const OWN_FIELDS: &[&str] = &[
    "ClusterID",
    "MemberID",
    "RaftTerm",
    "RaftIndex",
    "RaftAppliedIndex",
    "DBSize",
    "DBSizeInUse",
    "Version",
    "Leader",
    "ID",
    "Hash",
    "PeerURL",
    "HashRevision",
    "cluster_id",
    "member_id",
    "raft_term",
    "raftTerm",
    "raftIndex",
    "raftAppliedIndex",
    "dbSize",
    "dbSizeInUse",
    "version",
    "leader",
    "hash",
    "hash_revision",
    "storageVersion",
    "dbSizeQuota",
];

fn mask_json(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            // A key's version is no server's own.
            let is_kv = fields.contains_key("mod_revision");
            for (name, value) in fields {
                if OWN_FIELDS.contains(&name.as_str()) && !is_kv {
                    *value = "OWN".into();
                } else {
                    mask_json(value);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(mask_json),
        _ => {}
    }
}

/// Keys of locks have a lease's id in them, which base64 would hide.
fn with_keys_readable(line: &str) -> String {
    let mut parts = line.split("\"key\":\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (key, rest) = part.split_once('"').unwrap_or((part, ""));
        let bytes = STANDARD.decode(key).unwrap_or_default();
        let readable = words_masked(&String::from_utf8_lossy(&bytes), random_word);
        out.push_str(&format!("\"key\":\"{}\"{rest}", readable.escape_default()));
    }
    out
}

/// Ids, of leases above all, have up to sixteen hexadecimal digits, or as many decimal ones: drawn at random,
/// one in 128 has two less, and none in a lifetime five. And times end in a unit.
fn random_word(word: &str) -> Option<&'static str> {
    let hex = word.chars().all(|c| c.is_ascii_hexdigit());
    if 12 <= word.len() && hex {
        return Some("ID");
    }
    let is_time = word.starts_with(|c: char| c.is_ascii_digit())
        && ["ms", "µs", "s"].iter().any(|unit| {
            word.strip_suffix(unit)
                .is_some_and(|number| number.parse::<f64>().is_ok() && number.contains('.'))
        });
    is_time.then_some("TIME")
}

fn words_masked(text: &str, mask: impl Fn(&str) -> Option<&'static str>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_alphanumeric() || c == '.' {
            word.push(c);
            continue;
        }
        out.push_str(mask(&word).unwrap_or(&word));
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

#[test]
fn only_what_may_differ_is_masked() {
    let check = |text: &str, mask: Mask, expected: &str| {
        assert_eq!(masked(text, "127.0.0.1:12345", mask), expected, "{text}");
    };
    check("lease 694d8a1b2c3d4e5f granted", Mask::Chance, "lease ID granted");
    check("lease 8a1b2c3d4e5f granted", Mask::Chance, "lease ID granted");
    check("took = 1.234567ms at 127.0.0.1:12345", Mask::Chance, "took = TIME at 127.0.0.1:PORT!");
    check("{\"lease\":7587812345670000001}", Mask::Server, "{\"lease\":ID}");
    check("TTL(500s)", Mask::Chance, "TTL(500s)");
    check("\"RaftTerm\" : 2", Mask::Chance, "\"RaftTerm\" : 2");
    check("\"RaftTerm\" : 2", Mask::Server, "\"RaftTerm\" : OWN");
    check(
        "{\"header\":{\"raft_term\":2,\"revision\":3},\"kvs\":[{\"mod_revision\":2,\"version\":1}]}",
        Mask::Server,
        "{\"header\":{\"raft_term\":\"OWN\",\"revision\":3},\"kvs\":[{\"mod_revision\":2,\"version\":1}]}",
    );
    check("{\"key\":\"bC82OTRkOGExYjJjM2Q0ZTVm\"}", Mask::Chance, "{\"key\":\"l/ID\"}");
}
