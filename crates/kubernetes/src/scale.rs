//! The scale of an object: how many replicas it wants and has, seen as an `autoscaling/v1` Scale.
//!
//! A CRD says by simple paths (`.spec.replicas`) where these numbers live in its objects. A Scale is made
//! from an object and put back into it; nothing but the number of wanted replicas and, as a precondition,
//! uid and resourceVersion is taken from what a client sends.

use crate::json_path::JsonPath;
use crate::object::Object;
use crate::registry::ScalePaths;
use crate::status::{Cause, Refusal};
use serde_json::{Map, Value, json};

impl ScalePaths {
    /// The Scale of an object.
    pub fn of(&self, object: &Object) -> Result<Value, Refusal> {
        let replicas = |path: &JsonPath| find(path, object).filter(|value| !value.is_null());
        let wanted = match replicas(&self.spec_replicas) {
            None => 0,
            Some(value) => value.as_i64().filter(|count| i32::try_from(*count).is_ok()).ok_or_else(|| {
                Refusal::bad_request(format!("the replicas that {:?} wants are no number", object.name()))
            })?,
        };
        let has = replicas(&self.status_replicas).and_then(Value::as_i64).unwrap_or_default();
        let mut metadata = Map::new();
        for (field, value) in [
            ("name", object.name()),
            ("namespace", object.namespace()),
            ("uid", object.uid()),
            ("resourceVersion", object.resource_version()),
            ("creationTimestamp", object.creation_timestamp()),
        ] {
            if !value.is_empty() {
                metadata.insert(field.to_owned(), json!(value));
            }
        }
        let mut status = json!({ "replicas": has });
        if let Some(selector) = self.selector(object) {
            status["selector"] = json!(selector);
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": metadata, "spec": { "replicas": wanted }, "status": status,
        }))
    }

    fn selector(&self, object: &Object) -> Option<String> {
        match find(self.selector.as_ref()?, object)? {
            Value::String(text) => Some(text.clone()),
            selector => selector_text(selector),
        }
    }

    /// The object with the number of replicas that `scale` wants. What the client knows of uid and
    /// resourceVersion is taken along for the write rules to compare.
    pub fn put(&self, object: &Object, scale: &Value) -> Result<Object, Refusal> {
        if scale.get("kind").is_some_and(|kind| kind != "Scale") {
            return Err(Refusal::bad_request("the object is no Scale"));
        }
        let (sent, _) = Object::decode(scale.clone())?;
        if !sent.name().is_empty() && sent.name() != object.name() {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                sent.name(),
                object.name()
            )));
        }
        let replicas = match sent.get("spec").and_then(|spec| spec.get("replicas")) {
            None | Some(Value::Null) => 0,
            Some(value) => value
                .as_i64()
                .filter(|count| i32::try_from(*count).is_ok())
                .ok_or_else(|| Refusal::bad_request("spec.replicas must be an integer of 32 bits"))?,
        };
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let causes = vec![Cause::invalid("spec.replicas", &json!(replicas), why)];
            return Err(Refusal::invalid("autoscaling", "Scale", object.name(), causes));
        }
        let mut value = object.to_value();
        if !set(&self.spec_replicas, &mut value, json!(replicas)) {
            return Err(Refusal::bad_request("the object has no place for the number of its replicas"));
        }
        let (mut changed, _) = Object::decode(value)?;
        if !sent.resource_version().is_empty() {
            changed.set_resource_version(sent.resource_version());
        }
        if !sent.uid().is_empty() {
            changed.set_uid(sent.uid());
        }
        Ok(changed)
    }
}

/// Lists are not walked: a path through one leads to nothing.
fn find<'a>(path: &JsonPath, object: &'a Object) -> Option<&'a Value> {
    let fields = path.fields()?;
    let (first, rest) = fields.split_first()?;
    rest.iter().try_fold(object.get(first)?, |place, field| place.get(field))
}

/// Makes the maps on the way that are missing. `false`: something on the way is no map.
fn set(path: &JsonPath, root: &mut Value, value: Value) -> bool {
    let Some(fields) = path.fields().filter(|fields| !fields.is_empty()) else { return false };
    let mut place = root;
    for field in fields {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(map) = place else { return false };
        place = map.entry(field).or_insert(Value::Null);
    }
    *place = value;
    true
}

/// A label selector object in the text form, equalities and sets in the order of their keys.
fn selector_text(selector: &Value) -> Option<String> {
    // A ReplicationController's selector is a map of labels itself.
    let labels = match selector.get("matchLabels") {
        Some(labels) => Some(labels),
        None if selector.get("matchExpressions").is_none() => Some(selector),
        None => None,
    };
    let mut terms = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", value.as_str()?)));
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = expression.get("key")?.as_str()?;
        let values = expression.get("values").and_then(Value::as_array);
        let mut values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression.get("operator")?.as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    if terms.is_empty() { None } else { Some(terms.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn object(value: Value) -> Object {
        Object::decode(value).expect("a good object").0
    }

    fn paths() -> ScalePaths {
        let path = |text: &str| JsonPath::parse(text).expect("a path");
        ScalePaths {
            spec_replicas: path(".spec.size.wanted"),
            status_replicas: path(".status.size"),
            selector: Some(path(".status.selector")),
        }
    }

    #[test]
    fn an_object_is_seen_as_a_scale() {
        let seen = paths().of(&object(json!({
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": { "x": "y" } },
            "spec": { "size": { "wanted": 3 } }, "status": { "size": 2, "selector": "app=a" },
        })));
        let expected = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "replicas": 3 }, "status": { "replicas": 2, "selector": "app=a" },
        });
        assert_eq!(seen, Ok(expected));
        let bare = paths().of(&object(json!({ "metadata": { "name": "a" } }))).expect("a scale");
        assert_eq!((&bare["spec"]["replicas"], &bare["status"]), (&json!(0), &json!({ "replicas": 0 })));
        let odd = json!({ "spec": { "size": { "wanted": "many" } } });
        assert_eq!(paths().of(&object(odd)).expect_err("no number").code(), 400);
    }

    #[test]
    fn a_scale_is_put_back_and_changes_nothing_else() {
        let before = object(json!({
            "metadata": { "name": "a", "resourceVersion": "7", "uid": "u" }, "spec": { "other": 1 },
        }));
        let sent = json!({ "metadata": { "name": "a", "resourceVersion": "5" }, "spec": { "replicas": 4 }, "status": { "replicas": 99 } });
        let after = paths().put(&before, &sent).expect("a good scale");
        assert_eq!(after.get("spec"), Some(&json!({ "other": 1, "size": { "wanted": 4 } })));
        assert_eq!((after.get("status"), after.resource_version(), after.uid()), (None, "5", "u"));
        let blind = paths().put(&before, &json!({ "spec": { "replicas": 4 } })).expect("a good scale");
        assert_eq!(blind.resource_version(), "7", "who names no version takes the one that is there");
        let mut again = paths().of(&after).expect("a scale");
        again["spec"]["replicas"] = json!(9);
        let round = paths().put(&after, &again).expect("a good scale");
        assert_eq!(paths().of(&round).expect("a scale")["spec"]["replicas"], 9);
    }

    #[test]
    fn bad_scales_are_refused() {
        let before = object(json!({ "metadata": { "name": "a" }, "spec": { "size": 3 } }));
        let put = |sent: Value| paths().put(&before, &sent).expect_err("a refusal").code();
        assert_eq!(put(json!({ "spec": { "replicas": -1 } })), 422);
        assert_eq!(put(json!({ "spec": { "replicas": "3" } })), 400);
        assert_eq!(put(json!({ "spec": { "replicas": 3_000_000_000_u64 } })), 400);
        assert_eq!(put(json!({ "metadata": { "name": "b" } })), 400);
        assert_eq!(put(json!({ "kind": "Pod" })), 400);
        assert_eq!(put(json!({ "spec": { "replicas": 1 } })), 400, "spec.size is no map");
    }

    #[test]
    fn a_path_that_is_not_simple_is_never_written_to() {
        let object = object(json!({ "metadata": { "name": "a" }, "spec": { "sizes": [1] } }));
        for text in [".spec.sizes[0]", "", ".spec.*"] {
            let spec_replicas = JsonPath::parse(text).expect("a path");
            let odd = ScalePaths { spec_replicas, ..paths() };
            assert_eq!(odd.of(&object).expect("a scale")["spec"]["replicas"], 0, "{text}");
            let put = odd.put(&object, &json!({ "spec": { "replicas": 2 } }));
            assert_eq!(put.expect_err("no place").code(), 400, "{text}");
        }
    }

    #[test]
    fn the_selector_of_a_deployment_is_written_out() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("apps", "v1", "deployments").expect("built in");
        let usual = kind.subresources.scale.as_ref().expect("scales");
        let seen = usual.of(&object(json!({ "spec": { "selector": {
            "matchLabels": { "b": "2" },
            "matchExpressions": [
                { "key": "a", "operator": "In", "values": ["y", "x"] },
                { "key": "c", "operator": "DoesNotExist" },
            ],
        } } })));
        assert_eq!(seen.expect("a scale")["status"]["selector"], "a in (x,y),b=2,!c");
    }
}
