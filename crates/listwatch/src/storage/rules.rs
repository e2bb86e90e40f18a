//! The decisions of one request: the form of what it sent, who owns which field, the write rules.
//!
//! All objects are in the form of the request's kind. Nothing here waits or reads: a decision that loses its
//! race is made again from the newer object. What the schema of a custom kind says is judged after it (`judge`).

use super::definition::{self, is_definition};
use super::secret;
use crate::write_options::DeleteOptions;
use crate::write_rules::{self, Birth, Decision, Endpoint, KeptMetadata, Write, kept_metadata, stored_bytes};
use meerkat_kubernetes::crd;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::patch::apply::{self, Writer};
use meerkat_kubernetes::patch::typed::Place;
use meerkat_kubernetes::published::{defaults, meaning, typed};
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::schema::{FieldValidation, Schema};
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::timestamp::Timestamp;
use serde_json::Value;
use std::sync::Arc;

pub(super) struct Rules<'a> {
    pub kind: &'a Kind,
    /// Of the path.
    pub namespace: &'a str,
    /// Of the path; empty for a create.
    pub name: &'a str,
    /// Under whom written fields are kept.
    pub manager: &'a str,
    /// Of a custom kind.
    pub schema: Option<Arc<Schema>>,
    /// What is served, for a definition to find its names in.
    pub registry: Arc<Registry>,
    pub now: Timestamp,
}

pub(super) fn subresource(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Whole => "",
        Endpoint::Status => "status",
        Endpoint::Finalize => "finalize",
    }
}

const TEMPLATE: &str = "spec.template";

/// Whether another template makes other pods.
fn rolls_out(kind: &Kind) -> bool {
    kind.group == "apps" && ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"].contains(&&*kind.kind)
}

impl Rules<'_> {
    /// An object as a client sent it or a patch made it, without what its kind does not know; and what is
    /// to be said of that.
    pub(super) fn read(
        &self,
        body: Value,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), Refusal> {
        self.read_over(body, validation, None)
    }

    /// [`Rules::read`]. Where what is stored has values of other types already, so may what a patch made of
    /// it: it must be possible to label it, and to take its finalizers off.
    pub(super) fn read_over(
        &self,
        body: Value,
        validation: FieldValidation,
        stored: Option<&Object>,
    ) -> Result<(Object, Vec<String>), Refusal> {
        let (mut object, mut unknown) = Object::decode(body)?;
        match typed::check(self.kind, &mut object) {
            Ok(found) => unknown.extend(found),
            Err(_) if stored.is_some_and(|stored| typed::check(self.kind, &mut stored.clone()).is_err()) => {}
            Err(refusal) => return Err(refusal),
        }
        if self.kind.group.is_empty() && self.kind.kind == "Secret" {
            secret::encode(&mut object)?;
        }
        if let Some(schema) = &self.schema {
            unknown.extend(schema.prune(&mut object));
        }
        let warnings = validation.judge(&unknown, &self.kind.kind, &self.kind.version)?;
        Ok((object, warnings))
    }

    /// Fills in what the schema, or the rule of the kind, says of absent fields.
    pub(super) fn fill_defaults(&self, object: &mut Object) {
        if let Some(schema) = &self.schema {
            schema.fill_defaults(object);
        }
        if is_definition(self.kind) {
            crd::set_defaults(object.as_map_mut());
        }
        if let Some(message) = self.kind.published() {
            defaults::fill(message, object.as_map_mut());
        }
    }

    /// [`Rules::fill_defaults`], but a template of pods that means what is stored stays as it is stored: with
    /// defaults that it lacks it would be another one, and all pods would be made anew.
    pub(super) fn fill_defaults_over(&self, stored: &Object, object: &mut Object) {
        let template = |object: &Object| {
            let message = self.kind.published().filter(|_| rolls_out(self.kind))?;
            Some(meaning::at(message, object.as_map(), TEMPLATE)).filter(|template| !template.is_null())
        };
        let is_kept = template(object).is_some_and(|sent| template(stored) == Some(sent));
        self.fill_defaults(object);
        let kept = stored.get("spec").and_then(|spec| spec.get("template")).filter(|_| is_kept);
        if let (Some(kept), Some(Value::Object(spec))) = (kept, object.as_map_mut().get_mut("spec")) {
            spec.insert("template".to_owned(), kept.clone());
        }
    }

    fn writer<'w>(
        &'w self,
        subresource: &'w str,
        api_version: &'w str,
        ignored: &'w [&'w [&'w str]],
    ) -> Writer<'w> {
        Writer {
            manager: self.manager,
            api_version,
            subresource,
            ignored,
            now: self.now,
            place: self.schema.as_deref().map_or(Place::BUILT_IN, Place::Root),
        }
    }

    fn unwritten(&self) -> &'static [&'static [&'static str]] {
        if self.kind.subresources.status { &[&["status"]] } else { &[] }
    }

    /// What of an applied object with these fields an endpoint does not write.
    fn unwritten_of<'n>(&self, names: &'n [String], endpoint: Endpoint) -> Vec<Vec<&'n str>> {
        let but = |written: &[&str]| -> Vec<Vec<&'n str>> {
            let names = names.iter().map(String::as_str).filter(|name| !written.contains(name));
            names.map(|name| vec![name]).collect()
        };
        match (endpoint, kept_metadata(self.kind)) {
            (Endpoint::Whole, _) => self.unwritten().iter().map(|path| path.to_vec()).collect(),
            (Endpoint::Finalize, _) => but(&["spec"]),
            (Endpoint::Status, KeptMetadata::All) => but(&["status"]),
            (Endpoint::Status, KeptMetadata::Fields(kept)) => {
                let mut paths = but(&["status", "metadata"]);
                paths.extend(kept.iter().map(|field| vec!["metadata", *field]));
                paths
            }
        }
    }

    /// Notes who made it.
    pub(super) fn track_new(&self, object: &mut Object) {
        apply::track(None, object, &self.writer("", &self.kind.api_version(), self.unwritten()));
    }

    /// A new object, whose owners are noted already.
    pub(super) fn create(&self, mut object: Object, birth: &Birth<'_>) -> Result<Decision, Refusal> {
        if is_definition(self.kind) {
            definition::hold(&mut object);
        }
        let mut decision = write_rules::before_create(object, self.kind, self.namespace, birth)?;
        if let Some(message) = self.kind.published().filter(|_| self.kind.subresources.status) {
            // The status that was sent is gone, and what there is of a new object is said here.
            defaults::fill(message, decision.object.as_map_mut());
            decision.write = Write::Create(stored_bytes(&decision.object, self.kind));
        }
        if is_definition(self.kind) {
            definition::check(&decision.object, None)?;
            definition::settle_status(&mut decision.object, &self.registry, self.now)?;
            decision.write = Write::Create(stored_bytes(&decision.object, self.kind));
        }
        Ok(decision)
    }

    /// A new object under the name of the path, made by a write that usually changes one.
    pub(super) fn create_named(&self, mut object: Object, birth: &Birth<'_>) -> Result<Decision, Refusal> {
        if object.name().is_empty() {
            object.set_name(self.name);
        }
        if object.name() != self.name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object.name(),
                self.name
            )));
        }
        self.create(object, birth)
    }

    /// `tracked_as`: the subresource by which fields are taken over; `None` if the owners are noted already.
    pub(super) fn update(
        &self,
        stored: &Object,
        mut object: Object,
        endpoint: Endpoint,
        tracked_as: Option<&str>,
    ) -> Result<Decision, Refusal> {
        if is_definition(self.kind) && endpoint == Endpoint::Whole && !stored.is_being_deleted() {
            definition::hold(&mut object);
        }
        let mut decision =
            write_rules::before_update(stored, object, self.kind, endpoint, self.namespace, self.name)?;
        if let Some(subresource) = tracked_as {
            let api_version = self.kind.api_version();
            apply::track(Some(stored), &mut decision.object, &self.writer(subresource, &api_version, &[]));
        }
        if decision.write == Write::Remove {
            return Ok(decision);
        }
        if is_definition(self.kind) {
            definition::check(&decision.object, Some(stored))?;
            definition::settle_status(&mut decision.object, &self.registry, self.now)?;
        }
        decision.write = self.replacing(stored, &decision.object);
        Ok(decision)
    }

    pub(super) fn delete(&self, stored: &Object, options: &DeleteOptions) -> Result<Decision, Refusal> {
        let mut decision = write_rules::before_delete(stored, self.kind, options, self.now)?;
        if is_definition(self.kind) && decision.write != Write::Remove {
            definition::settle_status(&mut decision.object, &self.registry, self.now)?;
            decision.write = self.replacing(stored, &decision.object);
        }
        Ok(decision)
    }

    /// What an apply makes of `live`; its owners are noted.
    pub(super) fn apply(
        &self,
        live: Option<&Object>,
        config: Object,
        endpoint: Endpoint,
        force: bool,
    ) -> Result<Object, Refusal> {
        let names: Vec<String> = config.as_map().keys().cloned().collect();
        let paths = self.unwritten_of(&names, endpoint);
        let ignored: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
        let api_version = self.kind.api_version();
        let writer = self.writer(subresource(endpoint), &api_version, &ignored);
        let mut object = apply::apply(live, config, &self.kind.group_resource(), &writer, force)?;
        match live {
            Some(live) => self.fill_defaults_over(live, &mut object),
            None => self.fill_defaults(&mut object),
        }
        Ok(object)
    }

    fn replacing(&self, stored: &Object, object: &Object) -> Write {
        let bytes = stored_bytes(object, self.kind);
        if bytes == stored_bytes(stored, self.kind) { Write::Nothing } else { Write::Replace(bytes) }
    }
}
