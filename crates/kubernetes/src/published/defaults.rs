//! What Kubernetes says of absent fields of its own kinds, filled in.
//!
//! Most of it is data, `defaults.txt`; here is what depends on more than one field. Clients rely on these:
//! one that reads a pointer which Kubernetes never leaves empty stops at an object without it.
//!
//! A default goes where its message is. A message that Go holds by value is always there, one behind a
//! pointer, in a list or in a map only if the object has it.

use super::{Message, Shape, Type, named};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

const FILE: &str = include_str!("defaults.txt");

static RULES: LazyLock<HashMap<&'static str, Vec<Rule>>> = LazyLock::new(read);

/// The messages with a rule in the file or here.
const RULED: &[&str] = &[
    "core.Container",
    "core.EphemeralContainerCommon",
    "core.LimitRangeItem",
    "core.Pod",
    "core.ReplicationController",
    "core.ServicePort",
    "core.Volume",
    "autoscaling.HorizontalPodAutoscaler",
    "batch.Job",
    "networking.NetworkPolicy",
];

struct Rule {
    path: Vec<&'static str>,
    value: Value,
    condition: Option<(Vec<&'static str>, Vec<&'static str>)>,
}

type Fields = Map<String, Value>;

/// Fills in an object of a kind; no field that is there and means something is touched.
pub fn fill(message: &'static Message, object: &mut Fields) {
    for rule in RULES.get(message.name).into_iter().flatten() {
        let is_met = rule.condition.as_ref().is_none_or(|(path, words)| {
            let found = at(object, path).map(|value| value.as_str().unwrap_or("?"));
            words.contains(&found.unwrap_or_default())
        });
        if is_met {
            put(message, object, &rule.path, &rule.value);
        }
    }
    by_code(message.name, object);
    for field in message.fields() {
        let (Type::Message(inner) | Type::Inline(inner)) = field.of else { continue };
        if !concerned(inner) {
            continue;
        }
        match (field.of, field.shape, object.get_mut(field.name)) {
            (Type::Inline(_), ..) => fill(inner, object),
            (_, Shape::One, Some(Value::Object(fields))) => fill(inner, fields),
            (_, Shape::One, None) if !field.keeps_zero => {
                let mut fields = Map::new();
                fill(inner, &mut fields);
                if !fields.is_empty() {
                    object.insert(field.name.to_owned(), Value::Object(fields));
                }
            }
            (_, Shape::List, Some(Value::Array(items))) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| fill(inner, item));
            }
            (_, Shape::Map, Some(Value::Object(entries))) => {
                entries.values_mut().filter_map(Value::as_object_mut).for_each(|item| fill(inner, item));
            }
            _ => {}
        }
    }
}

/// Whether a rule is for a message, or for one inside of it.
fn concerned(message: &Message) -> bool {
    static CONCERNED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
        let mut found = HashSet::new();
        let mut seen = HashSet::new();
        super::kinds().filter_map(|(version, kind)| super::message(version, kind)).for_each(|message| {
            search(message, &mut seen, &mut found);
        });
        found
    });
    CONCERNED.contains(message.name)
}

fn search(
    message: &'static Message,
    seen: &mut HashSet<&'static str>,
    found: &mut HashSet<&'static str>,
) -> bool {
    if !seen.insert(message.name) {
        return found.contains(message.name);
    }
    let mut is_concerned = RULES.contains_key(message.name) || RULED.contains(&message.name);
    for field in message.fields() {
        if let Type::Message(inner) | Type::Inline(inner) = field.of {
            is_concerned |= search(inner, seen, found);
        }
    }
    if is_concerned {
        found.insert(message.name);
    }
    is_concerned
}

fn read() -> HashMap<&'static str, Vec<Rule>> {
    let mut rules: HashMap<_, Vec<Rule>> = HashMap::new();
    let path = |text: &'static str| text.split('.').collect();
    for line in FILE.lines().filter(|line| !line.starts_with('#')) {
        let (line, condition) =
            line.split_once(" when ").map_or((line, None), |(line, condition)| (line, Some(condition)));
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} is no line of defaults.txt"));
        let (message, place, value) = (word(), path(word()), word());
        let value = serde_json::from_str(value).unwrap_or_else(|_| panic!("{line:?} has no value"));
        let condition = condition.map(|condition| {
            let (place, words) = condition.split_once('=').expect("a condition of defaults.txt");
            (path(place), words.split('|').collect())
        });
        rules.entry(named(message).name).or_default().push(Rule { path: place, value, condition });
    }
    rules
}

fn at<'a>(object: &'a Fields, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = object.get(*first)?;
    if rest.is_empty() { Some(value) } else { at(value.as_object()?, rest) }
}

/// At a place that has nothing, or a zero that means nothing.
fn put(message: &Message, object: &mut Fields, path: &[&str], value: &Value) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(field) = message.field(first) else { return };
    if rest.is_empty() {
        let is_absent = match object.get(*first) {
            None | Some(Value::Null) => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::String(text)) => text.is_empty() && message.omits_zero(field),
            Some(Value::Number(number)) => number.as_i64() == Some(0) && !field.keeps_zero,
            Some(_) => false,
        };
        if is_absent {
            object.insert((*first).to_owned(), value.clone());
        }
        return;
    }
    let inner = object.entry(*first).or_insert_with(|| json!({}));
    if let (Value::Object(fields), Type::Message(of)) = (inner, field.of) {
        put(of, fields, rest, value);
    }
}

fn by_code(message: &str, object: &mut Fields) {
    match message {
        "core.Container" | "core.EphemeralContainerCommon" => {
            pull_policy(object, "image", "imagePullPolicy");
        }
        "core.Volume" => volume(object),
        "core.ServicePort" => target_port(object),
        "core.LimitRangeItem" => limits(object),
        "core.Pod" => pod(object),
        "core.ReplicationController" => {
            labels_of_template(object);
            let labels = at(object, &["spec", "template", "metadata", "labels"]).cloned();
            let spec = object.get_mut("spec").and_then(Value::as_object_mut);
            if let (Some(labels), Some(spec)) = (labels, spec)
                && is_empty(spec.get("selector"))
            {
                spec.insert("selector".to_owned(), labels);
            }
        }
        "batch.Job" => labels_of_template(object),
        "networking.NetworkPolicy" => policy_types(object),
        "autoscaling.HorizontalPodAutoscaler" => autoscaler(object),
        _ => {}
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// What may have moved is always pulled.
fn pull_policy(object: &mut Fields, image: &str, policy: &str) {
    if !is_empty(object.get(policy)) {
        return;
    }
    let image = object.get(image).and_then(Value::as_str).unwrap_or_default();
    let word = if is_latest(image) { "Always" } else { "IfNotPresent" };
    object.insert(policy.to_owned(), json!(word));
}

fn is_latest(image: &str) -> bool {
    let (image, digest) = image.split_once('@').map_or((image, None), |(image, of)| (image, Some(of)));
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !name.is_empty() && digest.is_none(),
    }
}

fn volume(object: &mut Fields) {
    if object.iter().all(|(name, value)| name == "name" || value.is_null()) {
        object.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(Value::Object(image)) = object.get_mut("image") {
        pull_policy(image, "reference", "pullPolicy");
    }
}

fn target_port(object: &mut Fields) {
    let target = object.get("targetPort");
    if is_empty(target) || target == Some(&json!(0)) {
        let port = object.get("port").cloned().unwrap_or(json!(0));
        object.insert("targetPort".to_owned(), port);
    }
}

/// Of what a container gets at most follows what it gets, and of that what it asks for.
fn limits(object: &mut Fields) {
    if object.get("type") != Some(&json!("Container")) {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        fill_from(object, from, to);
    }
}

/// The entries of one map that another lacks.
fn fill_from(object: &mut Fields, from: &str, to: &str) {
    let Some(Value::Object(from)) = object.get(from).cloned() else { return };
    if let Value::Object(to) = object.entry(to).or_insert_with(|| json!({})) {
        for (key, value) in from {
            to.entry(key).or_insert(value);
        }
    }
}

/// Who says what is the most asks for as much; on the host's network a port is the host's.
fn pod(object: &mut Fields) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    let on_host = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        let items = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in items.filter_map(Value::as_object_mut) {
            if let Some(Value::Object(resources)) = container.get_mut("resources") {
                fill_from(resources, "limits", "requests");
            }
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|_| on_host).filter_map(Value::as_object_mut) {
                if port.get("hostPort").is_none_or(|port| *port == json!(0)) {
                    let own = port.get("containerPort").cloned().unwrap_or(json!(0));
                    port.insert("hostPort".to_owned(), own);
                }
            }
        }
    }
}

/// An object without labels has those of what it makes.
fn labels_of_template(object: &mut Fields) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(labels) = labels.filter(|labels| !is_empty(Some(labels))) else { return };
    if let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| json!({}))
        && is_empty(metadata.get("labels"))
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

fn policy_types(object: &mut Fields) {
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    if is_empty(spec.get("policyTypes")) {
        let types =
            if is_empty(spec.get("egress")) { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn autoscaler(object: &mut Fields) {
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    if is_empty(spec.get("metrics")) {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    let Some(Value::Object(behavior)) = spec.get_mut("behavior") else { return };
    let policy = |of: &str, value: u32| json!({ "type": of, "value": value, "periodSeconds": 15 });
    let up = json!([policy("Pods", 4), policy("Percent", 100)]);
    for (way, window, policies) in
        [("scaleUp", Some(0), up), ("scaleDown", None, json!([policy("Percent", 100)]))]
    {
        let Value::Object(rules) = behavior.entry(way).or_insert_with(|| json!({})) else { continue };
        if let Some(window) = window {
            rules.entry("stabilizationWindowSeconds").or_insert(json!(window));
        }
        rules.entry("policies").or_insert(policies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(api_version: &str, kind: &str, object: Value) -> Value {
        let message = super::super::message(api_version, kind).expect("a kind");
        let Value::Object(mut object) = object else { panic!("an object") };
        fill(message, &mut object);
        let once = object.clone();
        fill(message, &mut object);
        assert_eq!(object, once, "once is enough");
        Value::Object(object)
    }

    /// Each path of the file leads to a field, and its value is of that field's type.
    #[test]
    fn every_rule_is_about_a_field() {
        for (name, rules) in &*RULES {
            for rule in rules {
                let paths = [Some(&rule.path), rule.condition.as_ref().map(|(path, _)| path)];
                for path in paths.into_iter().flatten() {
                    let mut message = named(name);
                    for (depth, field) in path.iter().enumerate() {
                        let field = message.field(field).unwrap_or_else(|| panic!("{name} {path:?}"));
                        match field.of {
                            Type::Message(inner) if depth + 1 < path.len() => message = inner,
                            _ => assert_eq!(depth + 1, path.len(), "{name} {path:?}"),
                        }
                    }
                }
            }
        }
        assert!(RULED.iter().all(|name| !named(name).fields().is_empty()));
    }

    #[test]
    fn a_minimal_deployment_is_filled_to_its_containers() {
        let object = filled(
            "apps/v1",
            "Deployment",
            json!({ "spec": { "template": { "spec": { "containers": [
                { "name": "a", "image": "x/y:1", "ports": [{ "containerPort": 80 }], "livenessProbe": { "httpGet": { "port": 80 } } },
                { "name": "b", "image": "x" },
            ] } } } }),
        );
        let template = json!({ "spec": {
            "containers": [
                { "name": "a", "image": "x/y:1", "imagePullPolicy": "IfNotPresent",
                    "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                    "livenessProbe": { "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" },
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" },
                { "name": "b", "image": "x", "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" },
            ],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        } });
        let expected = json!({ "spec": {
            "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "template": template,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } },
        } });
        assert_eq!(object, expected);
    }

    #[test]
    fn what_was_said_stays() {
        let recreate = json!({ "spec": { "replicas": 0, "strategy": { "type": "Recreate" } } });
        let object = filled("apps/v1", "Deployment", recreate);
        assert_eq!(object["spec"]["replicas"], 0);
        assert_eq!(object["spec"]["strategy"], json!({ "type": "Recreate" }));
        let object =
            filled("apps/v1", "StatefulSet", json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }));
        assert_eq!(object["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
        let object = filled("v1", "Secret", json!({ "type": "x" }));
        assert_eq!(object["type"], "x");
    }

    #[test]
    fn what_depends_on_several_fields() {
        let service = json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }, { "port": 1, "targetPort": "web" }] } });
        let spec = &filled("v1", "Service", service)["spec"];
        assert_eq!(spec["ports"][0], json!({ "port": 80, "protocol": "TCP", "targetPort": 80 }));
        assert_eq!(spec["ports"][1]["targetPort"], "web");
        assert_eq!(
            (&spec["externalTrafficPolicy"], &spec["sessionAffinity"]),
            (&json!("Cluster"), &json!("None"))
        );
        let external = filled("v1", "Service", json!({ "spec": { "type": "ExternalName" } }));
        assert_eq!(external["spec"], json!({ "type": "ExternalName", "sessionAffinity": "None" }));

        let controller = json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
        let object = filled("v1", "ReplicationController", controller);
        assert_eq!(object["spec"]["selector"], json!({ "a": "b" }));
        assert_eq!(object["metadata"]["labels"], json!({ "a": "b" }));
        assert_eq!((&object["spec"]["replicas"], &object["status"]["replicas"]), (&json!(1), &json!(0)));

        let job =
            filled("batch/v1", "Job", json!({ "spec": { "parallelism": 3, "backoffLimitPerIndex": 1 } }));
        assert_eq!(job["spec"].get("completions"), None);
        assert_eq!(job["spec"]["backoffLimit"], i32::MAX);
        let job = filled("batch/v1", "Job", json!({}));
        assert_eq!((&job["spec"]["completions"], &job["spec"]["backoffLimit"]), (&json!(1), &json!(6)));

        let pod = json!({ "spec": { "hostNetwork": true, "volumes": [{ "name": "v" }], "containers": [
            { "resources": { "limits": { "cpu": "1" } }, "ports": [{ "containerPort": 7 }] } ] } });
        let pod = filled("v1", "Pod", pod);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({ "cpu": "1" }));
        assert_eq!(container["ports"][0]["hostPort"], 7);
        assert_eq!(pod["spec"]["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(pod["status"]["phase"], "Pending");

        let policy = filled("networking.k8s.io/v1", "NetworkPolicy", json!({ "spec": { "egress": [{}] } }));
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        let slice = filled("discovery.k8s.io/v1", "EndpointSlice", json!({ "ports": [{ "port": 1 }] }));
        assert_eq!(slice["ports"][0], json!({ "name": "", "port": 1, "protocol": "TCP" }));
        let subjects =
            json!({ "subjects": [{ "kind": "User" }, { "kind": "ServiceAccount" }], "roleRef": {} });
        let binding = filled("rbac.authorization.k8s.io/v1", "RoleBinding", subjects);
        assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
        assert_eq!(binding["subjects"][1].get("apiGroup"), None);
    }

    #[test]
    fn images_that_may_have_moved() {
        for (image, expected) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("host:5000/nginx", true),
            ("host:5000/nginx:1", false),
            ("nginx@sha256:0", false),
            ("nginx:latest@sha256:0", true),
            ("", false),
        ] {
            assert_eq!(is_latest(image), expected, "{image}");
        }
    }
}
