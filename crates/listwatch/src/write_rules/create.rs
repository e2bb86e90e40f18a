//! The rules of a create.

use super::{Decision, Write, invalid, is_phased, settle_namespace, settle_type, stored_bytes};
use meerkat_kubernetes::excerpt::head;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::object::check;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{GroupResource, Refusal};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_kubernetes::values;
use serde_json::{Value, json};

/// How often a generated name that is taken is made anew.
pub const GENERATED_NAME_ATTEMPTS: u32 = 8;
const GENERATED_BASE_LENGTH_MAX: usize = 58;
/// No vowels and nothing that looks like one: a generated name says no words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// On every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What a new object is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth<'a> {
    pub uid: &'a str,
    pub now: Timestamp,
    /// Ends a generated name: [`name_suffix`] of something random.
    pub name_suffix: &'a str,
}

/// `namespace`: of the path, empty where it has none. The object's own status is dropped where the kind's
/// status has an endpoint of its own.
pub fn before_create(
    mut object: Object,
    kind: &Kind,
    namespace: &str,
    birth: &Birth<'_>,
) -> Result<Decision, Refusal> {
    settle_type(&mut object, kind)?;
    if !object.resource_version().is_empty() {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if kind.is_namespaced() && namespace.is_empty() {
        return Err(Refusal::bad_request("an object of this kind is created in a namespace"));
    }
    settle_namespace(&mut object, kind, namespace)?;
    object.wipe_system_fields();
    object.set_uid(birth.uid);
    object.set_creation_timestamp(birth.now);
    if object.name().is_empty() && !object.generate_name().is_empty() {
        let name = generated_name(object.generate_name(), birth.name_suffix);
        object.set_name(&name);
    }
    if kind.subresources.status {
        object.set("status", None);
    }
    if kind.has_generation {
        object.set_generation(1);
    }
    if is_phased(kind) {
        begin_phases(&mut object);
    }
    let mut causes = check::metadata(&object, kind.name_rule, kind.is_namespaced());
    causes.extend(values::on_create(&object, kind));
    invalid(kind, object.name(), causes)?;
    if is_phased(kind) {
        // So that it can be chosen by its name where only labels are asked for.
        let name = object.name().to_owned();
        object.set_label(NAME_LABEL, &name);
    }
    Ok(Decision { write: Write::Create(stored_bytes(&object, kind)), object })
}

/// A namespace is emptied before it goes: that is what its own finalizer waits for.
fn begin_phases(object: &mut Object) {
    let mut spec = match object.get("spec") {
        Some(Value::Object(spec)) => spec.clone(),
        _ => serde_json::Map::new(),
    };
    let mut finalizers = match spec.get("finalizers") {
        Some(Value::Array(list)) => list.clone(),
        _ => Vec::new(),
    };
    if !finalizers.iter().any(|name| name == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    spec.insert("finalizers".to_owned(), Value::Array(finalizers));
    object.set("spec", Some(Value::Object(spec)));
    object.set("status", Some(json!({ "phase": "Active" })));
}

fn generated_name(base: &str, suffix: &str) -> String {
    format!("{}{suffix}", head(base, GENERATED_BASE_LENGTH_MAX))
}

/// Five letters from a random number.
pub fn name_suffix(mut random: u64) -> String {
    let count = SUFFIX_LETTERS.len() as u64;
    let mut letters = String::with_capacity(SUFFIX_LENGTH);
    for _ in 0..SUFFIX_LENGTH {
        letters.push(char::from(SUFFIX_LETTERS[(random % count) as usize]));
        random /= count;
    }
    letters
}

/// A UUID of version 4 from a random number.
pub fn uid(random: u128) -> String {
    let hex = format!("{:032x}", random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The answer to a create whose name is taken. `existing` is who took it, where that could be read.
pub fn name_taken(what: &GroupResource, name: &str, existing: Option<&Object>) -> Refusal {
    let mut refusal = Refusal::already_exists(what, name);
    if existing.is_some_and(Object::is_being_deleted) {
        refusal.message = format!("object is being deleted: {}", refusal.message);
    }
    refusal
}

/// The answer when every generated name was taken.
pub fn generated_name_taken(what: &GroupResource, name: &str) -> Refusal {
    let mut refusal = Refusal::already_exists(what, name);
    refusal.message.push_str(", the server was not able to generate a unique name for the object");
    refusal.retry_after_s = Some(1);
    refusal
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{namespace, object, read, widget};
    use super::*;
    use meerkat_kubernetes::registry::{Registry, Scope};

    const BIRTH: Birth<'static> =
        Birth { uid: "u-1", now: Timestamp { seconds: 0, nanos: 999 }, name_suffix: "x2b4z" };

    fn create(value: Value) -> Result<Decision, Refusal> {
        before_create(object(value), &widget(), "n", &BIRTH)
    }

    #[test]
    fn a_new_object_is_given_what_is_the_servers_to_give() {
        let decision = create(json!({
            "metadata": {
                "name": "a", "uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7,
                "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "selfLink": "/x",
                "labels": { "a": "b" },
            },
            "spec": { "x": 1 }, "status": { "x": 1 },
        }))
        .expect("a good object");
        let expected = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u-1", "creationTimestamp": "1970-01-01T00:00:00Z",
                "generation": 1, "labels": { "a": "b" },
            },
            "spec": { "x": 1 },
        });
        assert_eq!(read(&decision.write), expected);
        assert_eq!(decision.object.to_value(), expected);
    }

    #[test]
    fn without_a_status_endpoint_the_status_is_ordinary() {
        let mut kind = widget();
        kind.subresources.status = false;
        let sent = object(json!({ "metadata": { "name": "a" }, "status": { "x": 1 } }));
        let decision = before_create(sent, &kind, "n", &BIRTH).expect("good");
        assert_eq!(decision.object.get("status"), Some(&json!({ "x": 1 })));
    }

    #[test]
    fn the_namespace_is_the_paths() {
        let sent = json!({ "metadata": { "name": "a", "namespace": "other" } });
        assert_eq!(create(sent.clone()).expect_err("a mismatch").code(), 400);
        let none = before_create(object(json!({ "metadata": { "name": "a" } })), &widget(), "", &BIRTH);
        assert_eq!(none.expect_err("no namespace").code(), 400);
        let cluster = Kind { scope: Scope::Cluster, ..widget() };
        let decision = before_create(object(sent), &cluster, "", &BIRTH).expect("a good object");
        assert_eq!(decision.object.namespace(), "");
    }

    #[test]
    fn what_a_new_object_may_not_have() {
        for (sent, code) in [
            (json!({ "metadata": { "name": "a", "resourceVersion": "5" } }), 400),
            (json!({ "apiVersion": "example.com/v2", "metadata": { "name": "a" } }), 400),
            (json!({ "kind": "Gadget", "metadata": { "name": "a" } }), 400),
            (json!({ "metadata": {} }), 422),
            (json!({ "metadata": { "name": "A" } }), 422),
            (json!({ "metadata": { "name": "a", "labels": { "-": "" } } }), 422),
        ] {
            assert_eq!(create(sent.clone()).expect_err("a refusal").code(), code, "{sent}");
        }
        let refusal = create(json!({})).expect_err("no name");
        assert_eq!(
            refusal.message,
            "Widget.example.com \"\" is invalid: metadata.name: Required value: name or generateName is required"
        );
    }

    #[test]
    fn a_name_is_generated_only_where_none_is_given() {
        let name =
            |value: Value| create(json!({ "metadata": value })).expect("good").object.name().to_owned();
        assert_eq!(name(json!({ "generateName": "web-" })), "web-x2b4z");
        assert_eq!(name(json!({ "generateName": "web-", "name": "b" })), "b");
        let long = name(json!({ "generateName": "a".repeat(100) }));
        assert_eq!(long, format!("{}x2b4z", "a".repeat(58)));
        assert_eq!(
            create(json!({ "metadata": { "generateName": "\u{e9}".repeat(40) } })).expect_err("bad").code(),
            422
        );
    }

    #[test]
    fn chance_becomes_letters_and_uids() {
        assert_eq!(name_suffix(0), "bbbbb");
        assert_eq!(name_suffix(26), "9bbbb");
        assert_eq!(uid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_taken_name_is_told_by_its_reason() {
        let what = GroupResource::new("", "pods");
        let plain = name_taken(&what, "a", None);
        assert_eq!(
            (plain.reason.to_string().as_str(), plain.message.as_str()),
            ("AlreadyExists", "pods \"a\" already exists")
        );
        let going = object(json!({ "metadata": { "deletionTimestamp": "2020-01-01T00:00:00Z" } }));
        assert_eq!(
            name_taken(&what, "a", Some(&going)).message,
            "object is being deleted: pods \"a\" already exists"
        );
        let generated = generated_name_taken(&what, "a");
        assert_eq!((generated.code(), generated.retry_after_s), (409, Some(1)));
    }

    #[test]
    fn an_event_is_stored_in_its_stored_form_and_answered_in_its_own() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("events.k8s.io", "v1", "events").expect("built in");
        let sent = object(json!({ "metadata": { "name": "a" }, "note": "started" }));
        let decision = before_create(sent, kind, "n", &BIRTH).expect("a good event");
        let stored = read(&decision.write);
        assert_eq!((&stored["apiVersion"], &stored["message"]), (&json!("v1"), &json!("started")));
        assert_eq!(
            (decision.object.api_version(), decision.object.get("message")),
            ("events.k8s.io/v1", None)
        );
    }

    #[test]
    fn a_namespace_begins_active_and_is_held_by_its_own_finalizer() {
        let sent = object(json!({ "metadata": { "name": "a" }, "status": { "phase": "Terminating" } }));
        let decision = before_create(sent, &namespace(), "", &BIRTH).expect("a good namespace");
        assert_eq!(decision.object.get("spec"), Some(&json!({ "finalizers": ["kubernetes"] })));
        assert_eq!(decision.object.get("status"), Some(&json!({ "phase": "Active" })));
        assert_eq!(decision.object.labels().collect::<Vec<_>>(), [(NAME_LABEL, "a")]);
        assert_eq!(decision.object.generation(), 0);
    }
}
