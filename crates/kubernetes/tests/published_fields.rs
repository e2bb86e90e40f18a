//! The tables of built-in kinds against the crate `k8s-pb`, field by field: an object that has every field
//! of its kind, each text filled with its own name, goes to protobuf, is read by the crate, and comes back.

use k8s_pb::Resource;
use k8s_pb::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v1 as autoscaling1, autoscaling::v2 as autoscaling,
    batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_pb::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use meerkat_kubernetes::protobuf;
use meerkat_kubernetes::published::{self, Field, Message, Shape, Type};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Fields that are younger than the crate, which has those of 1.35.
const YOUNGER: &[&str] = &[
    "core.PodSpec.schedulingGroup",
    "core.PodStatus.nodeAllocatableResourceClaimStatuses",
    "core.ResourceHealth.message",
    "core.VolumeMountStatus.volumeStatus",
    "meta.ListMeta.shardInfo",
    "storage.CSIDriverSpec.preventPodSchedulingIfMissing",
];

/// Fields of the crate that 1.36 has no more, as [`normal`].
const GONE: &[&str] = &["workloadref"];

/// All that the kinds were found to differ by, so that one run tells everything.
#[derive(Default)]
struct Findings {
    kinds: BTreeSet<(String, String)>,
    lost: BTreeSet<String>,
    names: Vec<String>,
}

macro_rules! compare_kinds {
    ($($kind:ty),* $(,)?) => {
        fn compare_kinds(findings: &mut Findings) {
            $(compare::<$kind>(<$kind>::API_VERSION, <$kind>::KIND, findings);)*
        }
    };
}

compare_kinds!(
    admission::MutatingWebhookConfiguration,
    admission::ValidatingWebhookConfiguration,
    apiextensions::CustomResourceDefinition,
    apiregistration::APIService,
    apps::ControllerRevision,
    apps::DaemonSet,
    apps::Deployment,
    apps::ReplicaSet,
    apps::StatefulSet,
    authentication::SelfSubjectReview,
    authentication::TokenReview,
    authorization::LocalSubjectAccessReview,
    authorization::SelfSubjectAccessReview,
    authorization::SelfSubjectRulesReview,
    authorization::SubjectAccessReview,
    autoscaling1::HorizontalPodAutoscaler,
    autoscaling::HorizontalPodAutoscaler,
    batch::CronJob,
    batch::Job,
    certificates::CertificateSigningRequest,
    coordination::Lease,
    core::Binding,
    core::ConfigMap,
    core::Endpoints,
    core::Event,
    core::LimitRange,
    core::Namespace,
    core::Node,
    core::PersistentVolume,
    core::PersistentVolumeClaim,
    core::Pod,
    core::PodTemplate,
    core::ReplicationController,
    core::ResourceQuota,
    core::Secret,
    core::Service,
    core::ServiceAccount,
    discovery::EndpointSlice,
    events::Event,
    networking::Ingress,
    networking::IngressClass,
    networking::NetworkPolicy,
    node::RuntimeClass,
    policy::PodDisruptionBudget,
    rbac::ClusterRole,
    rbac::ClusterRoleBinding,
    rbac::Role,
    rbac::RoleBinding,
    scheduling::PriorityClass,
    storage::CSIDriver,
    storage::CSINode,
    storage::StorageClass,
    storage::VolumeAttachment,
);

#[test]
fn every_field_has_the_number_the_type_and_the_name_that_another_library_has_for_it() {
    let mut findings = Findings::default();
    compare_kinds(&mut findings);
    compare::<autoscaling1::Scale>("autoscaling/v1", "Scale", &mut findings);
    compare::<authentication::TokenRequest>("authentication.k8s.io/v1", "TokenRequest", &mut findings);
    compare::<policy::Eviction>("policy/v1", "Eviction", &mut findings);
    compare::<meta::DeleteOptions>("v1", "DeleteOptions", &mut findings);
    compare::<meta::Status>("v1", "Status", &mut findings);
    compare::<meta::Status>("meta.k8s.io/v1", "Status", &mut findings);
    compare::<meta::PartialObjectMetadata>("meta.k8s.io/v1", "PartialObjectMetadata", &mut findings);

    let lost: Vec<&str> = findings.lost.iter().map(String::as_str).collect();
    assert_eq!(lost, YOUNGER, "fields that only the tables have");
    assert_eq!(findings.names, [""; 0], "names that differ");
    for (api_version, kind) in published::kinds() {
        let of = (api_version.replace('*', "v1"), kind.to_owned());
        let item = kind.strip_suffix("List").and_then(|item| published::message(api_version, item));
        match item {
            Some(item) => check_list(published::message(api_version, kind).expect("a list"), item),
            None => assert!(findings.kinds.contains(&of), "{of:?} was not compared"),
        }
    }
}

fn check_list(list: &Message, item: &Message) {
    let [metadata, items] = list.fields() else { panic!("{} has two fields", list.name) };
    let of = |field: &Field| match field.of {
        Type::Message(of) => of.name,
        _ => "",
    };
    assert_eq!((metadata.number, of(metadata)), (1, "meta.ListMeta"), "{}", list.name);
    assert_eq!((items.number, items.shape, of(items)), (2, Shape::List, item.name), "{}", list.name);
}

fn compare<T: prost::Message + Default + Debug>(api_version: &str, kind: &str, findings: &mut Findings) {
    let message = published::message(api_version, kind).unwrap_or_else(|| panic!("{kind} has a table"));
    let object = Value::Object(filled(message, &mut Vec::new()));
    let envelope = |value: &Value| {
        let mut value = value.clone();
        value["apiVersion"] = json!(api_version);
        value["kind"] = json!(kind);
        protobuf::encode(&value).expect("it has a form")
    };
    let (bytes, empty) = (envelope(&object), envelope(&json!({})));
    let theirs = T::decode(inside(&bytes)).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let again = [&empty[..head(&empty)], &prefixed(&theirs.encode_to_vec()), &[0x1a, 0, 0x22, 0]].concat();
    let mut again = protobuf::decode(&again).expect("good");
    for field in ["apiVersion", "kind"] {
        again.as_object_mut().expect("an object").remove(field);
    }
    lose(message, &object, &again, &mut findings.lost);
    let (mut ours, mut others) = (Vec::new(), names_of(&format!("{theirs:#?}")));
    names(message, &object, &findings.lost, &mut ours);
    ours.sort();
    others.sort();
    if ours != others {
        let differ = |these: &[String], those: &[String]| -> Vec<String> {
            let count = |all: &[String], name: &String| all.iter().filter(|each| *each == name).count();
            let more = these.iter().filter(|name| count(those, name) < count(these, name)).cloned();
            more.collect::<BTreeSet<_>>().into_iter().collect()
        };
        let (only_ours, only_theirs) = (differ(&ours, &others), differ(&others, &ours));
        findings.names.push(format!("{kind}: ours {only_ours:?}, theirs {only_theirs:?}"));
    }
    findings.kinds.insert((api_version.to_owned(), kind.to_owned()));
}

/// Where the envelope's second field begins.
fn head(bytes: &[u8]) -> usize {
    6 + usize::from(bytes[5])
}

/// What the envelope's second field holds.
fn inside(bytes: &[u8]) -> &[u8] {
    let mut rest = &bytes[head(bytes) + 1..];
    let length = prost::encoding::decode_varint(&mut rest).expect("a length");
    &rest[..usize::try_from(length).expect("short")]
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![0x12];
    prost::encoding::encode_varint(bytes.len() as u64, &mut all);
    [all.as_slice(), bytes].concat()
}

/// An object with every field; where a message would be inside of itself the field is left out.
fn filled(message: &'static Message, above: &mut Vec<&'static str>) -> Map<String, Value> {
    above.push(message.name);
    let mut object = Map::new();
    for field in message.fields() {
        if let Type::Inline(inner) = field.of {
            object.extend(filled(inner, above));
        } else if let Some(value) = sample(field, above) {
            let value = match field.shape {
                Shape::One => value,
                Shape::List => json!([value]),
                Shape::Map => json!({ "key": value }),
            };
            object.insert(field.name.to_owned(), value);
        }
    }
    above.pop();
    object
}

fn sample(field: &Field, above: &mut Vec<&'static str>) -> Option<Value> {
    let mut inside = |message: &'static Message| {
        let is_new = !above.contains(&message.name);
        is_new.then(|| Value::Object(filled(message, above)))
    };
    Some(match field.of {
        Type::Text => json!(field.name),
        Type::Int32 | Type::Int64 => json!(field.number),
        Type::Bool => json!(true),
        Type::Double => json!(0.5),
        Type::Bytes => json!("AQ=="),
        Type::Json => json!({ "a": 1 }),
        Type::Time => json!("2024-01-31T12:00:00Z"),
        Type::MicroTime => json!("2024-01-31T12:00:00.000001Z"),
        Type::Quantity => json!("1500m"),
        Type::IntOrString => json!(field.name),
        Type::Texts | Type::SchemaOrTexts => json!([field.name]),
        Type::SchemaOrBool => json!(true),
        Type::SchemaOrList => json!([{}]),
        Type::Message(message) | Type::Inline(message) => inside(message)?,
    })
}

/// Notes the fields that did not come back, and that the others did.
fn lose(message: &Message, sent: &Value, back: &Value, lost: &mut BTreeSet<String>) {
    for field in message.fields() {
        if let Type::Inline(inner) = field.of {
            lose(inner, sent, back, lost);
            continue;
        }
        let (Some(sent), back) = (sent.get(field.name), back.get(field.name)) else { continue };
        let Some(back) = back else {
            lost.insert(format!("{}.{}", message.name, field.name));
            continue;
        };
        let inner = |value: &Value| match field.shape {
            Shape::One => value.clone(),
            Shape::List => value[0].clone(),
            Shape::Map => value["key"].clone(),
        };
        match field.of {
            Type::Message(of) => lose(of, &inner(sent), &inner(back), lost),
            _ => assert_eq!(sent, back, "{} {}", message.name, field.name),
        }
    }
}

/// The names of all fields of an object, as [`normal`], with those inside of what JSON tells in one value.
fn names(message: &Message, object: &Value, lost: &BTreeSet<String>, all: &mut Vec<String>) {
    for field in message.fields() {
        if lost.contains(&format!("{}.{}", message.name, field.name)) {
            continue;
        }
        all.push(normal(field.name));
        if let Type::Inline(inner) = field.of {
            names(inner, object, lost, all);
            continue;
        }
        let Some(value) = object.get(field.name) else { continue };
        let value = match field.shape {
            Shape::One => value,
            Shape::List => &value[0],
            Shape::Map => &value["key"],
        };
        let inside: &[&str] = match field.of {
            Type::Message(inner) => {
                names(inner, value, lost, all);
                &[]
            }
            Type::Json => &["raw"],
            Type::Time | Type::MicroTime => &["seconds", "nanos"],
            Type::Quantity => &["string"],
            Type::IntOrString => &["type", "intval", "strval"],
            Type::Texts => &["items"],
            Type::SchemaOrBool => &["allows", "schema"],
            Type::SchemaOrTexts => &["property", "schema"],
            Type::SchemaOrList => {
                names(published::schema(), &value[0], lost, all);
                &["jsonschemas", "schema"]
            }
            _ => &[],
        };
        all.extend(inside.iter().map(|name| (*name).to_owned()));
    }
}

/// The fields in the debug form of a message, one in a line.
fn names_of(debug: &str) -> Vec<String> {
    let field = |line: &str| {
        let (name, _) = line.trim_start().split_once(": ")?;
        let name = name.strip_prefix("r#").unwrap_or(name);
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        name.chars().all(plain).then(|| normal(name))
    };
    debug.lines().filter_map(field).filter(|name| !GONE.contains(&name.as_str())).collect()
}

/// Without what the two spell differently.
fn normal(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}
