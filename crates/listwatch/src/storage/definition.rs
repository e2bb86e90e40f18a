//! What a CustomResourceDefinition has beyond other objects: its own rules, its schemas, and a status that
//! is decided with every write of it, so that a good one is served from its first revision on.

use meerkat_kubernetes::crd::{self, CLEANUP_FINALIZER, Definition, Version};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::schema::{RuleFaults, Schema};
use meerkat_kubernetes::status::{Cause, Refusal};
use meerkat_kubernetes::timestamp::Timestamp;
use serde_json::Value;

pub(super) fn is_definition(kind: &Kind) -> bool {
    kind.group == crd::GROUP && kind.kind == crd::KIND && kind.custom().is_none()
}

/// A definition stays until its objects are gone: whoever removes them takes the finalizer away.
pub(super) fn hold(object: &mut Object) {
    if object.is_being_deleted() || object.finalizers().any(|name| name == CLEANUP_FINALIZER) {
        return;
    }
    let all: Vec<String> =
        object.finalizers().map(str::to_owned).chain([CLEANUP_FINALIZER.to_owned()]).collect();
    object.set_finalizers(&all);
}

/// Whether it may be stored in the place of `old`, or as a new one.
pub(super) fn check(object: &Object, old: Option<&Object>) -> Result<(), Refusal> {
    let value = object.to_value();
    match old {
        None => crd::validate::create(&value)?,
        Some(old) => crd::validate::update(&value, &old.to_value())?,
    }
    let mut causes = schema_causes(&value, &RuleFaults::new())?;
    // What a definition was let in with does not keep it from being changed otherwise, or from going.
    if let Some(old) = old.filter(|_| !causes.is_empty()) {
        let old = old.to_value();
        let faults = rule_faults(&old)?;
        let before = schema_causes(&old, &faults)?;
        causes = schema_causes(&value, &faults)?;
        causes.retain(|cause| !before.contains(cause));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(crd::GROUP, crd::KIND, object.name(), causes))
}

fn rule_faults(definition: &Value) -> Result<RuleFaults, Refusal> {
    let definition = Definition::parse(definition)?;
    Ok(definition.spec.versions.iter().filter_map(schema_of).flat_map(Schema::rule_faults).collect())
}

fn schema_of(version: &Version) -> Option<&Value> {
    version.schema.as_ref().and_then(|schema| schema.open_api_v3.as_ref())
}

/// `before`: faults of rules that may stay.
fn schema_causes(definition: &Value, before: &RuleFaults) -> Result<Vec<Cause>, Refusal> {
    let definition = Definition::parse(definition)?;
    let mut causes = Vec::new();
    for (index, version) in definition.spec.versions.iter().enumerate() {
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if let Some(Err(found)) =
            schema_of(version).map(|schema| Schema::parse_changed(schema, &field, before))
        {
            causes.extend(found);
        }
    }
    Ok(causes)
}

/// The status that follows from the rest, given the kinds that others have.
pub(super) fn settle_status(object: &mut Object, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
    let status = crd::status::next(&object.to_value(), registry, now)?;
    object.set("status", Some(status));
    Ok(())
}
