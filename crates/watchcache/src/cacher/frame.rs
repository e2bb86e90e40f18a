//! An event's bytes as they go out, made once and shared by all watchers, live and late.
//!
//! Whoever needs a form first makes it; everybody else takes the same bytes, for as long as the ring
//! keeps the event. No object is parsed again for it: the revision is written between two slices of its
//! JSON. The bytes of a frame are one line; who sends messages instead of lines leaves off the last byte.

use super::entry::Entry;
use super::event::Event;
use super::transition::EventType;
use bytes::Bytes;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How an object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    Json,
    /// Only its metadata, as a PartialObjectMetadata.
    Metadata,
    /// A form that the door writes itself, such as a table, protobuf or another served version. The
    /// number is the door's; the same number always means the same bytes.
    Door(u16),
}

/// Forms of one event that are kept. A door has a handful; what is asked for beyond is made for the
/// asker alone.
const FORMS_MAX: usize = 32;

/// How many frames were made, of all events of a cache.
#[derive(Debug, Default)]
pub struct Encodes(AtomicU64);

impl Encodes {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a frame tells.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub kind: EventType,
    /// The object as it is now, or for a deletion as it was.
    pub entry: &'a Entry,
    /// The resourceVersion to show: that of the change, also for what was before it.
    pub revision: u64,
}

impl<'a> Told<'a> {
    /// What a watch tells first of an object that is there: it was added, at its own revision. Such a
    /// line is in no ring; to write it copies the object's bytes.
    pub fn initial(entry: &'a Entry) -> Told<'a> {
        Told { kind: EventType::Added, entry, revision: entry.revision() }
    }
}

/// The frames of one event, each where the one before it ends the search.
#[derive(Debug)]
pub struct Frames {
    first: Link,
    encodes: Arc<Encodes>,
}

type Link = OnceLock<Box<Frame>>;

#[derive(Debug)]
struct Frame {
    kind: EventType,
    form: Form,
    bytes: Bytes,
    next: Link,
}

impl Frames {
    pub(super) fn new(encodes: &Arc<Encodes>) -> Frames {
        Frames { first: OnceLock::new(), encodes: encodes.clone() }
    }

    fn get(&self, kind: EventType, form: Form, make: impl FnOnce() -> Vec<u8>) -> Bytes {
        let mut make = Some(make);
        let mut encode = || {
            self.encodes.0.fetch_add(1, Ordering::Relaxed);
            make.take().map_or_else(Bytes::new, |make| Bytes::from(make().into_boxed_slice()))
        };
        let mut link = &self.first;
        for _ in 0..FORMS_MAX {
            // If two come at once for two forms, one waits and then looks at the next link.
            let frame =
                link.get_or_init(|| Box::new(Frame { kind, form, bytes: encode(), next: OnceLock::new() }));
            if (frame.kind, frame.form) == (kind, form) {
                return frame.bytes.clone();
            }
            link = &frame.next;
        }
        encode()
    }
}

impl Event {
    /// One line of JSON. `None` if the event has no such side.
    pub fn json_frame(&self, kind: EventType) -> Option<Bytes> {
        self.frame(kind, Form::Json, write_json_line)
    }

    /// One line of JSON with the object's metadata only.
    pub fn metadata_frame(&self, kind: EventType) -> Option<Bytes> {
        self.frame(kind, Form::Metadata, write_metadata_line)
    }

    /// A frame in the door's own form: `write` is called by the first that asks.
    pub fn door_frame(
        &self,
        kind: EventType,
        form: u16,
        write: impl FnOnce(&Told<'_>, &mut Vec<u8>),
    ) -> Option<Bytes> {
        self.frame(kind, Form::Door(form), write)
    }

    fn frame(
        &self,
        kind: EventType,
        form: Form,
        write: impl FnOnce(&Told<'_>, &mut Vec<u8>),
    ) -> Option<Bytes> {
        let entry = match kind {
            EventType::Added | EventType::Modified => self.current()?,
            EventType::Deleted => self.previous()?,
        };
        let told = Told { kind, entry, revision: self.revision() };
        Some(self.frames.get(kind, form, || {
            let mut out = Vec::with_capacity(entry.json().len() + 64);
            write(&told, &mut out);
            out
        }))
    }
}

pub fn write_json_line(told: &Told<'_>, out: &mut Vec<u8>) {
    open_line(told.kind.name(), out);
    told.entry.write_json(told.revision, out);
    out.extend_from_slice(b"}\n");
}

pub fn write_metadata_line(told: &Told<'_>, out: &mut Vec<u8>) {
    open_line(told.kind.name(), out);
    out.extend_from_slice(br#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#);
    told.entry.write_metadata(told.revision, out);
    out.extend_from_slice(b"}}\n");
}

fn open_line(kind: &str, out: &mut Vec<u8>) {
    for part in [r#"{"type":""#, kind, r#"","object":"#] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Whether a bookmark ends the objects that a watch began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Progress,
    InitialEventsEnd,
}

/// A bookmark's line. It has metadata and nothing else: a client that decodes strictly would stumble
/// over an empty spec.
pub fn bookmark_line(api_version: &str, kind: &str, revision: u64, mark: Mark) -> Bytes {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if mark == Mark::InitialEventsEnd {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    let mut out = Vec::new();
    open_line("BOOKMARK", &mut out);
    out.extend_from_slice(object.to_string().as_bytes());
    out.extend_from_slice(b"}\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::pod;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn update(encodes: &Arc<Encodes>) -> Arc<Event> {
        Event::put(Some(pod("a/1", "app=web", "n1", 4)), pod("a/1", "app=db", "n1", 7), 0, encodes)
    }

    #[test]
    fn a_frame_is_made_once_for_any_number_of_watchers() {
        let encodes = Arc::default();
        let event = update(&encodes);
        let first = event.json_frame(EventType::Modified).expect("it has both sides");
        for _ in 0..10_000 {
            let again = event.json_frame(EventType::Modified).expect("it has both sides");
            assert_eq!(first.as_ptr(), again.as_ptr(), "the very same bytes");
        }
        assert_eq!(encodes.count(), 1);
        for _ in 0..3 {
            event.metadata_frame(EventType::Modified);
            event.json_frame(EventType::Deleted);
            event.door_frame(EventType::Modified, 5, |_, out| out.push(b'x'));
        }
        assert_eq!(encodes.count(), 4, "one for each kind and form");
    }

    #[test]
    fn threads_that_come_at_once_make_each_form_once() {
        for _ in 0..50 {
            let encodes = Arc::default();
            let event = update(&encodes);
            std::thread::scope(|scope| {
                for thread in 0..4_u16 {
                    let event = &event;
                    scope.spawn(move || {
                        for step in 0..8 {
                            let form = (thread + step) % 8;
                            let write = |_: &Told<'_>, out: &mut Vec<u8>| out.push(form as u8);
                            let frame = event.door_frame(EventType::Added, form, write);
                            assert_eq!(frame.as_deref(), Some(&[form as u8][..]));
                        }
                    });
                }
            });
            assert_eq!(encodes.count(), 8);
        }
    }

    #[test]
    fn more_forms_than_are_kept_are_still_told() {
        let encodes = Arc::default();
        let event = update(&encodes);
        for _ in 0..2 {
            for form in 0..40 {
                let frame = event.door_frame(EventType::Added, form, |_, out| out.push(form as u8));
                assert_eq!(frame.as_deref(), Some(&[form as u8][..]));
            }
        }
        assert_eq!(encodes.count(), 40 + (40 - FORMS_MAX as u64));
    }

    #[test]
    fn an_object_that_leaves_is_told_as_it_was_with_the_revision_of_the_change() {
        let encodes = Arc::default();
        let frame = update(&encodes).json_frame(EventType::Deleted).expect("it was there");
        let expected = concat!(
            r#"{"type":"DELETED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web"},"#,
            r#""name":"1","resourceVersion":"7","uid":"a/1"},"spec":{"nodeName":"n1"}}}"#,
            "\n"
        );
        assert_eq!(text(&frame), expected);
    }

    #[test]
    fn a_deletion_is_told_with_the_last_state_and_its_own_revision() {
        let event = Event::deleted(pod("a/1", "", "", 4), 1_000, 0, &Arc::default());
        let frame = text(&event.json_frame(EventType::Deleted).expect("it was there"));
        assert!(frame.contains(r#""resourceVersion":"1000""#), "{frame}");
        assert_eq!(event.json_frame(EventType::Added), None, "there is nothing to show");
    }

    #[test]
    fn metadata_alone_are_an_object_of_their_own_kind() {
        let frame = update(&Arc::default()).metadata_frame(EventType::Modified).expect("it is there");
        let expected = concat!(
            r#"{"type":"MODIFIED","object":{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","#,
            r#""metadata":{"labels":{"app":"db"},"name":"1","resourceVersion":"7","uid":"a/1"}}}"#,
            "\n"
        );
        assert_eq!(text(&frame), expected);
    }

    #[test]
    fn an_object_that_is_there_is_added_at_its_own_revision() {
        let entry = pod("a/1", "", "", 4);
        let mut out = Vec::new();
        write_json_line(&Told::initial(&entry), &mut out);
        write_metadata_line(&Told::initial(&entry), &mut out);
        let lines: Vec<serde_json::Value> =
            text(&out).lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line["type"] == "ADDED"));
        assert!(lines.iter().all(|line| line["object"]["metadata"]["resourceVersion"] == "4"));
    }

    #[test]
    fn a_bookmark_has_metadata_and_nothing_else() {
        assert_eq!(
            text(&bookmark_line("v1", "Pod", 12, Mark::Progress)),
            "{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"12\"}}}\n"
        );
        let end = text(&bookmark_line("v1", "Pod", 12, Mark::InitialEventsEnd));
        assert!(end.contains(r#""annotations":{"k8s.io/initial-events-end":"true"}"#), "{end}");
    }
}
