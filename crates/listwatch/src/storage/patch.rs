//! A patch: what it makes of the object as it is goes the way of an update, and is made again from a newer
//! one if somebody was quicker.

use super::rules::{Rules, subresource};
use super::swap::{Absent, Decided};
use super::update::{SCALE, answer, checked, create_named, present, scale_answer};
use super::{Answer, Part, Patch, Place, Storage};
use crate::write_options::{ApplyOptions, WriteOptions};
use crate::write_rules::Endpoint;
use meerkat_kubernetes::negotiation::PatchForm;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::object::check::shown;
use meerkat_kubernetes::patch as language;
use meerkat_kubernetes::published::typed::refusal_prefix;
use meerkat_kubernetes::registry::ScalePaths;
use meerkat_kubernetes::status::{Cause, Refusal};
use serde_json::Value;

impl Storage {
    pub async fn patch(
        &self,
        place: Place<'_>,
        part: Part,
        patch: &Patch,
        manager: &str,
    ) -> Result<Answer, Refusal> {
        checked(part, place.kind)?;
        match (part, patch, &place.kind.subresources.scale) {
            (Part::Of(endpoint), Patch::Of { form, body, options }, _) => {
                self.patch_object(place, endpoint, *form, body, options, manager).await
            }
            (Part::Of(endpoint), Patch::Apply { body, options }, _) => {
                self.apply(place, endpoint, body, options).await
            }
            (Part::Scale, Patch::Of { form, body, options }, Some(paths)) => {
                self.patch_scale(place, paths, *form, body, options.dry_run, manager).await
            }
            // A Scale has one field to want, so that laying it over is all there is to it.
            (Part::Scale, Patch::Apply { body, options }, Some(paths)) => {
                let (form, dry_run) = (PatchForm::Merge, options.write.dry_run);
                self.patch_scale(place, paths, form, body, dry_run, &options.manager).await
            }
            (Part::Scale, _, None) => Err(Refusal::no_such_page()),
        }
    }

    async fn patch_object(
        &self,
        place: Place<'_>,
        endpoint: Endpoint,
        form: PatchForm,
        body: &Value,
        options: &WriteOptions,
        manager: &str,
    ) -> Result<Answer, Refusal> {
        let rules = self.rules(place, manager).await?;
        let decide = |current: Option<&Object>| {
            let stored = present(current, &rules)?;
            let patched = patched(form, stored.to_value(), body, &place.kind.kind)?;
            let read = rules.read_over(patched, options.field_validation, Some(stored));
            let (mut object, warnings) = read.map_err(|refusal| blame_patch(refusal, &rules, body))?;
            keep_uid(stored, &object, &rules)?;
            rules.fill_defaults_over(stored, &mut object);
            let decision = rules.update(stored, object, endpoint, Some(subresource(endpoint)))?;
            Ok(Decided { decision, warnings, schema: rules.schema.clone() })
        };
        let swapped = self.swap(place, options.dry_run, Absent::Refused, decide).await?;
        Ok(answer(swapped))
    }

    async fn patch_scale(
        &self,
        place: Place<'_>,
        paths: &ScalePaths,
        form: PatchForm,
        body: &Value,
        dry_run: bool,
        manager: &str,
    ) -> Result<Answer, Refusal> {
        let rules = self.rules(place, manager).await?;
        let decide = |current: Option<&Object>| {
            let stored = present(current, &rules)?;
            let scale = patched(form, paths.of(stored)?, body, "Scale")?;
            let decision = rules.update(stored, paths.put(stored, &scale)?, Endpoint::Whole, Some(SCALE))?;
            Ok(Decided { decision, warnings: Vec::new(), schema: rules.schema.clone() })
        };
        let swapped = self.swap(place, dry_run, Absent::Refused, decide).await?;
        scale_answer(swapped, paths)
    }

    /// Applying what is not there creates it.
    async fn apply(
        &self,
        place: Place<'_>,
        endpoint: Endpoint,
        body: &Value,
        options: &ApplyOptions,
    ) -> Result<Answer, Refusal> {
        let rules = self.rules(place, &options.manager).await?;
        let (config, warnings) = rules.read(body.clone(), options.write.field_validation)?;
        let absent = if endpoint == Endpoint::Whole { Absent::Created } else { Absent::Refused };
        let decide = |current: Option<&Object>| {
            let decision = applied(&rules, current, config.clone(), endpoint, options.force)?;
            Ok(Decided { decision, warnings: warnings.clone(), schema: rules.schema.clone() })
        };
        let swapped = self.swap(place, options.write.dry_run, absent, decide).await?;
        Ok(answer(swapped))
    }
}

fn applied(
    rules: &Rules<'_>,
    live: Option<&Object>,
    mut config: Object,
    endpoint: Endpoint,
    force: bool,
) -> Result<crate::write_rules::Decision, Refusal> {
    if config.name().is_empty() {
        config.set_name(rules.name);
    }
    let object = rules.apply(live, config, endpoint, force)?;
    match live {
        Some(stored) => {
            keep_uid(stored, &object, rules)?;
            rules.update(stored, object, endpoint, None)
        }
        None => create_named(rules, object),
    }
}

/// What a patch makes can be read, or the patch is what is wrong.
fn blame_patch(refusal: Refusal, rules: &Rules<'_>, patch: &Value) -> Refusal {
    let Some(why) = refusal.message.strip_prefix(&refusal_prefix(rules.kind)) else { return refusal };
    Refusal::invalid("", "", "", vec![Cause::invalid("patch", &shown(&patch.to_string()), why)])
}

/// What an update says of the uid is a precondition; a patch would change it.
fn keep_uid(stored: &Object, object: &Object, rules: &Rules<'_>) -> Result<(), Refusal> {
    if object.uid().is_empty() || object.uid() == stored.uid() {
        return Ok(());
    }
    let cause = Cause::invalid("metadata.uid", &shown(object.uid()), "field is immutable");
    Err(Refusal::invalid(&rules.kind.group, &rules.kind.kind, stored.name(), vec![cause]))
}

fn patched(form: PatchForm, document: Value, patch: &Value, kind: &str) -> Result<Value, Refusal> {
    match form {
        PatchForm::Json => language::json::apply(document, patch.clone()),
        PatchForm::Merge => language::merge::apply(document, patch.clone()),
        PatchForm::StrategicMerge => language::strategic::apply(document, patch.clone(), kind),
        PatchForm::ApplyYaml | PatchForm::ApplyCbor => {
            Err(Refusal::bad_request("an apply needs options of its own"))
        }
    }
}
