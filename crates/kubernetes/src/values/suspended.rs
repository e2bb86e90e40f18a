//! What may change in the template of a Job of which nothing runs: a queue lets a suspended Job go on once it
//! knows where its pods run and what they get.

use crate::object::Object;
use serde_json::{Map, Value, json};

/// Whether a Job as it is stored is suspended, has no pods, and never had any or says that they are gone.
pub fn may_move(job: &Object) -> bool {
    let field = |holder: &str, name: &str| job.get(holder).and_then(|value| value.get(name));
    let is_suspended = field("spec", "suspend") == Some(&json!(true));
    let is_idle = field("status", "active").is_none_or(|active| active.is_null() || *active == json!(0));
    let is_new = field("status", "startTime").is_none_or(Value::is_null);
    let conditions = field("status", "conditions").and_then(Value::as_array);
    let is_stopped = conditions
        .is_some_and(|all| all.iter().any(|each| each["type"] == "Suspended" && each["status"] == "True"));
    is_suspended && is_idle && (is_new || is_stopped)
}

/// Takes out of a template what may change then.
pub fn forget_place(template: &mut Value) {
    let Value::Object(template) = template else { return };
    forget(template, "metadata", &["labels", "annotations"]);
    let Some(Value::Object(spec)) = template.get_mut("spec") else { return };
    forget(spec, "affinity", &["nodeAffinity"]);
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        spec.remove(name);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.filter_map(Value::as_object_mut).for_each(|container| drop(container.remove("resources")));
    }
}

/// A holder that holds nothing else goes as well.
fn forget(fields: &mut Map<String, Value>, holder: &str, names: &[&str]) {
    let Some(Value::Object(held)) = fields.get_mut(holder) else { return };
    held.retain(|name, _| !names.contains(&name.as_str()));
    if held.is_empty() {
        fields.remove(holder);
    }
}
