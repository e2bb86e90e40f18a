//! What a write may change, and what is to be stored for it.
//!
//! A request to write is turned into a [`Decision`]: what to do to the store, and the object to answer
//! with. Everything the rules need is handed in: the object as it is stored, the time, the chance. So a
//! decision that loses its race is simply made again from the newer object. All objects that come in and go
//! out are in the form of the request's kind, see [`stored_form`]; only the bytes are in the stored one.
//!
//! Always true of a decision: the bytes carry no resourceVersion; a write that would store the bytes that
//! are stored already is [`Write::Nothing`]; uid, creationTimestamp, deletionTimestamp and generation are
//! the server's, whatever the client sent.

mod create;
mod delete;
mod immutable;
mod status_part;
mod update;

pub use create::{
    Birth, GENERATED_NAME_ATTEMPTS, before_create, generated_name_taken, name_suffix, name_taken, uid,
};
pub use delete::before_delete;
pub use status_part::{KeptMetadata, kept_metadata};
pub use update::{Endpoint, before_update};

use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Cause, Refusal};
use meerkat_kubernetes::stored_form;

/// What is to be done to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// If there is nothing at the key.
    Create(Vec<u8>),
    /// If the key is still at the revision from which this was decided, as for the next.
    Replace(Vec<u8>),
    Remove,
    /// It is already as it shall be: no revision, no event.
    Nothing,
}

/// A write, and the object that the client is answered with. Its resourceVersion is still the old one, or
/// none: the revision of the write is not known before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub write: Write,
    pub object: Object,
}

pub const CHANGED_MEANWHILE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The bytes that the store keeps of an object.
pub fn stored_bytes(object: &Object, kind: &Kind) -> Vec<u8> {
    let mut stored = object.clone();
    stored.set_resource_version("");
    stored.set_kind(&kind.kind);
    stored_form::to_stored(kind, stored.as_map_mut());
    stored.into_value().to_string().into_bytes()
}

/// The namespace of the path is the object's.
fn settle_namespace(object: &mut Object, kind: &Kind, namespace: &str) -> Result<(), Refusal> {
    let expected = if kind.is_namespaced() { namespace } else { "" };
    if !object.namespace().is_empty() && !expected.is_empty() && object.namespace() != expected {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    object.set_namespace(expected);
    Ok(())
}

/// The body is of the kind and version of the path. What it leaves out is filled in.
fn settle_type(object: &mut Object, kind: &Kind) -> Result<(), Refusal> {
    let expected = kind.api_version();
    if !object.api_version().is_empty() && object.api_version() != expected {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({expected})",
            object.api_version(),
        )));
    }
    if !object.kind().is_empty() && object.kind() != kind.kind {
        return Err(Refusal::bad_request(format!(
            "the kind in the data ({}) does not match the expected kind ({})",
            object.kind(),
            kind.kind
        )));
    }
    object.set_api_version(&expected);
    object.set_kind(&kind.kind);
    Ok(())
}

fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(&kind.group, &kind.kind, name, causes))
}

/// Whether it is Namespace, whose objects have finalizers in their spec too, and a phase.
fn is_phased(kind: &Kind) -> bool {
    kind.subresources.finalize
}

/// The finalizers that a phased object has in its spec.
fn spec_finalizers(object: &Object) -> usize {
    let list = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(|list| list.as_array());
    list.map_or(0, Vec::len)
}

/// Whether nothing holds the object back from being removed.
fn is_final(object: &Object, kind: &Kind) -> bool {
    object.finalizers().next().is_none() && (!is_phased(kind) || spec_finalizers(object) == 0)
}

#[cfg(test)]
mod fixtures {
    use super::*;
    use meerkat_kubernetes::crd;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_kubernetes::timestamp::Timestamp;
    use serde_json::{Value, json};

    /// As of a CRD.
    pub fn widget() -> Kind {
        let mut object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": crd::KIND,
            "metadata": { "name": "widgets.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {
                    "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": { "type": "object", "properties": {
                            "cronSpec": { "type": "string" }, "replicas": { "type": "integer" },
                        } },
                    } } },
                    "subresources": { "status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    } },
                }],
            },
        });
        let now = Timestamp::parse("2024-01-31T12:00:00Z").expect("a time");
        object["status"] = crd::status::next(&object, &Registry::built_in(), now).expect("a definition");
        crd::Definition::parse(&object).expect("good").kinds().pop().expect("one version")
    }

    pub fn namespace() -> Kind {
        let registry = Registry::built_in();
        (**registry.by_resource("", "v1", "namespaces").expect("built in")).clone()
    }

    pub fn object(value: Value) -> Object {
        Object::decode(value).expect("a good object").0
    }

    pub fn read(write: &Write) -> Value {
        match write {
            Write::Create(bytes) | Write::Replace(bytes) => serde_json::from_slice(bytes).expect("JSON"),
            other => panic!("{other:?} stores nothing"),
        }
    }
}
