//! A workload's selector: it says something, and chooses what its template makes.

use crate::object::Object;
use crate::status::Cause;
use serde_json::{Map, Value};

const FIELD: &str = "spec.selector";

pub fn causes(group: &str, kind: &str, object: &Object) -> Vec<Cause> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let given = spec.get("selector").filter(|selector| !selector.is_null());
    let labels = spec.pointer("/template/metadata/labels").unwrap_or(&Value::Null);
    let (wrong, is_chosen) = match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            let name = if kind == "ReplicaSet" { "deployment".to_owned() } else { kind.to_lowercase() };
            match given {
                None => (vec![Cause::required(FIELD, "")], true),
                Some(selector) if is_empty(selector) => {
                    let why = format!("empty selector is invalid for {name}");
                    (vec![Cause::invalid(FIELD, selector, &why)], true)
                }
                Some(selector) => (malformed(selector), matches(selector, labels)),
            }
        }
        ("", "ReplicationController") => match given.and_then(Value::as_object).filter(|map| !map.is_empty())
        {
            // Absent, it is what the template's labels are.
            None => (Vec::new(), true),
            Some(map) => (Vec::new(), has_all(map, labels)),
        },
        _ => return Vec::new(),
    };
    let mut causes = wrong;
    if causes.is_empty() && !is_chosen {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
    }
    causes
}

fn expressions(selector: &Value) -> &[Value] {
    selector.get("matchExpressions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn match_labels(selector: &Value) -> Option<&Map<String, Value>> {
    selector.get("matchLabels").and_then(Value::as_object)
}

fn is_empty(selector: &Value) -> bool {
    match_labels(selector).is_none_or(Map::is_empty) && expressions(selector).is_empty()
}

fn malformed(selector: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, expression) in expressions(selector).iter().enumerate() {
        let at = |field: &str| format!("{FIELD}.matchExpressions[{index}].{field}");
        let count = expression.get("values").and_then(Value::as_array).map_or(0, Vec::len);
        match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
            "In" | "NotIn" if count == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(at("values"), why));
            }
            "Exists" | "DoesNotExist" if 0 < count => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(at("values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                causes.push(Cause::invalid(
                    at("operator"),
                    &Value::from(other),
                    "not a valid selector operator",
                ));
            }
        }
    }
    causes
}

fn has_all(wanted: &Map<String, Value>, labels: &Value) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Whether a label selector chooses an object with these labels.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let holds = |expression: &Value| {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let value = labels.get(key);
        let values = expression.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => value.is_some_and(|value| values.contains(value)),
            Some("NotIn") => value.is_none_or(|value| !values.contains(value)),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    };
    match_labels(selector).is_none_or(|wanted| has_all(wanted, labels))
        && expressions(selector).iter().all(holds)
}
