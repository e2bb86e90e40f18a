//! One kind in one version: its names, where its objects live, and how they are chosen and shown.
//!
//! Selectable fields and columns read the form in which an object is stored, see [`crate::stored_form`].

use crate::json_path::JsonPath;
use crate::names::NameRule;
use crate::published::{self, Message};
use crate::schema::StoredDefaults;
use crate::status::GroupResource;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Clone, Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    pub verbs: Vec<String>,
    pub subresources: Subresources,
    /// The key below `/registry/`; nothing if objects of this kind are answered and never kept.
    pub storage: Option<String>,
    /// The group and version in which objects are stored: `apps/v1`.
    pub stored_as: String,
    /// What is filled in where a stored object lacks it. Of all versions of a kind the same.
    pub stored_defaults: Option<Arc<StoredDefaults>>,
    /// Beside `metadata.name` and `metadata.namespace`, which every kind has.
    pub selectable: Vec<SelectableField>,
    pub columns: Vec<Column>,
    pub name_rule: NameRule,
    /// A delete answers with the object that is gone, not with a Status.
    pub delete_returns_object: bool,
    /// A PUT without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// A PUT of an object that is not there creates it.
    pub create_on_update: bool,
    /// What is wanted is told in a `spec`.
    pub has_spec: bool,
    /// `metadata.generation` counts the changes of what is wanted.
    pub has_generation: bool,
    pub origin: Origin,
}

/// Whence a kind came.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    BuiltIn,
    Custom {
        /// The name of the CustomResourceDefinition.
        definition: String,
        /// `openAPIV3Schema` of this version.
        schema: Option<Value>,
        /// The definition is being deleted: what there is can be read, and nothing new comes.
        terminating: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subresources {
    pub status: bool,
    pub scale: Option<ScalePaths>,
    /// Namespaces only.
    pub finalize: bool,
    /// Bindings and evictions: pods only.
    pub pod_actions: bool,
}

impl Subresources {
    /// As in a path, by name.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            ("binding", self.pod_actions),
            ("eviction", self.pod_actions),
            ("finalize", self.finalize),
            ("scale", self.scale.is_some()),
            ("status", self.status),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }
}

/// Where an object keeps what a Scale shows.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    pub spec_replicas: JsonPath,
    pub status_replicas: JsonPath,
    /// To a selector in its string form, or to a label selector or a map of labels.
    pub selector: Option<JsonPath>,
}

/// A field by which lists and watches can be narrowed.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableField {
    /// As in a field selector: `spec.nodeName`.
    pub name: String,
    /// The first that leads to something not empty counts.
    pub paths: Vec<JsonPath>,
    /// The value of an object that has none.
    pub missing: String,
}

impl SelectableField {
    /// What a selector compares with.
    pub fn value(&self, object: &Value) -> String {
        let found = self.paths.iter().filter_map(|path| path.first(object)).find_map(scalar);
        found.unwrap_or_else(|| self.missing.clone())
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub data_type: String,
    pub format: String,
    pub description: String,
    /// Above zero: only shown to those who ask for more.
    pub priority: i64,
    pub source: ColumnSource,
    /// Shown when a path leads to nothing.
    pub missing: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ColumnSource {
    Path(JsonPath),
    /// How long ago the time is to which the path leads.
    Since(JsonPath),
    Named(NamedCell),
}

/// What needs more than a path to be told. See `table/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedCell {
    AccessModes,
    ActiveCount,
    Age,
    ClaimAccessModes,
    ClassParameters,
    Containers,
    Controller,
    DataCount,
    DriverCount,
    Endpoints,
    EventCount,
    EventFirstSeen,
    EventLastSeen,
    EventMessage,
    EventObject,
    EventSource,
    Images,
    IngressClass,
    IngressHosts,
    IngressPorts,
    JobCompletions,
    JobDuration,
    JobStatus,
    JobTemplateSelector,
    LastSchedule,
    LoadBalancer,
    NodeRoles,
    NodeSelector,
    NodeStatus,
    PodIp,
    PodLabels,
    PodReadinessGates,
    PodReady,
    PodRestarts,
    PodSelector,
    PodStatus,
    QuotaLimits,
    QuotaRequests,
    ReplicasReady,
    Role,
    ScaleMetrics,
    ScaleTarget,
    Selector,
    ServiceExternalIp,
    ServicePorts,
    SliceEndpoints,
    SlicePorts,
    SubjectAccounts,
    SubjectGroups,
    SubjectUsers,
    VolumeClaim,
    VolumeStatus,
    WebhookCount,
}

impl Kind {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// `apps/v1`, or `v1`.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|each| each == verb)
    }

    /// The definition and schema of a custom kind.
    pub fn custom(&self) -> Option<(&str, Option<&Value>)> {
        match &self.origin {
            Origin::BuiltIn => None,
            Origin::Custom { definition, schema, .. } => Some((definition, schema.as_ref())),
        }
    }

    /// What a built-in kind is made of.
    pub fn published(&self) -> Option<&'static Message> {
        if self.custom().is_some() { None } else { published::message(&self.api_version(), &self.kind) }
    }

    pub fn is_terminating(&self) -> bool {
        matches!(self.origin, Origin::Custom { terminating: true, .. })
    }

    pub fn is_of(&self, definition: &str) -> bool {
        self.custom().is_some_and(|(name, _)| name == definition)
    }

    /// The field of that name, if objects can be chosen by it.
    pub fn selectable_field(&self, name: &str) -> Option<&SelectableField> {
        self.selectable.iter().find(|field| field.name == name)
    }
}

pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
