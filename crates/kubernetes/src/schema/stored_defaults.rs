//! The defaults of the version in which objects are stored, as they are filled in whenever one is read from
//! the store: a default that came with a later schema holds for the objects from before it too.

use super::{Additional, Schema};
use crate::fingerprint::Fingerprint;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Two are equal that were made of the same schema.
pub struct StoredDefaults {
    schema: Schema,
    name: String,
}

impl StoredDefaults {
    /// `None` for a schema without defaults, and for one that cannot be read.
    pub fn of(given: &Value) -> Option<Arc<StoredDefaults>> {
        if !mentions_default(given) {
            return None;
        }
        let schema = Schema::parse_stored(given, "openAPIV3Schema").ok().filter(has_defaults)?;
        let name = Fingerprint::of(given.to_string().as_bytes()).to_string();
        Some(Arc::new(StoredDefaults { schema, name }))
    }

    pub fn fill(&self, object: &mut Map<String, Value>) {
        self.schema.fill_map(object);
    }
}

impl PartialEq for StoredDefaults {
    fn eq(&self, other: &StoredDefaults) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for StoredDefaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredDefaults({})", self.name)
    }
}

/// Whether it is worth reading. A property may be called so and mean nothing by it.
fn mentions_default(given: &Value) -> bool {
    match given {
        Value::Object(fields) => fields.contains_key("default") || fields.values().any(mentions_default),
        Value::Array(items) => items.iter().any(mentions_default),
        _ => false,
    }
}

fn has_defaults(schema: &Schema) -> bool {
    let like = match &schema.additional {
        Additional::Like(like) => Some(&**like),
        Additional::None | Additional::Any => None,
    };
    let mut below = schema.properties.values().chain(schema.items.as_deref()).chain(like);
    schema.default.is_some() || below.any(has_defaults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(property: Value) -> Value {
        json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": { "size": property } },
        } })
    }

    #[test]
    fn only_a_schema_with_defaults_has_some() {
        assert_eq!(StoredDefaults::of(&schema(json!({ "type": "integer" }))), None);
        let named = json!({ "type": "object", "properties": { "default": { "type": "integer" } } });
        assert_eq!(StoredDefaults::of(&schema(named)), None);
        assert_eq!(StoredDefaults::of(&schema(json!({ "type": "no such", "default": 1 }))), None);
        let three = StoredDefaults::of(&schema(json!({ "type": "integer", "default": 3 })));
        let four = StoredDefaults::of(&schema(json!({ "type": "integer", "default": 4 })));
        assert!(three.is_some() && three != four);
        assert_eq!(three, StoredDefaults::of(&schema(json!({ "type": "integer", "default": 3 }))));
        let mut object = json!({ "spec": {} });
        three.expect("there are").fill(object.as_object_mut().expect("an object"));
        assert_eq!(object, json!({ "spec": { "size": 3 } }));
        let list = json!({ "type": "array", "items": {
            "type": "object", "properties": { "a": { "type": "string", "default": "b" } },
        } });
        assert!(StoredDefaults::of(&schema(list)).is_some());
    }
}
