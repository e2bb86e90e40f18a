//! A set of fields of an object, as `managedFields` spells it.
//!
//! It is a tree of steps. A field is in the set if its node is a member; what lies below it may be, or not.
//! In JSON a step is `f:name` for a field, `k:{...}` for an element by its keys, `v:...` for an element by
//! its value and `i:n` by its place; a member that has nodes below it says so with `.`.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// From a value to one inside of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(String),
    /// Of a map's keys and their values, as JSON in the order of the keys.
    Key(String),
    /// As JSON.
    Value(String),
    Index(u64),
}

impl Step {
    fn decode(text: &str) -> Option<Step> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Step::Field(rest.to_owned())),
            // Spelt anew, so that equal keys are equal texts.
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Step::Key(Value::Object(keys).to_string()))
            }
            "v" => Some(Step::Value(serde_json::from_str::<Value>(rest).ok()?.to_string())),
            "i" => Some(Step::Index(rest.parse().ok()?)),
            _ => None,
        }
    }

    fn encode(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Key(keys) => format!("k:{keys}"),
            Step::Value(value) => format!("v:{value}"),
            Step::Index(index) => format!("i:{index}"),
        }
    }

    /// As a person reads it: `.name`, `[name="a"]`, `[="a"]`, `[3]`.
    fn show(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Step::Field(name) => write!(out, ".{name}"),
            Step::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(out, "[{}]", keys.join(","))
            }
            Step::Value(value) => write!(out, "[={value}]"),
            Step::Index(index) => write!(out, "[{index}]"),
        };
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub member: bool,
    pub children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// The set of the one place where it stands.
    pub fn leaf() -> FieldSet {
        FieldSet { member: true, children: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(FieldSet::is_empty)
    }

    pub fn child(&self, step: &Step) -> Option<&FieldSet> {
        self.children.get(step)
    }

    /// Puts a set below a step, unless it is empty.
    pub fn insert(&mut self, step: Step, set: FieldSet) {
        if !set.is_empty() {
            self.children.entry(step).or_default().add(&set);
        }
    }

    pub fn add(&mut self, other: &FieldSet) {
        self.member |= other.member;
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().add(child);
        }
    }

    pub fn subtract(&mut self, other: &FieldSet) {
        self.member &= !other.member;
        self.children.retain(|step, child| {
            if let Some(other) = other.children.get(step) {
                child.subtract(other);
            }
            !child.is_empty()
        });
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet { member: self.member && other.member, children: BTreeMap::new() };
        for (step, child) in &self.children {
            if let Some(other) = other.children.get(step) {
                both.insert(step.clone(), child.intersection(other));
            }
        }
        both
    }

    /// Forgets a field and all below it.
    pub fn forget(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let step = Step::Field((*first).to_owned());
        if rest.is_empty() {
            self.children.remove(&step);
        } else if let Some(child) = self.children.get_mut(&step) {
            child.forget(rest);
            if child.is_empty() {
                self.children.remove(&step);
            }
        }
    }

    /// The paths of all members.
    pub fn paths(&self) -> Vec<String> {
        let (mut paths, mut path) = (Vec::new(), String::new());
        self.collect(&mut path, &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        if self.member {
            paths.push(path.clone());
        }
        for (step, child) in &self.children {
            let length = path.len();
            step.show(path);
            child.collect(path, paths);
            path.truncate(length);
        }
    }

    /// `fieldsV1`. `None`: it is not written as one.
    pub fn decode(value: &Value) -> Option<FieldSet> {
        let mut set = FieldSet::default();
        for (key, value) in value.as_object()? {
            if key == "." {
                set.member = true;
                continue;
            }
            let mut child = FieldSet::decode(value)?;
            // Nothing is said below it: then it is itself what is meant.
            child.member |= child.children.is_empty();
            set.children.insert(Step::decode(key)?, child);
        }
        Some(set)
    }

    pub fn encode(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            map.insert(step.encode(), child.encode());
        }
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn set(value: Value) -> FieldSet {
        FieldSet::decode(&value).expect("a good set")
    }

    #[test]
    fn sets_are_read_and_written_as_clients_spell_them() {
        let value = json!({
            "f:metadata": { "f:labels": { ".": {}, "f:a": {} }, "f:finalizers": { "v:\"x/y\"": {} } },
            "f:spec": { "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {} } }, "f:l": { "i:3": {} } },
        });
        let read = set(value.clone());
        assert_eq!(read.encode(), value);
        let expected = [
            ".metadata.finalizers[=\"x/y\"]",
            ".metadata.labels",
            ".metadata.labels.a",
            ".spec.l[3]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"].name",
        ];
        assert_eq!(read.paths(), expected);
        let other_order = json!({ "f:ports": { "k:{\"protocol\":\"TCP\",\"containerPort\":80}": {} } });
        assert_eq!(set(other_order).paths(), [".ports[containerPort=80,protocol=\"TCP\"]"]);
    }

    #[test]
    fn what_is_no_set_is_not_read() {
        for bad in [
            json!([]),
            json!({ "x:a": {} }),
            json!({ "f": {} }),
            json!({ "k:a": {} }),
            json!({ "f:a": 1 }),
            json!({ "i:x": {} }),
        ] {
            assert_eq!(FieldSet::decode(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_field_is_forgotten_with_all_below_it() {
        let mut all = set(json!({ "f:a": { "f:b": { "f:c": {} } }, "f:d": {} }));
        all.forget(&["a", "b"]);
        assert_eq!(all, set(json!({ "f:d": {} })));
    }

    #[test]
    fn set_algebra_agrees_with_sets_of_paths() {
        let mut random = StdRng::seed_from_u64(5);
        let some = |random: &mut StdRng| {
            let mut all = FieldSet::default();
            for _ in 0..random.random_range(0..8) {
                let mut place = &mut all;
                for _ in 0..random.random_range(1..4) {
                    let name = ["a", "b", "c"][random.random_range(0..3)];
                    place = place.children.entry(Step::Field(name.to_owned())).or_default();
                }
                place.member = true;
            }
            all
        };
        let paths = |set: &FieldSet| set.paths().into_iter().collect::<BTreeSet<_>>();
        for _ in 0..3_000 {
            let (left, right) = (some(&mut random), some(&mut random));
            let (mut sum, mut rest) = (left.clone(), left.clone());
            sum.add(&right);
            rest.subtract(&right);
            assert_eq!(paths(&sum), &paths(&left) | &paths(&right));
            assert_eq!(paths(&rest), &paths(&left) - &paths(&right));
            assert_eq!(paths(&left.intersection(&right)), &paths(&left) & &paths(&right));
            assert_eq!(rest.is_empty(), paths(&rest).is_empty());
            assert_eq!(FieldSet::decode(&left.encode()), Some(left));
        }
    }
}
