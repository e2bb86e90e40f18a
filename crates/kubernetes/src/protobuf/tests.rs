//! Objects there and back, bytes by hand, and bytes by chance.

use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn metadata() -> Value {
    json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
        "creationTimestamp": "2024-01-31T12:00:00Z", "deletionGracePeriodSeconds": 0,
        "labels": { "app": "x", "empty": "" }, "annotations": { "k": "ü" }, "finalizers": ["f", "g"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "q", "controller": false }],
        "managedFields": [{
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2024-01-31T12:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:x": {} } },
        }],
    })
}

#[test]
fn every_kind_there_and_back() {
    for mut object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "spec": { "finalizers": ["kubernetes"] }, "status": {
            "phase": "Terminating",
            "conditions": [{ "type": "X", "status": "True", "lastTransitionTime": "2024-01-31T12:00:00Z" }],
        } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" }, "binaryData": { "c": "AAH/" }, "immutable": false }),
        json!({ "apiVersion": "v1", "kind": "Secret", "data": { "p": "c2VjcmV0" }, "type": "Opaque", "stringData": { "x": "y" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{ "name": "s" }], "imagePullSecrets": [{ "name": "i" }], "automountServiceAccountToken": true }),
        json!({ "apiVersion": "v1", "kind": "Event", "involvedObject": { "kind": "Pod", "name": "p" }, "reason": "r",
            "message": "m", "source": { "component": "c" }, "firstTimestamp": "2024-01-31T12:00:00Z", "count": 3,
            "type": "Normal", "eventTime": "2024-01-31T12:00:00.000123Z",
            "series": { "count": 2, "lastObservedTime": "2024-01-31T12:00:00.500000Z" } }),
        json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": { "kind": "Pod" }, "note": "n",
            "eventTime": "2024-01-31T12:00:00.000123Z", "reportingController": "c", "deprecatedCount": 1 }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {
            "holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "renewTime": "2024-01-31T12:00:00.000001Z",
        } }),
        json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "spec": { "replicas": 3 }, "status": { "replicas": 0 } }),
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } }, "status": { "allowed": false } }),
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata" }),
    ] {
        object["metadata"] = metadata();
        let bytes = encode(&object).expect("supported");
        assert_eq!(decode(&bytes).expect("good"), object);
        let list = json!({
            "apiVersion": object["apiVersion"], "kind": format!("{}List", object["kind"].as_str().expect("named")),
            "metadata": { "resourceVersion": "9", "continue": "c", "remainingItemCount": 0 },
            "items": [{ "metadata": metadata() }, { "metadata": { "name": "b" } }],
        });
        if let Some(bytes) = encode(&list) {
            assert_eq!(decode(&bytes).expect("good"), list);
        }
    }
}

#[test]
fn a_status_and_the_options_of_a_delete() {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "m", "reason": "NotFound", "code": 404,
        "details": { "name": "x", "kind": "pods", "causes": [{ "reason": "r", "field": "f" }], "retryAfterSeconds": 1 },
    });
    assert_eq!(decode(&encode(&status).expect("supported")).expect("good"), status);
    let options = json!({
        "apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
        "preconditions": { "uid": "u" }, "dryRun": ["All"], "orphanDependents": false,
    });
    assert_eq!(decode(&encode(&options).expect("supported")).expect("good"), options);
}

/// `kubectl create namespace a`, as the Go client writes it: empty texts and messages in their places.
#[test]
fn a_namespace_by_hand() {
    let body = [
        &b"k8s\0"[..],
        &[0x0a, 0x0f, 0x0a, 2, b'v', b'1', 0x12, 9],
        b"Namespace",
        // raw: 27 bytes
        &[0x12, 27],
        // metadata: 19 bytes
        &[0x0a, 19, 0x0a, 1, b'a', 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0, 0x32, 0, 0x38, 0, 0x42, 0],
        // unknown to us: field 15 of the metadata
        &[0x78, 1],
        // spec: empty; status: phase ""
        &[0x12, 0, 0x1a, 2, 0x0a, 0],
        &[0x1a, 0, 0x22, 0],
    ]
    .concat();
    let expected = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
    assert_eq!(decode(&body).expect("good"), expected);
}

#[test]
fn a_config_map_written_by_hand() {
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": "v" } });
    let expected = [
        &b"k8s\0"[..],
        &[0x0a, 0x0f, 0x0a, 2, b'v', b'1', 0x12, 9],
        b"ConfigMap",
        &[0x12, 13, 0x0a, 3, 0x0a, 1, b'a', 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v', 0x1a, 0, 0x22, 0],
    ]
    .concat();
    assert_eq!(encode(&object).expect("supported"), expected);
}

#[test]
fn a_negative_number_takes_ten_bytes_and_comes_back() {
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": -1 });
    assert_eq!(decode(&encode(&options).expect("supported")).expect("good"), options);
}

#[test]
fn an_event_of_a_watch_is_framed() {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
    let event = encode_event("ADDED", &object).expect("supported");
    assert_eq!(event[..7], [0x0a, 5, b'A', b'D', b'D', b'E', b'D']);
    let inner = encode(&object).expect("supported");
    assert!(event.ends_with(&inner));
    let framed = frame(&event).expect("short");
    assert_eq!(framed[..4], (event.len() as u32).to_be_bytes());
    assert_eq!(framed[4..], event);
}

#[test]
fn kinds_without_a_table_are_told_to_use_json() {
    assert_eq!(encode(&json!({ "apiVersion": "v1", "kind": "Box" })), None);
    let body = [&b"k8s\0"[..], &[0x0a, 9, 0x0a, 2, b'v', b'1', 0x12, 3], b"Box"].concat();
    assert_eq!(decode(&body).expect_err("no table").code(), 415);
    assert!(supports("v1", "Secret") && supports("apps/v1", "ControllerRevision"));
    assert!(!supports("apps/v2", "Deployment") && !supports("v1", "Deployment"));
}

#[test]
fn bytes_that_cannot_be_right_are_refused() {
    for body in [&b""[..], b"{}", b"k8s", b"k8s\0\x0a\xff", b"k8s\0\x1a\x01x"] {
        assert_eq!(decode(body).expect_err("bad").code(), 400);
    }
    let good = encode(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata() }))
        .expect("supported");
    let mut random = StdRng::seed_from_u64(11);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(4..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(4..=bytes.len()));
        refused += u32::from(decode(&bytes).is_err());
    }
    assert!(refused > 1000, "{refused} were refused");
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
    let raw = [&[0x0a, 3, 0x0a, 1, b's', 0x12, u8::try_from(spec.len()).expect("short")][..], &spec].concat();
    let of_type = [0x0a, 2, b'v', b'1', 0x12, 7, b'S', b'e', b'r', b'v', b'i', b'c', b'e'];
    let body = [&b"k8s\0"[..], &[0x0a, 13], &of_type, &[0x12, u8::try_from(raw.len()).expect("short")], &raw]
        .concat();
    let object = decode(&body).expect("good");
    let port = json!({ "name": "p", "port": 80, "targetPort": "w" });
    assert_eq!(object["spec"], json!({ "ports": [port] }));
    assert_eq!(object["metadata"]["name"], "s");
}

/// What is one of two things in JSON is two fields on the wire, and schemas hold schemas.
#[test]
fn a_definition_there_and_back() {
    let schema = json!({
        "type": "object", "description": "d", "required": ["spec"],
        "properties": {
            "spec": { "type": "object", "properties": {
                "list": { "type": "array", "items": { "type": "string", "maxLength": 3 } },
                "tuple": { "items": [{ "type": "integer" }, { "type": "string" }] },
                "map": { "type": "object", "additionalProperties": { "type": "number", "minimum": 0.5 } },
                "open": { "additionalProperties": true }, "closed": { "additionalProperties": false },
                "needs": { "dependencies": { "a": ["b", "c"], "d": { "type": "object" } } },
                "chosen": { "enum": ["a", 1, { "b": [null] }, null], "default": { "x": false } },
                "free": { "x-kubernetes-preserve-unknown-fields": true, "$ref": "r" },
                "ruled": { "x-kubernetes-validations": [{ "rule": "self > 0", "message": "m" }] },
            } },
        },
    });
    there_and_back(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "c" },
        "spec": {
            "group": "g", "scope": "Namespaced", "names": { "plural": "as", "kind": "A" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
        "status": { "acceptedNames": { "plural": "as", "kind": "A" }, "storedVersions": ["v1"] },
    }));
}

#[test]
fn a_schema_that_is_too_deep_is_refused_in_protobuf_too() {
    let mut schema = json!({ "type": "object" });
    for _ in 0..2 * DEPTH_MAX {
        schema = json!({ "not": schema });
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] },
    });
    let bytes = encode(&definition).expect("it has a form");
    assert_eq!(decode(&bytes).expect_err("too deep").code(), 400);
}

#[test]
fn the_other_kinds_that_clients_send_so() {
    for object in [
        json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision", "data": { "spec": { "x": [1] } }, "revision": 0 }),
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "webhooks": [{ "name": "w.x.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": { "caBundle": "AAH/", "service": { "namespace": "n", "name": "s", "port": 443 } },
                "rules": [{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] }] }] }),
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "endpoints": [{ "addresses": ["1.2.3.4"], "conditions": { "ready": false } }],
            "ports": [{ "name": "", "port": 0 }] }),
        json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {
            "scaleTargetRef": { "kind": "Deployment", "name": "d" }, "minReplicas": 0, "maxReplicas": 3,
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }] } }),
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": "u", "extra": { "scopes": ["a", ""] }, "resourceAttributes": { "verb": "get" } },
            "status": { "allowed": true } }),
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": "n" },
            "status": { "resourceRules": [{ "verbs": ["*"] }], "nonResourceRules": [{ "verbs": ["get"] }], "incomplete": false } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p", "parameters": { "a": "b" } }),
        json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h", "overhead": { "podFixed": { "cpu": "1" } } }),
    ] {
        there_and_back(object);
    }
}

#[test]
fn bytes_that_were_stored_over_several_lines_are_told() {
    let secret = |text: &str| json!({ "apiVersion": "v1", "kind": "Secret", "data": { "k": text } });
    assert_eq!(encode(&secret("aGVs\nbG8=\n")), encode(&secret("aGVsbG8=")));
    assert_ne!(encode(&secret("aGVs\nbG8=\n")), encode(&secret("")));
}
