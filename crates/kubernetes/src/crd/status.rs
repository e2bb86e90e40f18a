//! Which names a definition gets, and what its status says of it.
//!
//! A name that another kind of the group already has is refused, and the condition `NamesAccepted` says
//! which. A definition with all its names is established at once: every member applies the same log, so there
//! is nobody to wait for. Once established it stays so, and keeps the names that were accepted.
//!
//! [`next`] of its own result is that result: whoever calls it again after every change writes only changes.

use super::{Definition, Names};
use crate::registry::Registry;
use crate::status::Refusal;
use crate::timestamp::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The status that the definition is to have, given the kinds that are served by others.
pub fn next(object: &Value, registry: &Registry, now: Timestamp) -> Result<Value, Refusal> {
    let definition = Definition::parse(object)?;
    let (names, conflict) = accept(&definition, registry);
    let mut conditions = definition.status["conditions"].as_array().cloned().unwrap_or_default();
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    set(&mut conditions, "NamesAccepted", accepted, reason, &message, now);
    if accepted && !definition.is_established() {
        let message = "the initial names have been accepted";
        set(&mut conditions, "Established", true, "InitialNamesAccepted", message, now);
    } else if !definition.is_established() {
        set(&mut conditions, "Established", false, "NotAccepted", "not all names are accepted", now);
    }
    if definition.terminating {
        let message = "objects of this kind are being deleted";
        set(&mut conditions, "Terminating", true, "InstanceDeletionInProgress", message, now);
    }
    Ok(json!({
        "acceptedNames": names_to_json(&names),
        "storedVersions": stored_versions(&definition),
        "conditions": conditions,
    }))
}

/// The condition of that type, if the status has it.
pub fn condition<'a>(status: &'a Value, of_type: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|condition| condition["type"] == of_type)
}

/// The names it has from now on, and the last of the conflicts, if there are any.
fn accept(definition: &Definition, registry: &Registry) -> (Names, Option<(&'static str, String)>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let others = registry.group(&definition.spec.group);
    for kind in
        others.into_iter().flat_map(|group| group.kinds()).filter(|kind| !kind.is_of(&definition.name))
    {
        resources.extend([kind.plural.as_str(), kind.singular.as_str()]);
        resources.extend(kind.short_names.iter().map(String::as_str));
        kinds.extend([kind.kind.as_str(), kind.list_kind.as_str()]);
    }
    let wanted = &definition.spec.names;
    let mut names = definition.accepted_names();
    let mut conflict = None;
    for (reason, wanted, accepted, used) in [
        ("PluralConflict", &wanted.plural, &mut names.plural, &resources),
        ("SingularConflict", &wanted.singular, &mut names.singular, &resources),
        ("KindConflict", &wanted.kind, &mut names.kind, &kinds),
        ("ListKindConflict", &wanted.list_kind, &mut names.list_kind, &kinds),
    ] {
        if used.contains(wanted.as_str()) {
            conflict = Some((reason, format!("{wanted:?} is already in use")));
        } else {
            accepted.clone_from(wanted);
        }
    }
    let taken: Vec<String> = wanted
        .short_names
        .iter()
        .filter(|name| resources.contains(name.as_str()))
        .map(|name| format!("{name:?} is already in use"))
        .collect();
    if taken.is_empty() {
        names.short_names.clone_from(&wanted.short_names);
    } else {
        conflict = conflict.or(Some(("ShortNamesConflict", taken.join(", "))));
    }
    names.categories.clone_from(&wanted.categories);
    (names, conflict)
}

/// Every version in which an object may be stored: those before, and the present one.
fn stored_versions(definition: &Definition) -> Vec<Value> {
    let mut versions = definition.status["storedVersions"].as_array().cloned().unwrap_or_default();
    let storage = definition.storage_version().map(Value::from);
    versions.extend(storage.filter(|version| !versions.contains(version)));
    versions
}

fn names_to_json(names: &Names) -> Value {
    let mut shown = json!({ "plural": names.plural, "kind": names.kind });
    for (field, name) in [("singular", &names.singular), ("listKind", &names.list_kind)] {
        if !name.is_empty() {
            shown[field] = json!(name);
        }
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !list.is_empty() {
            shown[field] = json!(list);
        }
    }
    shown
}

/// The time is that of the last change of the condition's status, not of its words.
fn set(conditions: &mut Vec<Value>, of_type: &str, holds: bool, reason: &str, message: &str, now: Timestamp) {
    let status = if holds { "True" } else { "False" };
    let mut condition = json!({
        "type": of_type, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now.to_seconds().to_string(),
    });
    match conditions.iter_mut().find(|each| each["type"] == of_type) {
        Some(old) => {
            if old["status"] == status {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{established, example, now};
    use super::*;

    fn reason(status: &Value, of_type: &str) -> (String, String) {
        let condition = condition(status, of_type).expect(of_type);
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn with(object: &Value) -> Registry {
        let definition = Definition::parse(object).expect("good");
        Registry::built_in().with(&definition.name, definition.kinds())
    }

    #[test]
    fn a_definition_alone_gets_its_names_and_is_established() {
        let status = next(&example(), &Registry::built_in(), now()).expect("good");
        assert_eq!(reason(&status, "NamesAccepted"), ("True".into(), "NoConflicts".into()));
        assert_eq!(reason(&status, "Established"), ("True".into(), "InitialNamesAccepted".into()));
        assert_eq!(status["storedVersions"], json!(["v1"]));
        let names = json!({
            "plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList",
            "shortNames": ["ct"],
        });
        assert_eq!(status["acceptedNames"], names);
    }

    #[test]
    fn the_status_of_a_status_is_the_same() {
        let one = established(example());
        let later = Timestamp::parse("2025-01-01T00:00:00Z").expect("a time");
        let two = next(&one, &with(&one), later).expect("good");
        assert_eq!(two, one["status"]);
    }

    #[test]
    fn names_that_others_have_are_refused() {
        let first = established(example());
        let registry = with(&first);
        for (field, value, expected) in [
            ("singular", json!("ct"), "SingularConflict"),
            ("kind", json!("CronTab"), "KindConflict"),
            ("listKind", json!("CronTabList"), "ListKindConflict"),
            ("shortNames", json!(["crontab"]), "ShortNamesConflict"),
        ] {
            let mut second = example();
            second["metadata"]["name"] = json!("others.stable.example.com");
            second["spec"]["names"] = json!({
                "plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList",
            });
            second["spec"]["names"][field] = value;
            let status = next(&second, &registry, now()).expect("good");
            assert_eq!(reason(&status, "NamesAccepted"), ("False".into(), expected.into()));
            assert_eq!(reason(&status, "Established"), ("False".into(), "NotAccepted".into()));
            second["status"] = status;
            assert!(Definition::parse(&second).expect("good").kinds().is_empty());
            let freed = next(&second, &Registry::built_in(), now()).expect("good");
            assert_eq!(reason(&freed, "Established"), ("True".into(), "InitialNamesAccepted".into()));
        }
    }

    #[test]
    fn the_same_names_in_another_group_are_no_conflict() {
        let registry = with(&established(example()));
        let mut other = example();
        other["metadata"]["name"] = json!("crontabs.other.example.com");
        other["spec"]["group"] = json!("other.example.com");
        let status = next(&other, &registry, now()).expect("good");
        assert_eq!(reason(&status, "NamesAccepted").0, "True");
    }

    #[test]
    fn a_new_storage_version_joins_the_old_ones() {
        let mut object = established(example());
        object["spec"]["versions"][0]["name"] = json!("v2");
        let status = next(&object, &Registry::built_in(), now()).expect("good");
        assert_eq!(status["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn a_definition_that_is_being_deleted_says_so_and_takes_no_new_objects() {
        let mut object = established(example());
        object["metadata"]["deletionTimestamp"] = json!("2024-02-01T00:00:00Z");
        object["status"] = next(&object, &Registry::built_in(), now()).expect("good");
        assert_eq!(reason(&object["status"], "Terminating").0, "True");
        let kinds = Definition::parse(&object).expect("good").kinds();
        assert!(kinds[0].is_terminating());
    }
}
