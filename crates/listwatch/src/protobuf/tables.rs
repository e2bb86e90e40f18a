//! The messages of the kinds that are stored as they come, from `kinds.txt`.
//!
//! They are only for going from protobuf to JSON and back: what such an object is made of is for its clients
//! to know, and OpenAPI does not tell. So a table has to be complete, or a field would get lost on the way.
//! The file is part of the program: a mistake in it is ours, and stops the member (and the test below) when it
//! is first needed.

use super::schemas::{self, Field, Merge, Message, Type};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

const FILE: &str = include_str!("kinds.txt");

static KINDS: LazyLock<HashMap<(&'static str, &'static str), &'static Message>> = LazyLock::new(read);

/// The message of an object of this kind, if it has one here.
pub fn message(api_version: &str, kind: &str) -> Option<&'static Message> {
    KINDS.get(&(api_version, kind)).copied()
}

/// The lines of each message, and those that are made of them.
struct Messages {
    lines: BTreeMap<&'static str, Vec<&'static str>>,
    made: HashMap<&'static str, &'static Message>,
}

fn read() -> HashMap<(&'static str, &'static str), &'static Message> {
    let (mut kinds, mut lines) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let mut name = "";
    for line in FILE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("kind"), Some(api_version), Some(kind), Some(of)) => kinds.push(((api_version, kind), of)),
            (Some("message"), Some(of), None, None) => {
                name = of;
                lines.insert(of, Vec::new());
            }
            _ => lines.entry(name).or_default().push(line),
        }
    }
    let mut messages = Messages { lines, made: HashMap::new() };
    kinds.into_iter().map(|(kind, of)| (kind, messages.of(of))).collect()
}

impl Messages {
    /// None contains itself, so this ends.
    fn of(&mut self, name: &'static str) -> &'static Message {
        match name {
            "meta.ObjectMeta" => return &schemas::OBJECT_META,
            "meta.ListMeta" => return &schemas::LIST_META,
            _ => {}
        }
        if let Some(made) = self.made.get(name) {
            return made;
        }
        let lines = self.lines.remove(name).expect("a message of kinds.txt");
        let fields: Vec<Field> = lines.into_iter().map(|line| self.field(line)).collect();
        // There is one of each, for as long as the program runs.
        let made = Box::leak(Box::new(Message { name, about: "", fields: Vec::leak(fields) }));
        self.made.insert(name, made);
        made
    }

    fn field(&mut self, line: &'static str) -> Field {
        let mut words = line.split(' ');
        let (number, name, of) = (words.next(), words.next(), words.next());
        let number = number.and_then(|number| number.parse().ok()).expect("the number of a field");
        let name = name.expect("the name of a field");
        let of = of.expect("the type of a field");
        let (repeated, of) = of.strip_prefix("[]").map_or((false, of), |of| (true, of));
        let (keeps_zero, of) = of.strip_suffix('?').map_or((false, of), |of| (true, of));
        let of = match (of.strip_prefix('='), of) {
            (Some(message), _) => match message.strip_suffix('*') {
                Some(message) => Type::Inline(self.of(message)),
                None => Type::Message(self.of(message)),
            },
            (None, "text") => Type::Text,
            (None, "int32") => Type::Int32,
            (None, "int64") => Type::Int64,
            (None, "bool") => Type::Bool,
            (None, "time") => Type::Time,
            (None, "quantity") => Type::Quantity,
            (None, "intorstring") => Type::IntOrString,
            (None, "textmap") => Type::TextMap,
            (None, "quantitymap") => Type::QuantityMap,
            (None, "timemap") => Type::TimeMap,
            (None, other) => unreachable!("{other:?} is no type of kinds.txt"),
        };
        Field { number, name, of, repeated, keeps_zero, merge: Merge::Replace }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    #[test]
    fn no_message_has_a_number_or_a_name_twice() {
        fn check(message: &'static Message, seen: &mut BTreeSet<&'static str>) {
            if !seen.insert(message.name) {
                return;
            }
            let numbers: BTreeSet<u32> = message.fields.iter().map(|field| field.number).collect();
            assert_eq!(numbers.len(), message.fields.len(), "{}", message.name);
            for field in message.fields {
                if let Type::Message(inner) | Type::Inline(inner) = field.of {
                    check(inner, seen);
                }
            }
        }
        let mut seen = BTreeSet::new();
        KINDS.values().for_each(|message| check(message, &mut seen));
        assert!(300 < seen.len() && 50 <= KINDS.len());
    }

    #[test]
    fn every_kind_here_is_one_that_is_served() {
        let registry = crate::registry::Registry::built_in();
        for (api_version, kind) in KINDS.keys() {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let of = kind.strip_suffix("List").unwrap_or(kind);
            assert!(registry.by_kind(group, version, of).is_some(), "{api_version} {kind}");
        }
    }

    fn there_and_back(object: Value) {
        let bytes = encode(&object).expect("it has a form");
        assert_eq!(decode(&bytes).expect("good"), object);
    }

    #[test]
    fn workloads_there_and_back() {
        let template = json!({
            "metadata": { "labels": { "app": "x" } },
            "spec": {
                "containers": [{
                    "name": "c", "image": "i", "command": ["a", ""], "ports": [{ "containerPort": 80 }],
                    "env": [
                        { "name": "A", "value": "b" },
                        { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": false } } },
                    ],
                    "resources": { "limits": { "cpu": "500m", "memory": "1Gi" } },
                    "livenessProbe": { "httpGet": { "path": "/", "port": "http" }, "periodSeconds": 3 },
                    "securityContext": { "runAsUser": 0, "privileged": false, "capabilities": {} },
                }],
                "volumes": [
                    { "name": "e", "emptyDir": {} },
                    { "name": "p", "projected": { "sources": [{ "configMap": { "name": "m" } }] } },
                ],
                "securityContext": { "supplementalGroups": [1, 2] },
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{ "operator": "Exists" }],
            },
        });
        there_and_back(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "n" },
            "spec": {
                "replicas": 0, "template": template,
                "selector": { "matchExpressions": [{ "key": "a", "operator": "In", "values": ["", "b"] }] },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 1 } },
            },
            "status": { "conditions": [{ "type": "Available", "lastUpdateTime": "2024-01-31T12:00:00Z" }] },
        }));
        there_and_back(json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c" },
            "spec": {
                "schedule": "* * * * *", "suspend": false,
                "jobTemplate": { "spec": { "backoffLimit": 0, "template": template } },
            },
        }));
    }

    #[test]
    fn the_others_there_and_back() {
        for object in [
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "r" },
                "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }] }),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "r" },
                "subjects": [{ "kind": "User", "name": "u" }], "roleRef": { "kind": "Role", "name": "r" } }),
            json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
                "spec": { "hard": { "cpu": "1", "pods": "3" }, "scopes": ["BestEffort"] } }),
            json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "p" },
                "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "a": "b" } } },
                "status": { "disruptedPods": { "x": "2024-01-31T12:00:00Z" } } }),
            json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "p" },
                "value": 1000, "globalDefault": true, "preemptionPolicy": "Never" }),
            json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "i" },
                "spec": { "rules": [{ "host": "h", "http": { "paths": [{ "path": "/", "pathType": "Prefix",
                    "backend": { "service": { "name": "s", "port": { "number": 80 } } } }] } }] } }),
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": {
                "ports": [{ "name": "p", "port": 80, "targetPort": "web" }, { "port": 81, "targetPort": 8080 }],
                "selector": { "a": "b" }, "type": "ClusterIP", "clusterIP": "None" } }),
            json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "n" },
                "spec": { "policyTypes": ["Ingress"], "ingress": [{ "from": [{ "podSelector": {} }] }] } }),
        ] {
            there_and_back(object);
        }
    }

    /// Written by hand after the published tables, not by the encoder: a Service with one port.
    #[test]
    fn bytes_by_hand() {
        let port = [&[0x0a, 1, b'p', 0x18, 80, 0x22, 7, 0x08, 1, 0x10, 0, 0x1a, 1, b'w'][..]].concat();
        let spec = [&[0x0a, u8::try_from(port.len()).expect("short")][..], &port].concat();
        let raw =
            [&[0x0a, 3, 0x0a, 1, b's', 0x12, u8::try_from(spec.len()).expect("short")][..], &spec].concat();
        let of_type = [0x0a, 2, b'v', b'1', 0x12, 7, b'S', b'e', b'r', b'v', b'i', b'c', b'e'];
        let body =
            [&b"k8s\0"[..], &[0x0a, 13], &of_type, &[0x12, u8::try_from(raw.len()).expect("short")], &raw]
                .concat();
        let object = decode(&body).expect("good");
        let port = json!({ "name": "p", "port": 80, "targetPort": "w" });
        assert_eq!(object["spec"], json!({ "ports": [port] }));
        assert_eq!(object["metadata"]["name"], "s");
    }
}
