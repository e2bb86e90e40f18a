//! A delete: the object goes, or is marked and goes when its finalizers are done.

use super::swap::{Absent, Decided, Swapped, Was};
use super::update::present;
use super::{Answer, Place, Storage, admission};
use crate::write_options::DeleteOptions;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{self, Refusal};

impl Storage {
    /// The object that goes, or a Status, as the kind has it.
    pub async fn delete(&self, place: Place<'_>, options: &DeleteOptions) -> Result<Answer, Refusal> {
        let swapped = self.remove(place, options).await?;
        Ok(answer(place.kind, swapped))
    }

    pub(super) async fn remove(&self, place: Place<'_>, options: &DeleteOptions) -> Result<Swapped, Refusal> {
        admission::admit_delete(place.kind, place.name)?;
        let rules = self.rules(place, "").await?;
        let decide = |current: Option<&Object>| {
            let decision = rules.delete(present(current, &rules)?, options)?;
            Ok(Decided { decision, warnings: Vec::new(), schema: None })
        };
        self.swap(place, options.dry_run, Absent::Refused, decide).await
    }
}

/// An object that is still there is always shown.
fn answer(kind: &Kind, swapped: Swapped) -> Answer {
    let object = swapped.object;
    let object = if swapped.was == Was::Removed && !kind.delete_returns_object {
        status::deleted(&kind.group_resource(), object.name(), object.uid())
    } else {
        object.into_value()
    };
    Answer { object, warnings: swapped.warnings, created: false }
}
