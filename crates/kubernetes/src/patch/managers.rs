//! `metadata.managedFields`: who wrote which fields of an object last.
//!
//! An applier owns what it applied last; an updater owns what it changed. The entries of updaters are
//! bounded in number: past it the oldest are laid together.

use super::field_set::FieldSet;
use crate::object::Object;
use crate::published::typed;
use crate::timestamp::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Entries of updaters in one object.
pub const UPDATERS_MAX: usize = 10;
/// Who the oldest updates are laid to.
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One writer: the same person is another one by another way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// As a message names it.
    pub fn show(&self, time: &str) -> String {
        let mut shown = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            shown.push_str(&format!(" using {}", self.api_version));
            if !time.is_empty() {
                shown.push_str(&format!(" at {time}"));
            }
        }
        shown
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    pub fields: FieldSet,
    /// Of the last change, as it is written; may be empty.
    pub time: String,
}

/// All writers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(pub BTreeMap<Manager, Owned>);

impl Managers {
    /// `None`: some entry is not written as one.
    pub fn decode(entries: &[Value]) -> Option<Managers> {
        let mut managers = BTreeMap::new();
        for entry in entries {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let manager = Manager {
                name: text("manager"),
                operation,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let none = Value::Object(Map::new());
            let fields =
                FieldSet::decode(entry.get("fieldsV1").filter(|set| !set.is_null()).unwrap_or(&none))?;
            // A time that no client in Go could read is as none.
            let time = Some(text("time")).filter(|time| typed::is_time(time)).unwrap_or_default();
            managers.insert(manager, Owned { fields, time });
        }
        Some(Managers(managers))
    }

    /// Those of an object; none where they cannot be read.
    pub fn of(object: &Object) -> Managers {
        Managers::decode(object.managed_fields()).unwrap_or_default()
    }

    /// Appliers first, then by time.
    pub fn encode(&self) -> Vec<Value> {
        let mut all: Vec<(&Manager, &Owned)> = self.0.iter().collect();
        all.sort_by_key(|(manager, owned)| (manager.operation, owned.time.as_str(), *manager));
        all.into_iter().map(|(manager, owned)| entry(manager, owned)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What everybody but `one` has.
    pub fn others(&self, one: &Manager) -> FieldSet {
        let mut all = FieldSet::default();
        for (_, owned) in self.0.iter().filter(|(manager, _)| *manager != one) {
            all.add(&owned.fields);
        }
        all
    }

    /// Takes fields from everybody but `one`. Who has none left is gone.
    pub fn take(&mut self, fields: &FieldSet, one: &Manager) {
        self.0.retain(|manager, owned| {
            if manager != one {
                owned.fields.subtract(fields);
            }
            !owned.fields.is_empty()
        });
    }

    /// Lays the oldest updaters of each version together until there are few enough.
    pub fn cap(&mut self) {
        let mut updaters: Vec<(String, Manager)> = self
            .0
            .iter()
            .filter(|(manager, _)| manager.operation == Operation::Update)
            .map(|(manager, owned)| (owned.time.clone(), manager.clone()))
            .collect();
        updaters.sort();
        let mut count = updaters.len();
        let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
        for (_, manager) in updaters {
            if count <= UPDATERS_MAX {
                return;
            }
            let bucket = Manager {
                name: ANCIENT.to_owned(),
                operation: Operation::Update,
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            };
            let Some(first) = first_of.get(&manager.api_version) else {
                first_of.insert(manager.api_version.clone(), manager);
                continue;
            };
            // Two become one; the first of a version is renamed when a second joins it.
            let mut joined = self.0.remove(first).unwrap_or_default();
            if let Some(more) = self.0.remove(&manager) {
                joined.fields.add(&more.fields);
                joined.time = more.time;
            }
            first_of.insert(manager.api_version.clone(), bucket.clone());
            let place = self.0.entry(bucket).or_default();
            place.fields.add(&joined.fields);
            place.time = joined.time;
            count -= 1;
        }
    }
}

fn entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = json!({
        "manager": manager.name, "operation": manager.operation.name(), "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1", "fieldsV1": owned.fields.encode(),
    });
    for (field, value) in [("time", &owned.time), ("subresource", &manager.subresource)] {
        if !value.is_empty() {
            entry[field] = json!(value);
        }
    }
    entry
}

/// The time of a change made now.
pub fn stamp(now: Timestamp) -> String {
    now.to_seconds().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(name: &str, second: i64, field: &str) -> Value {
        json!({
            "manager": name, "operation": "Update", "apiVersion": "v1", "time": stamp(Timestamp { seconds: second, nanos: 0 }),
            "fieldsType": "FieldsV1", "fieldsV1": { format!("f:{field}"): {} },
        })
    }

    #[test]
    fn entries_are_read_and_written_in_one_order() {
        let apply = json!({
            "manager": "z", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:a": {} }, "subresource": "status",
        });
        let entries = [update("b", 2, "x"), update("a", 3, "y"), apply.clone()];
        let read = Managers::decode(&entries).expect("good entries");
        assert_eq!(read.encode(), [apply, update("b", 2, "x"), update("a", 3, "y")]);
        let mut strange = update("a", 1, "x");
        strange["time"] = json!("yesterday");
        let read = Managers::decode(&[strange]).expect("a good entry").encode();
        assert_eq!((&read[0]["manager"], read[0].get("time")), (&json!("a"), None));
        assert_eq!(Managers::decode(&[json!({})]), None);
        assert_eq!(Managers::decode(&[json!({ "operation": "Update", "fieldsV1": { "bad": {} } })]), None);
    }

    #[test]
    fn the_oldest_updates_are_laid_together() {
        let entries: Vec<Value> = (0..15).map(|n| update(&format!("m{n}"), n, &format!("f{n}"))).collect();
        let mut managers = Managers::decode(&entries).expect("good entries");
        let before = managers.others(&Manager {
            name: String::new(),
            operation: Operation::Apply,
            api_version: String::new(),
            subresource: String::new(),
        });
        managers.cap();
        assert_eq!(managers.0.len(), UPDATERS_MAX);
        let ancient = managers.0.iter().find(|(manager, _)| manager.name == ANCIENT).expect("a bucket");
        assert_eq!(ancient.1.fields.paths().len(), 6);
        assert_eq!(ancient.1.time, "1970-01-01T00:00:05Z");
        let mut after = FieldSet::default();
        managers.0.values().for_each(|owned| after.add(&owned.fields));
        assert_eq!(after, before, "no field loses its owner");
        let once = managers.clone();
        managers.cap();
        assert_eq!(managers, once);
    }

    #[test]
    fn who_has_nothing_left_is_gone() {
        let mut managers = Managers::decode(&[update("a", 1, "x"), update("b", 1, "x")]).expect("good");
        let one = managers.0.keys().next().expect("one").clone();
        managers.take(&FieldSet::decode(&json!({ "f:x": {} })).expect("good"), &one);
        assert_eq!(managers.0.keys().collect::<Vec<_>>(), [&one]);
    }
}
