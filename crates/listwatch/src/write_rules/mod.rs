//! What a write may change, and what is to be stored for it.
//!
//! A request to write is turned into a [`Decision`]: what to do to the store, and the object to answer
//! with. Everything the rules need is handed in: the object as it is stored, the time, the chance. So a
//! decision that loses its race is simply made again from the newer object.
//!
//! Always true of a decision: the bytes carry no resourceVersion and are in the kind's stored version; a
//! write that would store the bytes that are stored already is [`Write::Nothing`]; uid, creationTimestamp,
//! deletionTimestamp and generation are the server's, whatever the client sent.

mod create;
mod delete;
mod options;
mod update;

pub use create::{
    Birth, GENERATED_NAME_ATTEMPTS, before_create, generated_name_taken, name_suffix, name_taken, uid,
};
pub use delete::before_delete;
pub use options::{DeleteOptions, Propagation};
pub use update::{Endpoint, before_update};

use crate::names::NameRule;
use crate::object::Object;
use crate::status::{GroupResource, Refusal};

/// What the rules must know of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    pub resource: &'a GroupResource,
    pub kind: &'a str,
    /// As the request spells it: `apps/v1`.
    pub api_version: &'a str,
    /// As the store spells it.
    pub stored_api_version: &'a str,
    pub namespaced: bool,
    pub name_rule: NameRule,
    /// Has a status that only its own endpoint may write.
    pub status: bool,
    /// Counts how often its wanted state was changed. So does every CRD's kind.
    pub generation: bool,
    /// May be updated without saying from which version. No CRD's kind may.
    pub unconditional_update: bool,
    /// Is a Namespace, or lives and dies like one: it has finalizers in its spec too, and a phase.
    pub phased: bool,
}

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
pub fn stored_bytes(object: &Object, kind: &Kind<'_>) -> Vec<u8> {
    let mut stored = object.clone();
    stored.set_resource_version("");
    stored.set_api_version(kind.stored_api_version);
    stored.set_kind(kind.kind);
    stored.into_value().to_string().into_bytes()
}

/// The namespace of the path is the object's.
fn settle_namespace(object: &mut Object, kind: &Kind<'_>, namespace: &str) -> Result<(), Refusal> {
    let expected = if kind.namespaced { namespace } else { "" };
    if !object.namespace().is_empty() && !expected.is_empty() && object.namespace() != expected {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    object.set_namespace(expected);
    Ok(())
}

/// The body is of the kind and version of the path. What it leaves out is filled in.
fn settle_type(object: &mut Object, kind: &Kind<'_>) -> Result<(), Refusal> {
    if !object.api_version().is_empty() && object.api_version() != kind.api_version {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            object.api_version(),
            kind.api_version
        )));
    }
    if !object.kind().is_empty() && object.kind() != kind.kind {
        return Err(Refusal::bad_request(format!(
            "the kind in the data ({}) does not match the expected kind ({})",
            object.kind(),
            kind.kind
        )));
    }
    object.set_api_version(kind.api_version);
    object.set_kind(kind.kind);
    Ok(())
}

fn invalid(kind: &Kind<'_>, name: &str, causes: Vec<crate::status::Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(&kind.resource.group, kind.kind, name, causes))
}

/// The finalizers that a phased object has in its spec.
fn spec_finalizers(object: &Object) -> usize {
    let list = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(|list| list.as_array());
    list.map_or(0, Vec::len)
}

/// Whether nothing holds the object back from being removed.
fn is_final(object: &Object, kind: &Kind<'_>) -> bool {
    object.finalizers().next().is_none() && (!kind.phased || spec_finalizers(object) == 0)
}

#[cfg(test)]
mod fixtures {
    use super::*;
    use serde_json::Value;
    use std::sync::LazyLock;

    static WIDGETS: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("example.com", "widgets"));
    static NAMESPACES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "namespaces"));

    /// As of a CRD.
    pub fn widget() -> Kind<'static> {
        Kind {
            resource: &WIDGETS,
            kind: "Widget",
            api_version: "example.com/v1",
            stored_api_version: "example.com/v1",
            namespaced: true,
            name_rule: NameRule::DnsSubdomain,
            status: true,
            generation: true,
            unconditional_update: false,
            phased: false,
        }
    }

    pub fn namespace() -> Kind<'static> {
        Kind {
            resource: &NAMESPACES,
            kind: "Namespace",
            api_version: "v1",
            stored_api_version: "v1",
            namespaced: false,
            name_rule: NameRule::DnsLabel,
            status: true,
            generation: false,
            unconditional_update: true,
            phased: true,
        }
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
