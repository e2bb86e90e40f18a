//! A list in protobuf, written item by item: its envelope says how long it is before its first item, so
//! whoever writes one so has to know how long all of them are.

use super::wire::Writer;
use super::{MAGIC, encode_message, of_type};
use crate::published::{self, Message, Shape, Type};
use serde_json::{Map, Value};

#[derive(Debug)]
pub struct ListEncoder {
    api_version: String,
    kind: String,
    message: &'static Message,
    /// The field of the list that holds its items.
    number: u32,
    item: &'static Message,
}

impl ListEncoder {
    /// `None` if lists of this kind have no such form.
    pub fn of(api_version: &str, kind: &str) -> Option<ListEncoder> {
        let message = published::message(api_version, kind)?;
        let items = message.field("items").filter(|field| field.shape == Shape::List)?;
        let Type::Message(item) = items.of else { return None };
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Some(ListEncoder { api_version, kind, message, number: items.number, item })
    }

    /// All that comes before the first item. `items_bytes`: of all items together.
    pub fn head(&self, metadata: &Value, items_bytes: usize) -> Vec<u8> {
        let list: Map<String, Value> = [("metadata".to_owned(), metadata.clone())].into_iter().collect();
        let list = encode_message(self.message, &list).finish();
        let mut envelope = Writer::default();
        envelope.message(1, of_type(&self.api_version, &self.kind));
        envelope.announce(2, list.len() + items_bytes);
        [MAGIC, &envelope.finish(), &list].concat()
    }

    pub fn item(&self, object: &Value) -> Vec<u8> {
        let mut writer = Writer::default();
        if let Value::Object(fields) = object {
            writer.message(self.number, encode_message(self.item, fields));
        }
        writer.finish()
    }

    /// All that comes after the last item.
    pub fn tail(&self) -> Vec<u8> {
        let mut envelope = Writer::default();
        envelope.text(3, "");
        envelope.text(4, "");
        envelope.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn item_by_item_is_the_same_as_in_one() {
        let items = json!([
            { "metadata": { "name": "a" }, "data": { "x": "y" } },
            { "metadata": { "name": "b" } },
            {},
        ]);
        let metadata = json!({ "resourceVersion": "9", "continue": "c" });
        let whole = json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata.clone(), "items": items.clone(),
        });
        let encoder = ListEncoder::of("v1", "ConfigMapList").expect("it has a form");
        let items: Vec<u8> =
            items.as_array().expect("a list").iter().flat_map(|item| encoder.item(item)).collect();
        let pieces = [encoder.head(&metadata, items.len()), items, encoder.tail()].concat();
        assert_eq!(Some(pieces), super::super::encode(&whole));
        assert!(ListEncoder::of("v1", "ConfigMap").is_none() && ListEncoder::of("x/v1", "AList").is_none());
    }
}
