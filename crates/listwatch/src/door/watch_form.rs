//! The events of a watch in the form that was negotiated, each as the bytes of one frame.
//!
//! What the ring can share is shared: a form that it does not know has a number by which it keeps the
//! bytes, so that a thousand tables of one event are made once. A frame of JSON ends its line, and one of
//! protobuf begins with its length; [`WatchForm::message`] takes that off again.

use super::show;
use bytes::Bytes;
use meerkat_kubernetes::fingerprint::Fingerprint;
use meerkat_kubernetes::metadata_form::MetaVersion;
use meerkat_kubernetes::negotiation::{Form, Media, Shape};
use meerkat_kubernetes::protobuf;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::table::IncludeObject;
use meerkat_watchcache::cacher::frame::{Mark, Told, bookmark_line, write_json_line, write_metadata_line};
use meerkat_watchcache::cacher::transition::EventType;
use meerkat_watchcache::feed::Item;
use meerkat_watchcache::watch_plan;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The numbers of the door's own forms. One that is given out means the same for good.
#[derive(Debug, Default)]
pub struct FormNumbers(Mutex<HashMap<String, u16>>);

impl FormNumbers {
    /// Nothing if there are too many: such a form is made for its asker alone.
    fn of(&self, kind: &Kind, form: &Form, include: IncludeObject) -> Option<u16> {
        // What a table shows follows its columns, which a definition can change.
        let columns = match form.shape {
            Shape::Table(_) => Fingerprint::of(format!("{:?}", kind.columns).as_bytes()).to_string(),
            _ => String::new(),
        };
        let (api_version, shape, media) = (kind.api_version(), form.shape, form.media);
        let name = format!("{api_version} {} {media:?} {shape:?} {include:?} {columns}", kind.kind);
        let mut numbers = self.0.lock();
        if let Some(number) = numbers.get(&name) {
            return Some(*number);
        }
        let number = u16::try_from(numbers.len()).ok()?;
        numbers.insert(name, number);
        Some(number)
    }
}

pub struct WatchForm {
    kind: Arc<Kind>,
    form: Form,
    include: IncludeObject,
    way: Way,
    /// Whether a table has said what its columns are.
    has_columns: bool,
}

/// How frames come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By copying the object's bytes.
    Json,
    Metadata,
    /// By writing the object anew.
    Own(Option<u16>),
}

impl WatchForm {
    pub fn new(numbers: &FormNumbers, kind: &Arc<Kind>, form: Form, include: IncludeObject) -> WatchForm {
        let way = match (form.media, form.shape) {
            (Media::Json, Shape::PartialMetadata(MetaVersion::V1)) => Way::Metadata,
            _ if show::is_as_stored(kind, &form) => Way::Json,
            _ => Way::Own(numbers.of(kind, &form, include)),
        };
        WatchForm { kind: kind.clone(), form, include, way, has_columns: false }
    }

    pub fn content_type(&self) -> &'static str {
        self.form.content_type()
    }

    pub fn is_text(&self) -> bool {
        self.form.media != Media::Protobuf
    }

    /// Nothing for what is not to be told, and no bytes for what has no such form: see
    /// [`unencodable`](Self::unencodable).
    pub fn frame(&mut self, item: &Item) -> Option<Bytes> {
        match item {
            Item::Initial(entry) => Some(self.alone(&Told::initial(entry))),
            Item::Line(line) => match self.way {
                Way::Json => line.event.json_frame(line.kind),
                Way::Metadata => line.event.metadata_frame(line.kind),
                Way::Own(Some(number)) if self.has_columns || !self.is_table() => {
                    line.event.door_frame(line.kind, number, |told, out| self.write(told, false, out))
                }
                Way::Own(_) => {
                    let entry = match line.kind {
                        EventType::Added | EventType::Modified => line.event.current()?,
                        EventType::Deleted => line.event.previous()?,
                    };
                    Some(self.alone(&Told { kind: line.kind, entry, revision: line.event.revision() }))
                }
            },
            Item::Bookmark { revision, mark } => self.bookmark(*revision, *mark),
            Item::Expired => Some(self.error(&watch_plan::other_history())),
        }
    }

    /// The last frame of a watch of which something cannot be told. What has no form itself is left out.
    pub fn unencodable(&self) -> Bytes {
        self.error(&watch_plan::unencodable())
    }

    /// The last frame of a watch that fails: an event with a Status, as `watch_plan` makes it.
    pub fn error(&self, event: &Value) -> Bytes {
        let status = event.get("object").unwrap_or(&Value::Null);
        let mut out = Vec::new();
        self.write_event("ERROR", status, &mut out);
        out.into()
    }

    /// A frame as a message of its own, without what divides it from others.
    pub fn message(&self, frame: &Bytes) -> Bytes {
        if self.is_text() {
            frame.slice(..frame.len().saturating_sub(1))
        } else {
            frame.slice(frame.len().min(4)..)
        }
    }

    fn is_table(&self) -> bool {
        matches!(self.form.shape, Shape::Table(_))
    }

    /// Made for this watch only.
    fn alone(&mut self, told: &Told<'_>) -> Bytes {
        let mut out = Vec::with_capacity(told.entry.json().len() + 64);
        match self.way {
            Way::Json => write_json_line(told, &mut out),
            Way::Metadata => write_metadata_line(told, &mut out),
            Way::Own(_) => {
                let columns = self.is_table() && !self.has_columns;
                self.write(told, columns, &mut out);
                self.has_columns = true;
            }
        }
        out.into()
    }

    fn write(&self, told: &Told<'_>, columns: bool, out: &mut Vec<u8>) {
        let stored = show::stored(told.entry, told.revision);
        let shown = show::shaped(&self.kind, self.form.shape, self.include, stored, columns);
        self.write_event(told.kind.name(), &shown, out);
    }

    /// Nothing is written of an object that has no such form.
    fn write_event(&self, event_type: &str, object: &Value, out: &mut Vec<u8>) {
        if self.is_text() {
            let line = format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n");
            out.extend_from_slice(line.as_bytes());
            return;
        }
        let frame = protobuf::encode_event(event_type, object).and_then(|event| protobuf::frame(&event));
        out.extend_from_slice(&frame.unwrap_or_default());
    }

    fn bookmark(&mut self, revision: u64, mark: Mark) -> Option<Bytes> {
        let (api_version, kind) = match self.form.shape {
            Shape::PartialMetadata(version) => {
                (version.api_version().to_owned(), "PartialObjectMetadata".to_owned())
            }
            _ => (self.kind.api_version(), self.kind.kind.clone()),
        };
        let line = bookmark_line(&api_version, &kind, revision, mark);
        if self.form.media == Media::Json && !self.is_table() {
            return Some(line);
        }
        let mut event: Value = serde_json::from_slice(&line).ok()?;
        let mut object = event.get_mut("object").map(Value::take)?;
        if self.is_table() {
            let columns = !self.has_columns;
            self.has_columns = true;
            // The annotation that ends the first objects has no place in a table but in a row's object.
            let include = IncludeObject::Metadata;
            object = show::shaped(&self.kind, self.form.shape, include, object, columns);
            if mark == Mark::Progress {
                object["rows"] = json!([]);
            }
        }
        let mut out = Vec::new();
        self.write_event("BOOKMARK", &object, &mut out);
        Some(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::negotiation::Answer;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_watchcache::cacher::entry::{Entry, Shape as EntryShape};
    use meerkat_watchcache::cacher::event::Event;
    use meerkat_watchcache::cacher::frame::Encodes;
    use meerkat_watchcache::cacher::park::Line;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

    struct Rig {
        numbers: FormNumbers,
        kind: Arc<Kind>,
        encodes: Arc<Encodes>,
    }

    impl Rig {
        fn new(group: &str, resource: &str) -> Rig {
            let kind =
                Registry::built_in().by_resource(group, "v1", resource).expect("it is built in").clone();
            Rig { numbers: FormNumbers::default(), kind, encodes: Arc::new(Encodes::default()) }
        }

        fn watch(&self, accept: &str) -> WatchForm {
            let form = show::form(&self.kind, Answer::Watch, accept).expect("a form of watches");
            WatchForm::new(&self.numbers, &self.kind, form, IncludeObject::default())
        }

        fn entry(&self, revision: u64) -> Entry {
            let object = json!({ "metadata": { "name": "x", "namespace": "a" }, "message": "hello" });
            let shape = EntryShape::new(&self.kind.stored_as, &self.kind.kind, true, &[]);
            let object = object.as_object().cloned().unwrap_or_default();
            Entry::new(&shape, "a/x", object, revision).expect("an object")
        }

        fn line(&self, revision: u64) -> Item {
            let event = Event::put(None, self.entry(revision), 0, &self.encodes);
            Item::Line(Line { event, kind: EventType::Added })
        }
    }

    fn value(frame: &Bytes) -> Value {
        assert_eq!(frame.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(frame).expect("JSON")
    }

    #[test]
    fn a_table_tells_its_columns_once_and_is_made_once() {
        let rig = Rig::new("", "configmaps");
        let item = rig.line(7);
        let mut first = rig.watch(TABLE);
        let told = value(&first.frame(&item).expect("a frame"));
        assert_eq!(told["object"]["kind"], "Table");
        assert!(!told["object"]["columnDefinitions"].as_array().expect("columns").is_empty());
        let again = first.frame(&item).expect("a frame");
        assert_eq!(value(&again)["object"]["columnDefinitions"], json!([]));
        let mut second = rig.watch(TABLE);
        second.frame(&rig.line(6));
        let shared = second.frame(&item).expect("a frame");
        assert_eq!(shared.as_ptr(), again.as_ptr());
        assert_eq!(rig.encodes.count(), 1);
    }

    #[test]
    fn bookmarks_have_the_form_of_the_watch() {
        let rig = Rig::new("", "configmaps");
        let end = Item::Bookmark { revision: 9, mark: Mark::InitialEventsEnd };
        let told = value(&rig.watch("").frame(&end).expect("a frame"));
        assert_eq!((&told["type"], &told["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
        let told = value(&rig.watch(PARTIAL).frame(&end).expect("a frame"));
        assert_eq!(told["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(told["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        let told = value(&rig.watch(TABLE).frame(&end).expect("a frame"));
        assert_eq!(told["object"]["metadata"]["resourceVersion"], "9");
        let row = &told["object"]["rows"][0]["object"];
        assert_eq!(row["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        let frame = rig.watch(protobuf::CONTENT_TYPE).frame(&end).expect("a frame");
        let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        assert_eq!(length as usize, frame.len() - 4);
    }

    #[test]
    fn an_event_of_the_other_group_has_its_own_names_and_its_own_bytes() {
        let (core, other) = (Rig::new("", "events"), Rig::new("events.k8s.io", "events"));
        let item = core.line(3);
        let told = value(&core.watch("").frame(&item).expect("a frame"));
        assert_eq!(
            (&told["object"]["apiVersion"], &told["object"]["message"]),
            (&json!("v1"), &json!("hello"))
        );
        let told = value(&other.watch("").frame(&item).expect("a frame"));
        assert_eq!(told["object"]["apiVersion"], "events.k8s.io/v1");
        assert_eq!(told["object"]["note"], "hello");
    }

    #[test]
    fn a_message_is_a_frame_without_its_bounds() {
        let rig = Rig::new("", "configmaps");
        let mut json = rig.watch("");
        let frame = json.frame(&rig.line(3)).expect("a frame");
        assert_eq!([&json.message(&frame)[..], b"\n"].concat(), frame);
        let mut binary = rig.watch(protobuf::CONTENT_TYPE);
        let frame = binary.frame(&rig.line(3)).expect("a frame");
        assert_eq!(protobuf::frame(&binary.message(&frame)).expect("short"), frame);
        assert!(!binary.is_text());
    }
}
