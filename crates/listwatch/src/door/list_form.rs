//! A list on its way out, some of it at a time: it is never in memory as one piece, whatever its form, and
//! whoever makes it lets others run between two pieces.
//!
//! The usual form is written by copying the bytes of each object. Tables, YAML and protobuf are made anew of
//! each; protobuf even twice, for a list has to say how long it is before it begins.

use super::answer::{self, Body};
use super::show;
use super::untaken::Untaken;
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use meerkat_kubernetes::metadata_form;
use meerkat_kubernetes::negotiation::{Form, Media, Shape};
use meerkat_kubernetes::protobuf::ListEncoder;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::table::{IncludeObject, TableForm};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_watchcache::cacher::entry::Entry;
use serde_json::{Map, Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// About what is written at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// About what is read for it: a row of a table is short, and its object may be long.
const READ_BYTES: usize = 256 << 10;

/// How the items of a list look.
pub struct ListForm {
    pub kind: Arc<Kind>,
    pub shape: Shape,
    pub include: IncludeObject,
    pub now: Timestamp,
    /// An item is the bytes of its entry.
    is_as_stored: bool,
}

impl ListForm {
    pub fn new(kind: &Arc<Kind>, form: &Form, include: IncludeObject) -> ListForm {
        let is_as_stored = show::is_as_stored(kind, form);
        ListForm { kind: kind.clone(), shape: form.shape, include, now: show::now(), is_as_stored }
    }

    /// What a list says before its items.
    fn head(&self, metadata: &Value) -> Map<String, Value> {
        let (kind, api_version) = self.list_type();
        let mut head = Map::new();
        head.insert("kind".to_owned(), json!(kind));
        head.insert("apiVersion".to_owned(), json!(api_version));
        head.insert("metadata".to_owned(), metadata.clone());
        if let Some(table) = self.table() {
            head.insert("columnDefinitions".to_owned(), Value::Array(table.columns()));
        }
        head
    }

    fn list_type(&self) -> (String, String) {
        match self.shape {
            Shape::Table(version) => ("Table".to_owned(), version.api_version().to_owned()),
            Shape::PartialMetadata(version) | Shape::PartialMetadataList(version) => {
                ("PartialObjectMetadataList".to_owned(), version.api_version().to_owned())
            }
            Shape::Whole | Shape::AggregatedDiscovery(_) => {
                (self.kind.list_kind.clone(), self.kind.api_version())
            }
        }
    }

    fn table(&self) -> Option<TableForm<'_>> {
        match self.shape {
            Shape::Table(version) => {
                Some(TableForm { kind: &self.kind, version, include: self.include, now: self.now })
            }
            _ => None,
        }
    }

    /// The field that holds the items.
    fn items(&self) -> &'static str {
        if matches!(self.shape, Shape::Table(_)) { "rows" } else { "items" }
    }

    fn value(&self, entry: &Entry) -> Value {
        let stored = show::stored(entry, entry.revision());
        match self.shape {
            Shape::Table(_) => self.table().map_or(Value::Null, |table| table.row(&stored)),
            Shape::PartialMetadata(version) | Shape::PartialMetadataList(version) => {
                metadata_form::of_object(&stored, version)
            }
            Shape::Whole | Shape::AggregatedDiscovery(_) => {
                show::item(&self.kind, show::served(&self.kind, stored))
            }
        }
    }

    fn write_json(&self, entry: &Entry, out: &mut Vec<u8>) {
        match self.shape {
            Shape::Whole if self.is_as_stored && self.kind.custom().is_none() => {
                entry.write_untyped_json(out);
            }
            Shape::Whole if self.is_as_stored => out.extend_from_slice(entry.json()),
            Shape::PartialMetadata(version) | Shape::PartialMetadataList(version) => {
                let head = format!(
                    r#"{{"kind":"PartialObjectMetadata","apiVersion":"{}","metadata":"#,
                    version.api_version()
                );
                out.extend_from_slice(head.as_bytes());
                entry.write_metadata(entry.revision(), out);
                out.push(b'}');
            }
            Shape::Whole | Shape::Table(_) | Shape::AggregatedDiscovery(_) => {
                out.extend_from_slice(self.value(entry).to_string().as_bytes());
            }
        }
    }
}

/// How a list is written down.
enum Script {
    Json { indent: bool },
    Yaml,
    Protobuf(ListEncoder),
}

/// A list on its way out.
pub struct ListWriter {
    form: ListForm,
    script: Script,
    /// What comes before the first item; empty once it is written.
    head: Vec<u8>,
    entries: std::vec::IntoIter<Entry>,
    is_first: bool,
    is_done: bool,
}

impl ListWriter {
    pub async fn new(
        form: ListForm,
        media: Media,
        indent: bool,
        metadata: &Value,
        entries: Vec<Entry>,
    ) -> Result<ListWriter, Refusal> {
        let head = form.head(metadata);
        let (script, head) = match media {
            Media::Yaml => (Script::Yaml, yaml_head(head, form.items(), entries.is_empty())?),
            Media::Protobuf => {
                let (kind, api_version) = form.list_type();
                let encoder = ListEncoder::of(&api_version, &kind).ok_or_else(show::unencodable)?;
                let bytes = items_bytes(&form, &encoder, &entries).await;
                let head = encoder.head(metadata, bytes);
                (Script::Protobuf(encoder), head)
            }
            _ => (Script::Json { indent }, json_head(&head, form.items(), indent)),
        };
        let entries = entries.into_iter();
        Ok(ListWriter { form, script, head, entries, is_first: true, is_done: false })
    }

    fn chunk(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut out = std::mem::take(&mut self.head);
        let mut read = 0;
        while out.len() < CHUNK_BYTES && read < READ_BYTES {
            let Some(entry) = self.entries.next() else {
                self.end(&mut out);
                break;
            };
            read += entry.json().len();
            self.write(&entry, &mut out);
        }
        Some(out.into())
    }

    fn write(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let is_first = std::mem::take(&mut self.is_first);
        match &self.script {
            Script::Json { indent } => {
                if !is_first {
                    out.push(b',');
                }
                if *indent {
                    out.extend_from_slice(b"\n        ");
                    out.extend_from_slice(under(&show::indented(&self.form.value(entry)), 8).as_bytes());
                } else {
                    self.form.write_json(entry, out);
                }
            }
            // A list of one, whose line begins where that of the next one does.
            Script::Yaml => match serde_norway::to_string(&[self.form.value(entry)]) {
                Ok(item) => out.extend_from_slice(item.as_bytes()),
                Err(error) => {
                    tracing::error!(key = &**entry.key(), %error, "an object cannot be written as YAML");
                }
            },
            Script::Protobuf(encoder) => out.extend(encoder.item(&self.form.value(entry))),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        match &self.script {
            Script::Json { indent: false } => out.extend_from_slice(b"]}\n"),
            Script::Json { indent: true } if self.is_first => out.extend_from_slice(b"]\n}\n"),
            Script::Json { indent: true } => out.extend_from_slice(b"\n    ]\n}\n"),
            Script::Yaml => {}
            Script::Protobuf(encoder) => out.extend(encoder.tail()),
        }
        self.is_done = true;
    }

    /// A list that fits into one chunk goes out with its length. One of which nothing is taken for `patience`
    /// is cut off.
    pub fn into_body(mut self, patience: Duration) -> Body {
        let Some(first) = self.chunk() else { return answer::full("") };
        if self.is_done {
            return answer::full(first);
        }
        let rest = stream::unfold(Some(Untaken::new(self, patience)), move |rest| async move {
            let rest = rest?;
            // However quickly it is read: others run too.
            tokio::task::yield_now().await;
            let Some(mut writer) = rest.take() else {
                let why = "nothing of the list was taken for too long";
                return Some((Err(io::Error::new(io::ErrorKind::TimedOut, why)), None));
            };
            let chunk = writer.chunk()?;
            rest.put_back(writer, patience);
            Some((Ok(chunk), Some(rest)))
        });
        let chunks = futures::StreamExt::chain(stream::iter([Ok(first)]), rest);
        let frames = futures::StreamExt::map(chunks, |chunk| chunk.map(Frame::data));
        StreamBody::new(frames).boxed_unsync()
    }
}

/// How long all items are in protobuf.
async fn items_bytes(form: &ListForm, encoder: &ListEncoder, entries: &[Entry]) -> usize {
    let (mut bytes, mut read) = (0, 0);
    for entry in entries {
        bytes += encoder.item(&form.value(entry)).len();
        read += entry.json().len();
        if READ_BYTES <= read {
            read = 0;
            tokio::task::yield_now().await;
        }
    }
    bytes
}

fn json_head(head: &Map<String, Value>, items: &str, indent: bool) -> Vec<u8> {
    let mut out = String::from("{");
    for name in ["kind", "apiVersion", "metadata", "columnDefinitions"] {
        let Some(value) = head.get(name) else { continue };
        if indent {
            let value = under(&show::indented(value), 4);
            out.push_str(&format!("\n    \"{name}\": {value},"));
        } else {
            out.push_str(&format!("\"{name}\":{value},"));
        }
    }
    out.push_str(&if indent { format!("\n    \"{items}\": [") } else { format!("\"{items}\":[") });
    out.into_bytes()
}

fn yaml_head(mut head: Map<String, Value>, items: &str, is_empty: bool) -> Result<Vec<u8>, Refusal> {
    // What has no items has a list of them all the same.
    if is_empty {
        head.insert(items.to_owned(), json!([]));
    }
    let head = serde_norway::to_string(&head).map_err(|_| show::unencodable())?;
    Ok(if is_empty { head.into_bytes() } else { format!("{head}{items}:\n").into_bytes() })
}

/// Further in by so many blanks. In JSON every end of a line is between values.
fn under(indented: &[u8], blanks: usize) -> String {
    let text = String::from_utf8_lossy(indented);
    text.trim_end().replace('\n', &format!("\n{}", " ".repeat(blanks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::metadata_form::MetaVersion;
    use meerkat_kubernetes::protobuf;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_watchcache::cacher::entry::Shape as EntryShape;

    const V1: MetaVersion = MetaVersion::V1;
    const SHAPES: [Shape; 3] = [Shape::Whole, Shape::Table(V1), Shape::PartialMetadataList(V1)];

    fn entries(count: usize) -> Vec<Entry> {
        let shape = EntryShape::new("v1", "ConfigMap", true, &[]);
        let entry = |nth: usize| {
            let object = json!({
                "metadata": { "name": format!("m{nth}"), "creationTimestamp": "2020-01-01T00:00:00Z" },
                "data": { "a": "x\n", "b": "- true\n# no", "c": "1e3" },
            });
            let object = object.as_object().cloned().unwrap_or_default();
            Entry::new(&shape, &format!("a/m{nth}"), object, 5).expect("an object")
        };
        (0..count).map(entry).collect()
    }

    fn form(shape: Shape, is_as_stored: bool) -> ListForm {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "configmaps").expect("there are config maps").clone();
        let (include, now) = (IncludeObject::default(), show::now());
        ListForm { kind, shape, include, now, is_as_stored }
    }

    async fn written(form: ListForm, media: Media, indent: bool, count: usize) -> Vec<Bytes> {
        let metadata = show::list_metadata(9, Some("c"), None);
        let writer = ListWriter::new(form, media, indent, &metadata, entries(count)).await;
        let mut writer = writer.expect("it has this form");
        std::iter::from_fn(|| writer.chunk()).collect()
    }

    /// In one piece, as the rules of each form have it.
    fn whole(form: &ListForm, count: usize) -> Value {
        let stored = entries(count).into_iter().map(|entry| show::stored(&entry, 5));
        let items: Vec<Value> = if matches!(form.shape, Shape::Whole) {
            stored.map(|stored| show::item(&form.kind, stored)).collect()
        } else {
            stored.collect()
        };
        let list = json!({
            "kind": "ConfigMapList", "apiVersion": "v1", "metadata": show::list_metadata(9, Some("c"), None),
            "items": items,
        });
        match form.shape {
            Shape::Table(_) => form.table().expect("a table").of_list(&list),
            Shape::PartialMetadataList(version) => metadata_form::of_list(&list, version),
            _ => list,
        }
    }

    #[tokio::test]
    async fn a_list_in_pieces_says_what_it_says_in_one_in_every_form() {
        for (shape, count) in
            SHAPES.into_iter().flat_map(|shape| [0, 1, 3, 2_000].map(|count| (shape, count)))
        {
            let expected = whole(&form(shape, false), count);
            for is_as_stored in [false, true] {
                let plain = written(form(shape, is_as_stored), Media::Json, false, count).await.concat();
                assert_eq!(serde_json::from_slice::<Value>(&plain).expect("JSON"), expected, "{shape:?}");
                assert_eq!(plain.iter().filter(|byte| **byte == b'\n').count(), 1);
            }
            let indented = written(form(shape, true), Media::Json, true, count).await.concat();
            assert_eq!(serde_json::from_slice::<Value>(&indented).expect("JSON"), expected, "{shape:?}");
            assert!(indented.starts_with(b"{\n    \"kind\": \"") && indented.ends_with(b"]\n}\n"));
            let yaml = written(form(shape, false), Media::Yaml, false, count).await.concat();
            assert_eq!(serde_norway::from_slice::<Value>(&yaml).expect("YAML"), expected, "{shape:?}");
            if !matches!(shape, Shape::Table(_)) {
                let binary = written(form(shape, false), Media::Protobuf, false, count).await.concat();
                assert_eq!(Some(binary), protobuf::encode(&expected), "{shape:?}");
            }
        }
    }

    #[tokio::test]
    async fn no_piece_is_much_longer_than_another_and_none_is_empty() {
        for shape in SHAPES {
            for media in [Media::Json, Media::Yaml, Media::Protobuf] {
                if (matches!(shape, Shape::Table(_)), media) == (true, Media::Protobuf) {
                    let writer =
                        ListWriter::new(form(shape, false), media, false, &json!({}), Vec::new()).await;
                    assert_eq!(writer.err().map(|refusal| refusal.code()), Some(406));
                    continue;
                }
                let chunks = written(form(shape, false), media, false, 3_000).await;
                let longest = chunks.iter().map(Bytes::len).max().unwrap_or_default();
                assert!(2 < chunks.len() && longest < CHUNK_BYTES + 1_000, "{shape:?} {media:?}: {longest}");
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
            }
        }
    }

    #[tokio::test]
    async fn a_long_list_that_nobody_reads_is_not_made() {
        for (media, shape) in
            [(Media::Json, Shape::Table(V1)), (Media::Yaml, Shape::Whole), (Media::Protobuf, Shape::Whole)]
        {
            let writer = ListWriter::new(form(shape, false), media, false, &json!({}), entries(3_000)).await;
            let mut writer = writer.expect("it has this form");
            assert_eq!(writer.entries.len(), 3_000, "{media:?}");
            writer.chunk();
            assert!(1_000 < writer.entries.len() && writer.entries.len() < 3_000, "{media:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_which_nothing_is_taken_for_long_is_cut_off_and_does_not_end() {
        let body = async || {
            let writer =
                ListWriter::new(form(Shape::Whole, true), Media::Json, false, &json!({}), entries(3_000))
                    .await;
            writer.expect("it has this form").into_body(Duration::from_secs(90))
        };
        let (mut slow, mut bytes) = (body().await, Vec::new());
        while let Some(frame) = slow.frame().await {
            bytes.extend(frame.expect("it is taken in time").into_data().expect("data"));
            tokio::time::sleep(Duration::from_secs(80)).await;
        }
        let whole: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(whole["items"].as_array().map(Vec::len), Some(3_000));
        let mut stalled = body().await;
        assert!(stalled.frame().await.is_some_and(|frame| frame.is_ok()));
        tokio::time::sleep(Duration::from_secs(181)).await;
        let error = stalled.frame().await.expect("no end").expect_err("cut off");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn short_rows_of_long_objects_are_made_a_few_at_a_time() {
        let shape = EntryShape::new("v1", "ConfigMap", true, &[]);
        let long = json!({ "metadata": { "name": "m" }, "data": { "a": "x".repeat(READ_BYTES / 2) } });
        let object = long.as_object().cloned().unwrap_or_default();
        let entry = Entry::new(&shape, "a/m", object, 5).expect("an object");
        let table = form(Shape::Table(V1), false);
        let entries = vec![entry; 20];
        let writer = ListWriter::new(table, Media::Json, false, &json!({}), entries).await;
        let mut writer = writer.expect("it has this form");
        let chunks: Vec<Bytes> = std::iter::from_fn(|| writer.chunk()).collect();
        assert!(10 <= chunks.len(), "{}", chunks.len());
    }
}
