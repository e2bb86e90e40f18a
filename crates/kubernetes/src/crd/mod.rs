//! A CustomResourceDefinition, and the kinds that it asks for.
//!
//! An object becomes a [`Definition`] only if its spec has the right form; [`validate`] says what is wrong
//! inside; [`status`] decides which names it gets. Its kinds are served once it is established, under the
//! names that were accepted, and from then on until it is gone.

pub mod status;
pub mod validate;

use crate::json_path::JsonPath;
use crate::names::NameRule;
use crate::registry::{
    ALL_VERBS, Column, ColumnSource, Kind, Origin, ScalePaths, Scope, SelectableField, Subresources,
};
use crate::schema::StoredDefaults;
use crate::status::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Keeps a definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
pub const GROUP: &str = "apiextensions.k8s.io";
pub const KIND: &str = "CustomResourceDefinition";

/// What is read of a definition. What the client wrote beyond that is kept in its object.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: String,
    pub spec: Spec,
    /// As it was: names and conditions are carried over from here.
    pub status: Value,
    pub terminating: bool,
    approval: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct Spec {
    pub group: String,
    pub names: Names,
    pub scope: String,
    pub versions: Vec<Version>,
    pub conversion: Option<Conversion>,
    pub preserve_unknown_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    pub deprecation_warning: Option<String>,
    pub schema: Option<VersionSchema>,
    pub subresources: Option<VersionSubresources>,
    pub additional_printer_columns: Vec<PrinterColumn>,
    pub selectable_fields: Vec<Selectable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct VersionSchema {
    #[serde(rename = "openAPIV3Schema")]
    pub open_api_v3: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct VersionSubresources {
    pub status: Option<Value>,
    pub scale: Option<Scale>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    pub spec_replicas_path: String,
    pub status_replicas_path: String,
    pub label_selector_path: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrinterColumn {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selectable {
    pub json_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conversion {
    pub strategy: String,
}

/// Fills in what follows from the rest. To be called on what is to be stored, before it is validated.
pub fn set_defaults(object: &mut Map<String, Value>) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({ "strategy": "None" });
    }
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned) else { return };
    for (field, default) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        let value = names.entry(field).or_insert(Value::Null);
        if value.is_null() || value == "" {
            *value = Value::String(default);
        }
    }
}

impl Definition {
    pub fn parse(object: &Value) -> Result<Definition, Refusal> {
        let spec = without_nulls(object.get("spec").cloned().unwrap_or(Value::Null));
        let spec = if spec.is_null() { Spec::default() } else { read_spec(spec)? };
        let metadata = &object["metadata"];
        let annotation = &metadata["annotations"]["api-approved.kubernetes.io"];
        Ok(Definition {
            name: metadata["name"].as_str().unwrap_or_default().to_owned(),
            spec,
            status: object.get("status").cloned().unwrap_or(Value::Null),
            terminating: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            approval: annotation.as_str().unwrap_or_default().to_owned(),
        })
    }

    pub fn is_established(&self) -> bool {
        status::condition(&self.status, "Established").is_some_and(|condition| condition["status"] == "True")
    }

    /// The version in which objects are stored.
    pub fn storage_version(&self) -> Option<&str> {
        self.spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str())
    }

    /// What is to be served. Nothing unless the definition is established.
    pub fn kinds(&self) -> Vec<Kind> {
        let (true, Some(storage)) = (self.is_established(), self.storage_version()) else {
            return Vec::new();
        };
        let names = self.accepted_names();
        let defaults = self.stored_defaults();
        let served = self.spec.versions.iter().filter(|version| version.served);
        served.map(|version| self.kind(&names, version, storage, defaults.clone())).collect()
    }

    /// The kind in the version in which its objects are stored, served or not; nothing unless the definition
    /// is established. For whoever has to reach all objects there are.
    pub fn stored_kind(&self) -> Option<Kind> {
        let version = self.spec.versions.iter().find(|version| version.storage)?;
        let (names, defaults) = (self.accepted_names(), self.stored_defaults());
        self.is_established().then(|| self.kind(&names, version, &version.name, defaults))
    }

    fn stored_defaults(&self) -> Option<Arc<StoredDefaults>> {
        let version = self.spec.versions.iter().find(|version| version.storage)?;
        StoredDefaults::of(version.schema.as_ref()?.open_api_v3.as_ref()?)
    }

    fn accepted_names(&self) -> Names {
        let accepted = without_nulls(self.status.get("acceptedNames").cloned().unwrap_or_default());
        serde_json::from_value(accepted).unwrap_or_default()
    }

    fn kind(
        &self,
        names: &Names,
        version: &Version,
        storage: &str,
        stored_defaults: Option<Arc<StoredDefaults>>,
    ) -> Kind {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3.clone());
        let origin = Origin::Custom { definition: self.name.clone(), schema, terminating: self.terminating };
        Kind {
            group: self.spec.group.clone(),
            version: version.name.clone(),
            kind: names.kind.clone(),
            list_kind: names.list_kind.clone(),
            plural: names.plural.clone(),
            singular: names.singular.clone(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            scope: if self.spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
            verbs: ALL_VERBS.iter().map(|verb| (*verb).to_owned()).collect(),
            subresources: version.subresources(),
            storage: Some(format!("{}/{}", self.spec.group, names.plural)),
            stored_as: format!("{}/{storage}", self.spec.group),
            stored_defaults,
            selectable: version.selectable_fields.iter().filter_map(Selectable::to_field).collect(),
            columns: version.columns(),
            name_rule: NameRule::DnsSubdomain,
            delete_returns_object: false,
            unconditional_update: false,
            create_on_update: false,
            has_spec: true,
            has_generation: true,
            origin,
        }
    }
}

fn read_spec(spec: Value) -> Result<Spec, Refusal> {
    serde_json::from_value(spec).map_err(|error| {
        Refusal::bad_request(format!("{KIND} in version \"v1\" cannot be handled: spec: {error}"))
    })
}

/// A field that is null is a field that is absent. Not below `versions[].schema`, where null may be a value;
/// there are at most four levels above it.
fn without_nulls(value: Value) -> Value {
    fn drop_nulls(value: Value, levels: u32) -> Value {
        match value {
            Value::Object(fields) if levels > 0 => fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| {
                    let levels = if name == "openAPIV3Schema" { 0 } else { levels - 1 };
                    (name, drop_nulls(value, levels))
                })
                .collect(),
            Value::Array(items) if levels > 0 => {
                items.into_iter().map(|item| drop_nulls(item, levels - 1)).collect()
            }
            other => other,
        }
    }
    drop_nulls(value, 6)
}

impl Version {
    fn subresources(&self) -> Subresources {
        let Some(given) = &self.subresources else { return Subresources::default() };
        Subresources {
            status: given.status.is_some(),
            scale: given.scale.as_ref().and_then(Scale::to_paths),
            finalize: false,
            pod_actions: false,
        }
    }

    /// The name first, then what the definition asks for, or else the age.
    fn columns(&self) -> Vec<Column> {
        let given = self.additional_printer_columns.iter().filter_map(PrinterColumn::to_column);
        let mut columns: Vec<Column> =
            column("Name", "string", ".metadata.name").into_iter().chain(given).collect();
        if columns.len() == 1 {
            columns.extend(column("Age", "date", ".metadata.creationTimestamp"));
        }
        for name in columns.iter_mut().take(1) {
            "name".clone_into(&mut name.format);
        }
        columns
    }
}

fn column(name: &str, data_type: &str, path: &str) -> Option<Column> {
    let given = PrinterColumn {
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        json_path: path.to_owned(),
        ..PrinterColumn::default()
    };
    given.to_column()
}

impl PrinterColumn {
    fn to_column(&self) -> Option<Column> {
        let path = JsonPath::parse(&self.json_path).ok()?;
        let is_date = self.data_type == "date";
        Some(Column {
            name: self.name.clone(),
            data_type: self.data_type.clone(),
            format: self.format.clone(),
            description: self.description.clone(),
            priority: self.priority,
            source: if is_date { ColumnSource::Since(path) } else { ColumnSource::Path(path) },
            missing: Value::Null,
        })
    }
}

impl Scale {
    fn to_paths(&self) -> Option<ScalePaths> {
        let selector = self.label_selector_path.as_deref().filter(|path| !path.is_empty());
        Some(ScalePaths {
            spec_replicas: JsonPath::parse(&self.spec_replicas_path).ok()?,
            status_replicas: JsonPath::parse(&self.status_replicas_path).ok()?,
            selector: selector.and_then(|path| JsonPath::parse(path).ok()),
        })
    }
}

impl Selectable {
    fn to_field(&self) -> Option<SelectableField> {
        let path = JsonPath::parse(&self.json_path).ok()?;
        let name = path.fields()?.join(".");
        Some(SelectableField { name, paths: vec![path], missing: String::new() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::timestamp::Timestamp;

    pub(crate) fn example() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": KIND,
            "metadata": { "name": "crontabs.stable.example.com" },
            "spec": {
                "group": "stable.example.com", "scope": "Namespaced",
                "names": {
                    "plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList",
                    "shortNames": ["ct"], "categories": null,
                },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": { "type": "object", "properties": {
                            "cronSpec": { "type": "string" }, "replicas": { "type": "integer", "default": null },
                        } },
                    } } },
                    "subresources": { "status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    } },
                    "additionalPrinterColumns": [
                        { "name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec" },
                        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                    ],
                    "selectableFields": [{ "jsonPath": ".spec.cronSpec" }],
                }],
            },
        })
    }

    pub(crate) fn now() -> Timestamp {
        Timestamp::parse("2024-01-31T12:00:00Z").expect("a time")
    }

    pub(crate) fn established(mut object: Value) -> Value {
        object["status"] = status::next(&object, &Registry::built_in(), now()).expect("a definition");
        object
    }

    #[test]
    fn an_established_definition_is_served_as_it_says() {
        let definition = Definition::parse(&established(example())).expect("good");
        let kinds = definition.kinds();
        let [kind] = kinds.as_slice() else { panic!("one version") };
        assert_eq!(
            (kind.api_version().as_str(), kind.plural.as_str()),
            ("stable.example.com/v1", "crontabs")
        );
        assert_eq!(kind.storage.as_deref(), Some("stable.example.com/crontabs"));
        assert_eq!(kind.subresources.names(), ["scale", "status"]);
        assert_eq!(kind.selectable[0].name, "spec.cronSpec");
        let columns: Vec<&str> = kind.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["Name", "Spec", "Age"]);
        let (_, schema) = kind.custom().expect("custom");
        let replicas = &schema.expect("a schema")["properties"]["spec"]["properties"]["replicas"];
        assert!(replicas.as_object().expect("kept whole").contains_key("default"));
        assert!(!kind.unconditional_update && kind.has_generation);
    }

    #[test]
    fn nothing_is_served_before_or_in_a_version_that_is_off() {
        assert!(Definition::parse(&example()).expect("good").kinds().is_empty());
        let mut object = established(example());
        object["spec"]["versions"][0]["served"] = json!(false);
        assert!(Definition::parse(&object).expect("good").kinds().is_empty());
    }

    #[test]
    fn without_columns_the_age_is_shown() {
        let mut object = established(example());
        object["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
        let kinds = Definition::parse(&object).expect("good").kinds();
        let columns: Vec<&str> = kinds[0].columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["Name", "Age"]);
    }

    #[test]
    fn defaults_follow_from_the_kind() {
        let mut object = example().as_object().expect("an object").clone();
        object["spec"]["names"] = json!({ "plural": "crontabs", "kind": "CronTab", "singular": "" });
        set_defaults(&mut object);
        assert_eq!(object["spec"]["names"]["singular"], "crontab");
        assert_eq!(object["spec"]["names"]["listKind"], "CronTabList");
        assert_eq!(object["spec"]["conversion"]["strategy"], "None");
    }

    #[test]
    fn a_spec_of_another_form_is_a_bad_request() {
        let mut object = example();
        object["spec"]["versions"] = json!("v1");
        assert_eq!(Definition::parse(&object).expect_err("no list").code(), 400);
    }
}
