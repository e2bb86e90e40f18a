//! What members send, read into what informers hold: pure.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::time::Duration;

use crate::watch::Changes;
use crate::{Event, EventKind, KeyValue, Revision};

/// A line of a watch is one object and a little; an object is never this long.
const LINE_MAX: usize = 32 << 20;

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An object has come, changed or gone.
    Change(Revision, Event),
    /// Everything up to this version has been told.
    Mark(Revision),
    /// The member ends the watch.
    Error { code: u16, retry_after: Option<Duration> },
}

/// One page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) revision: Revision,
    pub(crate) kvs: Vec<KeyValue>,
    /// For the next page.
    pub(crate) token: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

pub(crate) fn read_line(line: &[u8]) -> Result<Told, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let json = line.object.get();
    if line.kind == "ERROR" {
        let status: Status = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let retry_after = status.details.retry_after_seconds.map(Duration::from_secs);
        return Ok(Told::Error { code: status.code, retry_after });
    }
    let head: Head = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let revision = version(&head.metadata.resource_version)?;
    let kind = match line.kind {
        "BOOKMARK" => return Ok(Told::Mark(revision)),
        "ADDED" | "MODIFIED" => EventKind::Put(key_value(&head.metadata, revision, json)),
        "DELETED" => EventKind::Delete { key: key(&head.metadata), modified: revision },
        other => return Err(format!("an event of the unknown type {other:?}")),
    };
    Ok(Told::Change(revision, Event { kind, previous: None }))
}

pub(crate) fn read_list(body: &[u8]) -> Result<Listed, String> {
    let list: List<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let revision = version(&list.metadata.resource_version)?;
    let mut kvs = Vec::new();
    for item in list.items.unwrap_or_default() {
        let head: Head = serde_json::from_str(item.get()).map_err(|error| error.to_string())?;
        let modified = version(&head.metadata.resource_version)?;
        kvs.push(key_value(&head.metadata, modified, item.get()));
    }
    let token = list.metadata.token.filter(|token| !token.is_empty());
    Ok(Listed { revision, kvs, token })
}

fn version(text: &str) -> Result<Revision, String> {
    match text.parse::<i64>() {
        Ok(version) if version >= 0 => Ok(Revision::new(version)),
        _ => Err(format!("{text:?} is no resourceVersion")),
    }
}

/// `namespace/name`, or the name alone. Members list in this very order.
fn key(metadata: &Metadata) -> Bytes {
    if metadata.namespace.is_empty() {
        return Bytes::copy_from_slice(metadata.name.as_bytes());
    }
    Bytes::from(format!("{}/{}", metadata.namespace, metadata.name))
}

/// Members tell of an object when it changed last, and not when it came into being or how often it
/// changed since.
fn key_value(metadata: &Metadata, modified: Revision, json: &str) -> KeyValue {
    let value = Bytes::copy_from_slice(json.as_bytes());
    KeyValue { key: key(metadata), value, created: modified, modified, version: 1, lease: None }
}

/// The next thing to tell an informer: all neighbours of one version together, since it takes each
/// version whole.
pub(crate) fn next_batch(waiting: &mut VecDeque<Told>) -> Option<Batch> {
    match waiting.pop_front()? {
        Told::Mark(revision) => Some(Batch::Changes(Changes { revision, events: Vec::new() })),
        Told::Error { code, retry_after } => Some(Batch::Error { code, retry_after }),
        Told::Change(revision, first) => {
            let mut events = vec![first];
            while matches!(waiting.front(), Some(Told::Change(next, _)) if *next == revision) {
                if let Some(Told::Change(_, event)) = waiting.pop_front() {
                    events.push(event);
                }
            }
            Some(Batch::Changes(Changes { revision, events }))
        }
    }
}

/// See [`next_batch`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    Changes(Changes),
    Error { code: u16, retry_after: Option<Duration> },
}

/// Pieces as they come, into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of a line.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        self.buffer.extend_from_slice(piece);
        if LINE_MAX < self.buffer.len() && !self.buffer.contains(&b'\n') {
            return Err(format!("a line of more than {LINE_MAX} bytes"));
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, version: i64, value: &str) -> Event {
        let modified = Revision::new(version);
        let (key, value) = (Bytes::from(key.to_owned()), Bytes::from(value.to_owned()));
        let kv = KeyValue { key, value, created: modified, modified, version: 1, lease: None };
        Event { kind: EventKind::Put(kv), previous: None }
    }

    #[test]
    fn lines_of_a_watch_are_events_marks_and_errors() {
        let object = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"x":1}"#;
        for kind in ["ADDED", "MODIFIED"] {
            let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
            let expected = Told::Change(Revision::new(7), put("n/a", 7, object));
            assert_eq!(read_line(line.as_bytes()), Ok(expected));
        }
        let line = br#"{"type":"DELETED","object":{"metadata":{"name":"node","resourceVersion":"8"}}}"#;
        let kind = EventKind::Delete { key: Bytes::from("node"), modified: Revision::new(8) };
        assert_eq!(read_line(line), Ok(Told::Change(Revision::new(8), Event { kind, previous: None })));
        let line = br#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(read_line(line), Ok(Told::Mark(Revision::new(9))));
        let line = br#"{"type":"ERROR","object":{"code":410,"reason":"Expired"}}"#;
        assert_eq!(read_line(line), Ok(Told::Error { code: 410, retry_after: None }));
        let line = br#"{"type":"ERROR","object":{"code":504,"details":{"retryAfterSeconds":1}}}"#;
        let retry_after = Some(Duration::from_secs(1));
        assert_eq!(read_line(line), Ok(Told::Error { code: 504, retry_after }));
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        for line in [
            "",
            "{}",
            r#"{"type":"ADDED","object":null}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"-1"}}}"#,
            r#"{"type":"OTHER","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#,
        ] {
            assert!(read_line(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read_list(b"[]").is_err());
        assert!(read_list(br#"{"metadata":{}}"#).is_err());
    }

    #[test]
    fn a_list_is_its_items_its_version_and_the_way_on() {
        let body = br#"{"metadata":{"resourceVersion":"9","continue":"t"},"items":[
            {"metadata":{"name":"a","resourceVersion":"7"}}]}"#;
        let listed = read_list(body).expect("a list");
        assert_eq!((listed.revision, listed.token.as_deref()), (Revision::new(9), Some("t")));
        assert_eq!((listed.kvs[0].key.as_ref(), listed.kvs[0].modified), (b"a".as_ref(), Revision::new(7)));
        let empty = read_list(br#"{"metadata":{"resourceVersion":"9","continue":""},"items":null}"#);
        assert_eq!(empty, Ok(Listed { revision: Revision::new(9), kvs: vec![], token: None }));
    }

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let text = b"one\ntwo\n\nthree";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in [&text[..cut], &text[cut..], b"\n"] {
                lines.push(piece).expect("short");
                while let Some(line) = lines.next() {
                    found.push(line);
                }
            }
            assert_eq!(found, ["one", "two", "", "three"], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; LINE_MAX];
        lines.push(&piece).expect("just short enough");
        assert!(lines.push(b"x").is_err());
    }

    #[test]
    fn neighbours_of_one_version_are_told_together() {
        let change = |key: &str, version| Told::Change(Revision::new(version), put(key, version, ""));
        let mut waiting: VecDeque<Told> =
            [change("a", 5), change("b", 5), change("c", 6), Told::Mark(Revision::new(6))].into();
        let sizes: Vec<(i64, usize)> = std::iter::from_fn(|| next_batch(&mut waiting))
            .map(|batch| match batch {
                Batch::Changes(changes) => (changes.revision.get(), changes.events.len()),
                Batch::Error { .. } => panic!("there is none"),
            })
            .collect();
        assert_eq!(sizes, [(5, 2), (6, 1), (6, 0)]);
    }
}
