//! The messages of the kinds that typed clients send and read as protobuf.
//!
//! Field numbers and names are those of Kubernetes' published `.proto` files. The same tables tell OpenAPI
//! what these kinds are made of. A field that `keeps_zero` may be present and zero; any other is absent
//! when it is.

/// A message, and the schema of a JSON object at the same time.
#[derive(Debug)]
pub struct Message {
    /// The name of its definition in OpenAPI.
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub number: u32,
    pub name: &'static str,
    pub of: Type,
    pub repeated: bool,
    pub keeps_zero: bool,
    /// How a strategic merge treats the list.
    pub merge: Merge,
}

/// What becomes of a list's old items in a strategic merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Replace,
    AsSet,
    /// Items are the same if this field of theirs is.
    ByKey(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub enum Type {
    Text,
    Int32,
    Int64,
    Bool,
    /// To the second in JSON.
    Time,
    MicroTime,
    TextMap,
    /// To Base64 in JSON.
    BytesMap,
    /// A message around the bytes of a JSON document.
    Json,
    /// An amount: a text in JSON.
    Quantity,
    QuantityMap,
    TimeMap,
    IntOrString,
    Message(&'static Message),
    /// A message whose fields are those of its holder in JSON.
    Inline(&'static Message),
}

const fn field(number: u32, name: &'static str, of: Type) -> Field {
    Field { number, name, of, repeated: false, keeps_zero: false, merge: Merge::Replace }
}

impl Field {
    const fn keeps_zero(mut self) -> Field {
        self.keeps_zero = true;
        self
    }

    const fn list(mut self, merge: Merge) -> Field {
        self.repeated = true;
        self.merge = merge;
        self
    }
}

use Merge::{AsSet, ByKey, Replace};
use Type::{Bool, BytesMap, Int32, Int64, Json, MicroTime, Text, TextMap, Time};

macro_rules! messages {
    ($($name:ident = $definition:literal, $about:literal { $($fields:expr),* $(,)? })*) => {
        $(pub static $name: Message = Message { name: $definition, about: $about, fields: &[$($fields),*] };)*

        #[cfg(test)]
        static ALL: &[&Message] = &[$(&$name),*];
    };
}

messages! {
    OWNER_REFERENCE = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", "An object that this one belongs to." {
        field(1, "kind", Text), field(3, "name", Text), field(4, "uid", Text), field(5, "apiVersion", Text),
        field(6, "controller", Bool).keeps_zero(), field(7, "blockOwnerDeletion", Bool).keeps_zero(),
    }
    MANAGED_FIELDS = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", "The fields that one manager set." {
        field(1, "manager", Text), field(2, "operation", Text), field(3, "apiVersion", Text), field(4, "time", Time),
        field(6, "fieldsType", Text), field(7, "fieldsV1", Json), field(8, "subresource", Text),
    }
    OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "What every object has: its name, its labels, its history." {
        field(1, "name", Text), field(2, "generateName", Text), field(3, "namespace", Text),
        field(4, "selfLink", Text), field(5, "uid", Text), field(6, "resourceVersion", Text),
        field(7, "generation", Int64), field(8, "creationTimestamp", Time), field(9, "deletionTimestamp", Time),
        field(10, "deletionGracePeriodSeconds", Int64).keeps_zero(), field(11, "labels", TextMap),
        field(12, "annotations", TextMap),
        field(13, "ownerReferences", Type::Message(&OWNER_REFERENCE)).list(ByKey("uid")),
        field(14, "finalizers", Text).list(AsSet),
        field(17, "managedFields", Type::Message(&MANAGED_FIELDS)).list(Replace),
    }
    LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", "Where in history a list was read, and where it goes on." {
        field(1, "selfLink", Text), field(2, "resourceVersion", Text), field(3, "continue", Text),
        field(4, "remainingItemCount", Int64).keeps_zero(),
    }
    STATUS_CAUSE = "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause", "One of the things that are wrong." {
        field(1, "reason", Text), field(2, "message", Text), field(3, "field", Text),
    }
    STATUS_DETAILS = "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", "What a Status is about." {
        field(1, "name", Text), field(2, "group", Text), field(3, "kind", Text),
        field(4, "causes", Type::Message(&STATUS_CAUSE)).list(Replace), field(5, "retryAfterSeconds", Int32),
        field(6, "uid", Text),
    }
    STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status", "The outcome of a request that returns no object." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "status", Text), field(3, "message", Text),
        field(4, "reason", Text), field(5, "details", Type::Message(&STATUS_DETAILS)), field(6, "code", Int32),
    }
    PRECONDITIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions", "What must hold for a delete to be done." {
        field(1, "uid", Text).keeps_zero(), field(2, "resourceVersion", Text).keeps_zero(),
    }
    DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "How an object is to be deleted." {
        field(1, "gracePeriodSeconds", Int64).keeps_zero(), field(2, "preconditions", Type::Message(&PRECONDITIONS)),
        field(3, "orphanDependents", Bool).keeps_zero(), field(4, "propagationPolicy", Text).keeps_zero(),
        field(5, "dryRun", Text).list(Replace),
    }
    PARTIAL = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata", "An object reduced to its metadata." {
        field(1, "metadata", Type::Message(&OBJECT_META)),
    }
    PARTIAL_LIST = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList", "A list reduced to metadata." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&PARTIAL)).list(Replace),
    }
    NAMESPACE_CONDITION = "io.k8s.api.core.v1.NamespaceCondition", "How the deletion of a namespace goes." {
        field(1, "type", Text), field(2, "status", Text), field(4, "lastTransitionTime", Time),
        field(5, "reason", Text), field(6, "message", Text),
    }
    NAMESPACE_SPEC = "io.k8s.api.core.v1.NamespaceSpec", "What keeps a namespace." {
        field(1, "finalizers", Text).list(Replace),
    }
    NAMESPACE_STATUS = "io.k8s.api.core.v1.NamespaceStatus", "Whether a namespace is in use or going." {
        field(1, "phase", Text),
        field(2, "conditions", Type::Message(&NAMESPACE_CONDITION)).list(ByKey("type")),
    }
    NAMESPACE = "io.k8s.api.core.v1.Namespace", "A scope for the names of objects." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "spec", Type::Message(&NAMESPACE_SPEC)),
        field(3, "status", Type::Message(&NAMESPACE_STATUS)),
    }
    NAMESPACE_LIST = "io.k8s.api.core.v1.NamespaceList", "A list of namespaces." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&NAMESPACE)).list(Replace),
    }
    CONFIG_MAP = "io.k8s.api.core.v1.ConfigMap", "Settings for others to read." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "data", TextMap),
        field(3, "binaryData", BytesMap), field(4, "immutable", Bool).keeps_zero(),
    }
    CONFIG_MAP_LIST = "io.k8s.api.core.v1.ConfigMapList", "A list of config maps." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&CONFIG_MAP)).list(Replace),
    }
    SECRET = "io.k8s.api.core.v1.Secret", "Data that not everybody may read." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "data", BytesMap), field(3, "type", Text),
        field(4, "stringData", TextMap), field(5, "immutable", Bool).keeps_zero(),
    }
    SECRET_LIST = "io.k8s.api.core.v1.SecretList", "A list of secrets." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&SECRET)).list(Replace),
    }
    OBJECT_REFERENCE = "io.k8s.api.core.v1.ObjectReference", "Which object is meant." {
        field(1, "kind", Text), field(2, "namespace", Text), field(3, "name", Text), field(4, "uid", Text),
        field(5, "apiVersion", Text), field(6, "resourceVersion", Text), field(7, "fieldPath", Text),
    }
    LOCAL_REFERENCE = "io.k8s.api.core.v1.LocalObjectReference", "Which object of the same namespace is meant." {
        field(1, "name", Text),
    }
    SERVICE_ACCOUNT = "io.k8s.api.core.v1.ServiceAccount", "Whom a program acts as." {
        field(1, "metadata", Type::Message(&OBJECT_META)),
        field(2, "secrets", Type::Message(&OBJECT_REFERENCE)).list(ByKey("name")),
        field(3, "imagePullSecrets", Type::Message(&LOCAL_REFERENCE)).list(Replace),
        field(4, "automountServiceAccountToken", Bool).keeps_zero(),
    }
    SERVICE_ACCOUNT_LIST = "io.k8s.api.core.v1.ServiceAccountList", "A list of service accounts." {
        field(1, "metadata", Type::Message(&LIST_META)),
        field(2, "items", Type::Message(&SERVICE_ACCOUNT)).list(Replace),
    }
    EVENT_SOURCE = "io.k8s.api.core.v1.EventSource", "Who tells of an event." {
        field(1, "component", Text), field(2, "host", Text),
    }
    EVENT_SERIES = "io.k8s.api.core.v1.EventSeries", "How often an event happened." {
        field(1, "count", Int32), field(2, "lastObservedTime", MicroTime),
    }
    EVENT = "io.k8s.api.core.v1.Event", "Something that happened to an object." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "involvedObject", Type::Message(&OBJECT_REFERENCE)),
        field(3, "reason", Text), field(4, "message", Text), field(5, "source", Type::Message(&EVENT_SOURCE)),
        field(6, "firstTimestamp", Time), field(7, "lastTimestamp", Time), field(8, "count", Int32),
        field(9, "type", Text), field(10, "eventTime", MicroTime), field(11, "series", Type::Message(&EVENT_SERIES)),
        field(12, "action", Text), field(13, "related", Type::Message(&OBJECT_REFERENCE)),
        field(14, "reportingComponent", Text), field(15, "reportingInstance", Text),
    }
    EVENT_LIST = "io.k8s.api.core.v1.EventList", "A list of events." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&EVENT)).list(Replace),
    }
    OTHER_EVENT_SERIES = "io.k8s.api.events.v1.EventSeries", "How often an event happened." {
        field(1, "count", Int32), field(2, "lastObservedTime", MicroTime),
    }
    OTHER_EVENT = "io.k8s.api.events.v1.Event", "Something that happened to an object." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "eventTime", MicroTime),
        field(3, "series", Type::Message(&OTHER_EVENT_SERIES)), field(4, "reportingController", Text),
        field(5, "reportingInstance", Text), field(6, "action", Text), field(7, "reason", Text),
        field(8, "regarding", Type::Message(&OBJECT_REFERENCE)), field(9, "related", Type::Message(&OBJECT_REFERENCE)),
        field(10, "note", Text), field(11, "type", Text), field(12, "deprecatedSource", Type::Message(&EVENT_SOURCE)),
        field(13, "deprecatedFirstTimestamp", Time), field(14, "deprecatedLastTimestamp", Time),
        field(15, "deprecatedCount", Int32),
    }
    OTHER_EVENT_LIST = "io.k8s.api.events.v1.EventList", "A list of events." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&OTHER_EVENT)).list(Replace),
    }
    LEASE_SPEC = "io.k8s.api.coordination.v1.LeaseSpec", "Who holds a lease, and until when." {
        field(1, "holderIdentity", Text).keeps_zero(), field(2, "leaseDurationSeconds", Int32).keeps_zero(),
        field(3, "acquireTime", MicroTime), field(4, "renewTime", MicroTime),
        field(5, "leaseTransitions", Int32).keeps_zero(), field(6, "strategy", Text).keeps_zero(),
        field(7, "preferredHolder", Text).keeps_zero(),
    }
    LEASE = "io.k8s.api.coordination.v1.Lease", "What one of many holds at a time." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "spec", Type::Message(&LEASE_SPEC)),
    }
    LEASE_LIST = "io.k8s.api.coordination.v1.LeaseList", "A list of leases." {
        field(1, "metadata", Type::Message(&LIST_META)), field(2, "items", Type::Message(&LEASE)).list(Replace),
    }
    SCALE_SPEC = "io.k8s.api.autoscaling.v1.ScaleSpec", "How many replicas are wanted." { field(1, "replicas", Int32).keeps_zero() }
    SCALE_STATUS = "io.k8s.api.autoscaling.v1.ScaleStatus", "How many replicas there are." {
        field(1, "replicas", Int32).keeps_zero(), field(2, "selector", Text),
    }
    SCALE = "io.k8s.api.autoscaling.v1.Scale", "The size of something that can grow and shrink." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "spec", Type::Message(&SCALE_SPEC)),
        field(3, "status", Type::Message(&SCALE_STATUS)),
    }
    RESOURCE_ATTRIBUTES = "io.k8s.api.authorization.v1.ResourceAttributes", "A request for a resource." {
        field(1, "namespace", Text), field(2, "verb", Text), field(3, "group", Text), field(4, "version", Text),
        field(5, "resource", Text), field(6, "subresource", Text), field(7, "name", Text),
    }
    OTHER_ATTRIBUTES = "io.k8s.api.authorization.v1.NonResourceAttributes", "A request for a path." {
        field(1, "path", Text), field(2, "verb", Text),
    }
    REVIEW_SPEC = "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec", "What one would like to do." {
        field(1, "resourceAttributes", Type::Message(&RESOURCE_ATTRIBUTES)),
        field(2, "nonResourceAttributes", Type::Message(&OTHER_ATTRIBUTES)),
    }
    REVIEW_STATUS = "io.k8s.api.authorization.v1.SubjectAccessReviewStatus", "Whether one may." {
        field(1, "allowed", Bool).keeps_zero(), field(2, "reason", Text), field(3, "evaluationError", Text),
        field(4, "denied", Bool),
    }
    REVIEW = "io.k8s.api.authorization.v1.SelfSubjectAccessReview", "Asks whether one may do something." {
        field(1, "metadata", Type::Message(&OBJECT_META)), field(2, "spec", Type::Message(&REVIEW_SPEC)),
        field(3, "status", Type::Message(&REVIEW_STATUS)),
    }
}

/// The message of an object of this kind, if it has one here.
pub fn message(api_version: &str, kind: &str) -> Option<&'static Message> {
    Some(match (api_version, kind) {
        // Clients name the group to which they talk.
        (_, "DeleteOptions") => &DELETE_OPTIONS,
        ("v1" | "meta.k8s.io/v1", "Status") => &STATUS,
        ("meta.k8s.io/v1", "PartialObjectMetadata") => &PARTIAL,
        ("meta.k8s.io/v1", "PartialObjectMetadataList") => &PARTIAL_LIST,
        ("v1", "Namespace") => &NAMESPACE,
        ("v1", "NamespaceList") => &NAMESPACE_LIST,
        ("v1", "ConfigMap") => &CONFIG_MAP,
        ("v1", "ConfigMapList") => &CONFIG_MAP_LIST,
        ("v1", "Secret") => &SECRET,
        ("v1", "SecretList") => &SECRET_LIST,
        ("v1", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("v1", "ServiceAccountList") => &SERVICE_ACCOUNT_LIST,
        ("v1", "Event") => &EVENT,
        ("v1", "EventList") => &EVENT_LIST,
        ("events.k8s.io/v1", "Event") => &OTHER_EVENT,
        ("events.k8s.io/v1", "EventList") => &OTHER_EVENT_LIST,
        ("coordination.k8s.io/v1", "Lease") => &LEASE,
        ("coordination.k8s.io/v1", "LeaseList") => &LEASE_LIST,
        ("autoscaling/v1", "Scale") => &SCALE,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => &REVIEW,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_message_has_a_number_or_a_name_twice() {
        let mut messages = BTreeSet::new();
        for message in ALL {
            assert!(messages.insert(message.name), "{}", message.name);
            let mut seen = BTreeSet::new();
            for field in message.fields {
                assert!(seen.insert(field.number.to_string()), "{} {}", message.name, field.number);
                assert!(seen.insert(field.name.to_owned()), "{} {}", message.name, field.name);
                let plain_list = !field.repeated || matches!(field.of, Text | Type::Message(_));
                assert!(plain_list, "{} {}", message.name, field.name);
            }
        }
    }
}
