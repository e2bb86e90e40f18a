//! What is wrong with a definition, told all at once.
//!
//! Names, versions, columns, selectable fields, scale and conversion; and on an update, what may no longer
//! change. Schemas have a room of their own: here they must only be there.

use super::{Conversion, Definition, GROUP, KIND, Names, PrinterColumn, Scale, Version};
use crate::json_path::JsonPath;
use crate::names::NameRule;
use crate::status::{Cause, Refusal};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SELECTABLE_FIELDS_MAX: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// Groups of the Kubernetes community. A definition in one must say who approved it.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// A definition that is new.
pub fn create(object: &Value) -> Result<(), Refusal> {
    let definition = Definition::parse(object)?;
    refuse(&definition, causes(&definition))
}

/// A definition that takes the place of `old`.
pub fn update(object: &Value, old: &Value) -> Result<(), Refusal> {
    let (definition, old) = (Definition::parse(object)?, Definition::parse(old)?);
    let mut found = causes(&definition);
    found.extend(unchangeable(&definition, &old));
    found.extend(lost_versions(&definition, &old));
    refuse(&definition, found)
}

fn refuse(definition: &Definition, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(GROUP, KIND, &definition.name, causes)) }
}

fn causes(definition: &Definition) -> Vec<Cause> {
    let spec = &definition.spec;
    let mut found = name(definition);
    found.extend(group(definition));
    match spec.scope.as_str() {
        "Namespaced" | "Cluster" => {}
        "" => found.push(Cause::required("spec.scope", "")),
        other => found.push(Cause::not_supported("spec.scope", &json!(other), &["Cluster", "Namespaced"])),
    }
    found.extend(names(&spec.names));
    found.extend(versions(&spec.versions));
    if spec.preserve_unknown_fields == Some(true) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in the schema instead";
        found.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    found.extend(spec.conversion.as_ref().and_then(conversion));
    found
}

fn name(definition: &Definition) -> Vec<Cause> {
    let spec = &definition.spec;
    let mut found = Vec::new();
    if definition.name.is_empty() {
        return vec![Cause::required("metadata.name", "name is required")];
    }
    let shown = json!(definition.name);
    found.extend(
        NameRule::DnsSubdomain
            .refuses(&definition.name)
            .map(|why| Cause::invalid("metadata.name", &shown, &why)),
    );
    if definition.name != format!("{}.{}", spec.names.plural, spec.group) {
        found.push(Cause::invalid("metadata.name", &shown, "must be spec.names.plural+\".\"+spec.group"));
    }
    found
}

fn group(definition: &Definition) -> Vec<Cause> {
    let group = definition.spec.group.as_str();
    if group.is_empty() {
        return vec![Cause::required("spec.group", "")];
    }
    let mut found = Vec::new();
    if let Some(why) = NameRule::DnsSubdomain.refuses(group) {
        found.push(Cause::invalid("spec.group", &json!(group), &why));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        found.push(Cause::invalid("spec.group", &json!(group), why));
    }
    let within =
        |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if PROTECTED.into_iter().any(within) && definition.approval.is_empty() {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
        found.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", why));
    }
    found
}

fn names(names: &Names) -> Vec<Cause> {
    let mut found = Vec::new();
    for (field, name) in [
        ("plural", &names.plural),
        ("singular", &names.singular),
        ("kind", &names.kind),
        ("listKind", &names.list_kind),
    ] {
        let path = format!("spec.names.{field}");
        // A kind is written with capitals; but for those it keeps to the same rule.
        let plain = if field.to_lowercase().ends_with("kind") { name.to_lowercase() } else { name.clone() };
        if name.is_empty() {
            found.push(Cause::required(path, ""));
        } else if let Some(why) = NameRule::DnsLabelFromLetter.refuses(&plain) {
            found.push(Cause::invalid(path, &json!(name), &why));
        }
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        for (at, name) in list.iter().enumerate() {
            let refused = NameRule::DnsLabelFromLetter.refuses(name);
            let path = format!("spec.names.{field}[{at}]");
            found.extend(refused.map(|why| Cause::invalid(path, &json!(name), &why)));
        }
    }
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let why = "kind and listKind may not be the same";
        found.push(Cause::invalid("spec.names.listKind", &json!(names.list_kind), why));
    }
    found
}

fn versions(versions: &[Version]) -> Vec<Cause> {
    let mut found = Vec::new();
    let shown: Vec<&str> = versions.iter().map(|version| version.name.as_str()).collect();
    if shown.iter().collect::<BTreeSet<_>>().len() < shown.len() {
        found.push(Cause::invalid("spec.versions", &json!(shown), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version.storage).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        found.push(Cause::invalid("spec.versions", &json!(shown), why));
    }
    for (at, each) in versions.iter().enumerate() {
        found.extend(version(&format!("spec.versions[{at}]"), each));
    }
    found
}

fn version(path: &str, version: &Version) -> Vec<Cause> {
    let mut found = Vec::new();
    let refused = NameRule::DnsLabelFromLetter.refuses(&version.name);
    found.extend(refused.map(|why| Cause::invalid(format!("{path}.name"), &json!(version.name), &why)));
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3.as_ref());
    if schema.is_none() {
        found.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), "schemas are required"));
    }
    if let (false, Some(warning)) = (version.deprecated, &version.deprecation_warning) {
        let why = "can only be set for deprecated versions";
        found.push(Cause::invalid(format!("{path}.deprecationWarning"), &json!(warning), why));
    }
    for (at, column) in version.additional_printer_columns.iter().enumerate() {
        found.extend(printer_column(&format!("{path}.additionalPrinterColumns[{at}]"), column));
    }
    found.extend(selectable_fields(&format!("{path}.selectableFields"), version, schema));
    if let Some(scale_paths) = version.subresources.as_ref().and_then(|given| given.scale.as_ref()) {
        found.extend(scale(&format!("{path}.subresources.scale"), scale_paths));
    }
    found
}

fn printer_column(path: &str, column: &PrinterColumn) -> Vec<Cause> {
    let mut found = Vec::new();
    if column.name.is_empty() {
        found.push(Cause::required(format!("{path}.name"), ""));
    }
    if column.data_type.is_empty() {
        found.push(Cause::required(format!("{path}.type"), ""));
    } else if !COLUMN_TYPES.contains(&column.data_type.as_str()) {
        found.push(Cause::not_supported(format!("{path}.type"), &json!(column.data_type), &COLUMN_TYPES));
    }
    if !column.format.is_empty() && !COLUMN_FORMATS.contains(&column.format.as_str()) {
        found.push(Cause::not_supported(format!("{path}.format"), &json!(column.format), &COLUMN_FORMATS));
    }
    if column.json_path.is_empty() {
        found.push(Cause::required(format!("{path}.jsonPath"), ""));
    } else if let Err(bad) = JsonPath::parse(&column.json_path) {
        found.push(Cause::invalid(format!("{path}.jsonPath"), &json!(column.json_path), &bad.to_string()));
    }
    found
}

fn selectable_fields(path: &str, version: &Version, schema: Option<&Value>) -> Vec<Cause> {
    let mut found = Vec::new();
    if version.selectable_fields.len() > SELECTABLE_FIELDS_MAX {
        let why = format!("must have at most {SELECTABLE_FIELDS_MAX} items");
        found.push(Cause::invalid(path, &json!(version.selectable_fields.len()), &why));
        return found;
    }
    let mut seen = BTreeSet::new();
    for (at, field) in version.selectable_fields.iter().enumerate() {
        let path = format!("{path}[{at}].jsonPath");
        let shown = json!(field.json_path);
        let parsed = JsonPath::parse(&field.json_path).ok();
        let names = parsed.as_ref().and_then(JsonPath::fields).filter(|names| !names.is_empty());
        match names {
            None => found.push(Cause::invalid(
                path,
                &shown,
                "must be a simple path: field names, each after a dot",
            )),
            Some(names) if names[0] == "metadata" => {
                found.push(Cause::invalid(path, &shown, "must not point to fields in metadata"));
            }
            Some(names) if !seen.insert(names.join(".")) => found.push(Cause::duplicate(path, &shown)),
            Some(names) => found.extend(
                schema
                    .and_then(|schema| not_selectable(schema, &names))
                    .map(|why| Cause::invalid(path, &shown, why)),
            ),
        }
    }
    found
}

/// A selector compares texts, so the field must have one, and be known.
fn not_selectable(schema: &Value, names: &[&str]) -> Option<&'static str> {
    let Some(field) = names.iter().try_fold(schema, |schema, name| schema.get("properties")?.get(name))
    else {
        return Some("is an invalid path: does not refer to a field of the schema");
    };
    let simple = ["string", "integer", "boolean"].iter().any(|simple| field["type"] == **simple);
    (!simple).then_some("must point to a field of type string, boolean or integer")
}

fn scale(path: &str, scale: &Scale) -> Vec<Cause> {
    let selector = scale.label_selector_path.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    for (field, text, needed, roots) in [
        ("specReplicasPath", scale.spec_replicas_path.as_str(), true, &["spec"][..]),
        ("statusReplicasPath", scale.status_replicas_path.as_str(), true, &["status"][..]),
        ("labelSelectorPath", selector, false, &["spec", "status"][..]),
    ] {
        let path = format!("{path}.{field}");
        if text.is_empty() {
            found.extend(needed.then(|| Cause::required(path, "")));
            continue;
        }
        let parsed = JsonPath::parse(text).ok();
        let names = parsed.as_ref().and_then(JsonPath::fields).unwrap_or_default();
        if names.len() < 2 || !roots.contains(&names[0]) {
            let why = format!("should be a simple path under .{}", roots.join(" or ."));
            found.push(Cause::invalid(path, &json!(text), &why));
        }
    }
    found
}

fn conversion(conversion: &Conversion) -> Option<Cause> {
    let strategy = conversion.strategy.as_str();
    match strategy {
        "None" => None,
        "" => Some(Cause::required("spec.conversion.strategy", "")),
        _ => Some(Cause::not_supported("spec.conversion.strategy", &json!(strategy), &["None"])),
    }
}

/// The name is made of the group and the plural; the rest binds once objects may exist.
fn unchangeable(new: &Definition, old: &Definition) -> Vec<Cause> {
    let fixed = |field: &str, new: &str, old: &str| {
        (new != old).then(|| Cause::invalid(field, &json!(new), "field is immutable"))
    };
    let (spec, before) = (&new.spec, &old.spec);
    let mut found: Vec<Cause> = Vec::new();
    found.extend(fixed("spec.group", &spec.group, &before.group));
    found.extend(fixed("spec.names.plural", &spec.names.plural, &before.names.plural));
    if old.is_established() {
        found.extend(fixed("spec.scope", &spec.scope, &before.scope));
        found.extend(fixed("spec.names.kind", &spec.names.kind, &before.names.kind));
    }
    found
}

/// Objects may still be stored in them.
fn lost_versions(new: &Definition, old: &Definition) -> Vec<Cause> {
    let stored = old.status["storedVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for (at, version) in stored.iter().enumerate() {
        if !new.spec.versions.iter().any(|each| version == each.name.as_str()) {
            let why = "missing from spec.versions, and objects may still be stored in it";
            found.push(Cause::invalid(format!("status.storedVersions[{at}]"), version, why));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{established, example};
    use super::*;

    /// The fields that are wrong after one change to a good definition.
    fn wrong(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut object = example();
        change(&mut object);
        fields(create(&object))
    }

    fn fields(answer: Result<(), Refusal>) -> Vec<String> {
        let Err(refusal) = answer else { return Vec::new() };
        assert_eq!(refusal.code(), 422);
        refusal.causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn a_good_definition_has_no_causes() {
        assert_eq!(wrong(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn each_mistake_is_told_by_its_field() {
        let version = "spec.versions[0]";
        let cases: Vec<(&str, Value, String)> = vec![
            ("/metadata/name", json!("x.y.z"), "metadata.name".into()),
            ("/spec/scope", json!("Galaxy"), "spec.scope".into()),
            ("/spec/scope", json!(""), "spec.scope".into()),
            ("/spec/names/kind", json!("Cron Tab"), "spec.names.kind".into()),
            ("/spec/names/listKind", json!("CronTab"), "spec.names.listKind".into()),
            ("/spec/names/shortNames/0", json!("CT"), "spec.names.shortNames[0]".into()),
            ("/spec/versions/0/storage", json!(false), "spec.versions".into()),
            ("/spec/versions/0/name", json!("1"), format!("{version}.name")),
            ("/spec/versions/0/schema", json!({}), format!("{version}.schema.openAPIV3Schema")),
            ("/spec/versions/0/deprecationWarning", json!("x"), format!("{version}.deprecationWarning")),
            (
                "/spec/versions/0/additionalPrinterColumns/0/type",
                json!("text"),
                format!("{version}.additionalPrinterColumns[0].type"),
            ),
            (
                "/spec/versions/0/additionalPrinterColumns/0/jsonPath",
                json!("spec"),
                format!("{version}.additionalPrinterColumns[0].jsonPath"),
            ),
            (
                "/spec/versions/0/selectableFields/0/jsonPath",
                json!(".metadata.name"),
                format!("{version}.selectableFields[0].jsonPath"),
            ),
            (
                "/spec/versions/0/selectableFields/0/jsonPath",
                json!(".spec"),
                format!("{version}.selectableFields[0].jsonPath"),
            ),
            (
                "/spec/versions/0/selectableFields/0/jsonPath",
                json!(".spec.no"),
                format!("{version}.selectableFields[0].jsonPath"),
            ),
            (
                "/spec/versions/0/subresources/scale/specReplicasPath",
                json!(".status.x"),
                format!("{version}.subresources.scale.specReplicasPath"),
            ),
            ("/spec/conversion", json!({ "strategy": "Webhook" }), "spec.conversion.strategy".into()),
            ("/spec/preserveUnknownFields", json!(true), "spec.preserveUnknownFields".into()),
        ];
        for (pointer, value, field) in cases {
            let found = wrong(|object| {
                let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
                let parent = object.pointer_mut(parent).expect("a parent");
                match last.parse::<usize>() {
                    Ok(at) => parent[at] = value.clone(),
                    Err(_) => parent[last] = value.clone(),
                }
            });
            assert_eq!(found, [field], "{pointer} {value}");
        }
    }

    #[test]
    fn a_group_needs_a_dot_and_a_protected_one_an_approval() {
        let found = wrong(|object| {
            object["spec"]["group"] = json!("stable");
            object["metadata"]["name"] = json!("crontabs.stable");
        });
        assert_eq!(found, ["spec.group"]);
        let protected = |object: &mut Value| {
            object["spec"]["group"] = json!("my.k8s.io");
            object["metadata"]["name"] = json!("crontabs.my.k8s.io");
        };
        assert_eq!(wrong(protected), ["metadata.annotations[api-approved.kubernetes.io]"]);
        let approved = |object: &mut Value| {
            protected(object);
            object["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, a test" });
        };
        assert_eq!(wrong(approved), Vec::<String>::new());
    }

    #[test]
    fn versions_are_told_apart_by_name() {
        let found = wrong(|object| {
            let mut second = object["spec"]["versions"][0].clone();
            second["storage"] = json!(false);
            object["spec"]["versions"].as_array_mut().expect("a list").push(second);
        });
        assert_eq!(found, ["spec.versions"]);
    }

    #[test]
    fn an_update_keeps_what_objects_depend_on() {
        let old = established(example());
        let change = |pointer: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(pointer).expect("there") = value;
            fields(update(&new, &old))
        };
        assert_eq!(change("/spec/scope", json!("Cluster")), ["spec.scope"]);
        assert_eq!(change("/spec/names/kind", json!("Other")), ["spec.names.kind"]);
        assert_eq!(change("/spec/versions/0/name", json!("v2")), ["status.storedVersions[0]"]);
        assert_eq!(change("/spec/names/shortNames", json!(["x"])), Vec::<String>::new());
        let mut fresh = example();
        fresh["spec"]["scope"] = json!("Cluster");
        assert_eq!(fields(update(&fresh, &example())), Vec::<String>::new());
    }

    #[test]
    fn the_paths_of_a_scale_are_simple_and_in_their_half_of_the_object() {
        for bad in [".metadata.x", "spec.x", ".spec.a[0]", ".spec..x", "", ".status.x"] {
            let given = Scale {
                spec_replicas_path: bad.to_owned(),
                status_replicas_path: ".status.n".to_owned(),
                label_selector_path: None,
            };
            let fields: Vec<String> = scale("s", &given).into_iter().map(|cause| cause.field).collect();
            assert_eq!(fields, ["s.specReplicasPath"], "{bad}");
        }
    }
}
