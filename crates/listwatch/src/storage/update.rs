//! An update: an object that is sent whole, a part of it, or its scale.

use super::create::Chance;
use super::rules::{Rules, subresource};
use super::swap::{Absent, Decided, Swapped, Was};
use super::{Answer, Part, Place, Storage};
use crate::write_options::WriteOptions;
use crate::write_rules::{Birth, Decision, Endpoint};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::{Kind, ScalePaths};
use meerkat_kubernetes::status::Refusal;
use serde_json::Value;

pub(super) const SCALE: &str = "scale";

/// The part, if the kind has it.
pub(super) fn checked(part: Part, kind: &Kind) -> Result<(), Refusal> {
    let has = match part {
        Part::Of(Endpoint::Whole) => true,
        Part::Of(Endpoint::Status) => kind.subresources.status,
        Part::Of(Endpoint::Finalize) => kind.subresources.finalize,
        Part::Scale => kind.subresources.scale.is_some(),
    };
    if has { Ok(()) } else { Err(Refusal::no_such_page()) }
}

/// The object, as a swap with [`Absent::Refused`] always has it.
pub(super) fn present<'a>(current: Option<&'a Object>, rules: &Rules<'_>) -> Result<&'a Object, Refusal> {
    current.ok_or_else(|| Refusal::not_found(&rules.kind.group_resource(), rules.name))
}

impl Storage {
    pub async fn update(
        &self,
        place: Place<'_>,
        part: Part,
        body: Value,
        options: &WriteOptions,
        manager: &str,
    ) -> Result<Answer, Refusal> {
        checked(part, place.kind)?;
        let rules = self.rules(place, manager).await?;
        let endpoint = match (part, &place.kind.subresources.scale) {
            (Part::Of(endpoint), _) => endpoint,
            (Part::Scale, Some(paths)) => {
                let decide = |current: Option<&Object>| {
                    let stored = present(current, &rules)?;
                    let object = paths.put(stored, &body)?;
                    let decision = rules.update(stored, object, Endpoint::Whole, Some(SCALE))?;
                    Ok(Decided { decision, warnings: Vec::new(), schema: rules.schema.clone() })
                };
                let swapped = self.swap(place, options.dry_run, Absent::Refused, decide).await?;
                return scale_answer(swapped, paths);
            }
            (Part::Scale, None) => return Err(Refusal::no_such_page()),
        };
        let (object, warnings) = rules.read(body, options.field_validation)?;
        let creates = place.kind.create_on_update && endpoint == Endpoint::Whole;
        let absent = if creates { Absent::Created } else { Absent::Refused };
        let decide = |current: Option<&Object>| {
            let mut object = object.clone();
            let decision = match current {
                Some(stored) => {
                    rules.fill_defaults_over(stored, &mut object);
                    rules.update(stored, object, endpoint, Some(subresource(endpoint)))?
                }
                None => {
                    rules.fill_defaults(&mut object);
                    put_new(&rules, object)?
                }
            };
            Ok(Decided { decision, warnings: warnings.clone(), schema: rules.schema.clone() })
        };
        let swapped = self.swap(place, options.dry_run, absent, decide).await?;
        Ok(answer(swapped))
    }
}

/// Who names a uid or a version means an object that was there.
fn put_new(rules: &Rules<'_>, mut object: Object) -> Result<Decision, Refusal> {
    let version = object.resource_version();
    if !object.uid().is_empty() || !(version.is_empty() || version == "0") {
        let why = "the object that it is to replace is not there";
        return Err(Refusal::conflict(&rules.kind.group_resource(), rules.name, why));
    }
    object.set_resource_version("");
    rules.track_new(&mut object);
    create_named(rules, object)
}

pub(super) fn create_named(rules: &Rules<'_>, object: Object) -> Result<Decision, Refusal> {
    let chance = Chance::new();
    let birth = Birth { uid: &chance.uid, now: rules.now, name_suffix: &chance.name_suffix };
    rules.create_named(object, &birth)
}

pub(super) fn answer(swapped: Swapped) -> Answer {
    let created = swapped.was == Was::Created;
    Answer { object: swapped.object.into_value(), warnings: swapped.warnings, created }
}

pub(super) fn scale_answer(swapped: Swapped, paths: &ScalePaths) -> Result<Answer, Refusal> {
    let object = paths.of(&swapped.object)?;
    Ok(Answer { object, warnings: swapped.warnings, created: false })
}
