//! What of an object cannot change any more: the contents of a ConfigMap or Secret that says so of itself, and
//! the type of every Secret. Its metadata can change, and it can be deleted.

use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::published::meaning;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Cause;
use serde_json::{Value, json};

const SET: &str = "field is immutable when `immutable` is set";
/// The type of a Secret that names none.
const OPAQUE: &str = "Opaque";

/// The fields of a kind that `immutable` holds.
fn held(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => &["data", "binaryData"],
        ("", "Secret") => &["data"],
        _ => &[],
    }
}

fn is_secret(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Secret"
}

/// A Secret that comes without a type keeps the one it has.
pub(super) fn keep_type(stored: &Object, object: &mut Object, kind: &Kind) {
    let says_nothing = object.get("type").is_none_or(|named| named.is_null() || named == "");
    if is_secret(kind) && says_nothing {
        object.set("type", stored.get("type").cloned());
    }
}

/// Which of the changes may not be.
pub(super) fn causes(stored: &Object, object: &Object, kind: &Kind) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_secret(kind) && secret_type(stored) != secret_type(object) {
        causes.push(Cause::invalid("type", &secret_type(object), "field is immutable"));
    }
    let fields = held(kind);
    if fields.is_empty() || !is_immutable(stored) {
        return causes;
    }
    if !is_immutable(object) {
        causes.push(Cause::forbidden("immutable", SET));
    }
    let contents = |object: &Object, field: &str| {
        kind.published().map(|message| meaning::at(message, object.as_map(), field))
    };
    let changed = fields.iter().filter(|field| contents(stored, field) != contents(object, field));
    causes.extend(changed.map(|field| Cause::forbidden(*field, SET)));
    causes
}

fn is_immutable(object: &Object) -> bool {
    object.get("immutable") == Some(&Value::Bool(true))
}

fn secret_type(secret: &Object) -> Value {
    match secret.get("type") {
        Some(named) if !named.is_null() && named != "" => named.clone(),
        _ => json!(OPAQUE),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::object;
    use super::*;
    use meerkat_kubernetes::registry::Registry;

    fn kind(plural: &str) -> Kind {
        let registry = Registry::built_in();
        (**registry.by_resource("", "v1", plural).expect("built in")).clone()
    }

    fn told(plural: &str, stored: Value, sent: Value) -> Vec<String> {
        let causes = causes(&object(stored), &object(sent), &kind(plural));
        causes.into_iter().map(|cause| format!("{} {}", cause.reason, cause.field)).collect()
    }

    #[test]
    fn what_is_immutable_keeps_its_contents_and_stays_so() {
        let stored = || json!({ "data": { "a": "1" }, "binaryData": { "b": "Yg==" }, "immutable": true });
        for (sent, refused) in [
            (stored(), vec![]),
            (json!({ "data": { "a": "2" }, "binaryData": { "b": "Yg==" }, "immutable": true }), vec!["data"]),
            (json!({ "data": { "a": "1" }, "immutable": true }), vec!["binaryData"]),
            (
                json!({ "data": { "a": "1" }, "binaryData": { "b": "Yg==" }, "immutable": false }),
                vec!["immutable"],
            ),
            (json!({}), vec!["immutable", "data", "binaryData"]),
        ] {
            let refused: Vec<String> =
                refused.iter().map(|field| format!("FieldValueForbidden {field}")).collect();
            assert_eq!(told("configmaps", stored(), sent.clone()), refused, "{sent}");
        }
        let free = json!({ "data": { "a": "1" } });
        assert!(told("configmaps", free.clone(), stored()).is_empty(), "it may become immutable");
        assert!(told("configmaps", free, json!({})).is_empty());
        let (empty, none) = (json!({ "data": {}, "immutable": true }), json!({ "immutable": true }));
        assert!(told("configmaps", empty.clone(), none.clone()).is_empty());
        assert!(told("configmaps", none, empty).is_empty());
        let folded = json!({ "binaryData": { "b": "Yg==\n" }, "immutable": true });
        let canonical = json!({ "binaryData": { "b": "Yg==" }, "immutable": true });
        assert!(told("configmaps", folded, canonical).is_empty(), "the same bytes");
        let odd = json!({ "immutable": true, "data": 1 });
        assert!(told("services", odd, json!({})).is_empty(), "it means something to two kinds only");
    }

    #[test]
    fn a_secret_keeps_its_type() {
        let typed = |name: &str| json!({ "type": name });
        assert_eq!(told("secrets", typed("a"), typed("b")), ["FieldValueInvalid type"]);
        assert_eq!(told("secrets", json!({}), typed("b")), ["FieldValueInvalid type"]);
        assert!(told("secrets", json!({}), typed("Opaque")).is_empty());
        let mut sent = object(json!({}));
        keep_type(&object(typed("a")), &mut sent, &kind("secrets"));
        assert_eq!(sent.get("type"), Some(&json!("a")));
        assert_eq!(
            told(
                "secrets",
                json!({ "data": { "a": "YQ==" }, "immutable": true }),
                json!({ "data": { "a": "Yg==" }, "immutable": true })
            ),
            ["FieldValueForbidden data"]
        );
    }
}
