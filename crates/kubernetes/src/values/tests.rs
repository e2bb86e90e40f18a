//! Each rule by an object that breaks it.

use super::*;
use crate::registry::Registry;
use serde_json::json;

fn kind(group: &str, name: &str) -> Kind {
    let registry = Registry::built_in();
    let kind = registry.kinds().find(|kind| kind.group == group && kind.kind == name);
    (**kind.unwrap_or_else(|| panic!("no {name}"))).clone()
}

fn object(value: Value) -> Object {
    Object::decode(value).expect("a good object").0
}

/// `field: message` of what is wrong.
fn told(causes: Vec<Cause>) -> Vec<String> {
    causes.iter().map(Cause::to_string).collect()
}

fn created(group: &str, name: &str, value: Value) -> Vec<String> {
    told(on_create(&object(value), &kind(group, name)))
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "main", "image": "web" }] },
    })
}

fn workload() -> Value {
    json!({
        "metadata": { "name": "a" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "a" } }, "template": template() },
    })
}

fn changed(mut value: Value, pointer: &str, to: Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    let parent = value.pointer_mut(parent).expect("a parent");
    match (parent, last.parse::<usize>()) {
        (Value::Array(list), Ok(at)) => list[at] = to,
        (parent, _) => parent[last] = to,
    }
    value
}

#[test]
fn workload_rules_name_field_and_value() {
    assert!(created("apps", "Deployment", workload()).is_empty());
    let containers = "/spec/template/spec/containers";
    for (pointer, to, expected) in [
        ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ("/spec/selector", json!(null), "spec.selector: Required value"),
        (
            "/spec/selector",
            json!({}),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            "/spec/selector/matchLabels/app",
            json!("b"),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ),
        (containers, json!([]), "spec.template.spec.containers: Required value"),
        (containers, json!(null), "spec.template.spec.containers: Required value"),
        (
            "/spec/template/spec/containers/0/image",
            json!(""),
            "spec.template.spec.containers[0].image: Required value",
        ),
        (
            "/spec/template/spec/containers/0/ports",
            json!([{ "containerPort": 99_999 }]),
            "spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive",
        ),
        (
            "/spec/template/spec/containers/0/ports",
            json!([{}]),
            "spec.template.spec.containers[0].ports[0].containerPort: Required value",
        ),
        (
            "/spec/template/spec/containers/0/resources",
            json!({ "limits": { "cpu": "much" } }),
            "spec.template.spec.containers[0].resources.limits[cpu]: Invalid value: \"much\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "/spec/template/spec/restartPolicy",
            json!("Never"),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            "/spec/strategy",
            json!({ "rollingUpdate": { "maxSurge": "x" } }),
            "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": a valid percent string must be a numeric string followed by an ending '%'",
        ),
    ] {
        let found = created("apps", "Deployment", changed(workload(), pointer, to.clone()));
        assert_eq!(found, [expected], "{pointer} {to}");
    }
    let twice = json!([{ "name": "main", "image": "a" }, { "name": "main", "image": "b" }]);
    let found = created("apps", "Deployment", changed(workload(), containers, twice));
    assert_eq!(found, ["spec.template.spec.containers[1].name: Duplicate value: \"main\""]);
}

#[test]
fn selector_and_job_template_are_immutable() {
    let stored = object(workload());
    let update =
        |new: &Value, name: &str| told(on_update(&stored, &object(new.clone()), &kind("apps", name)));
    let mut moved = changed(workload(), "/spec/selector/matchLabels/app", json!("b"));
    moved = changed(moved, "/spec/template/metadata/labels/app", json!("b"));
    let expected = "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable";
    for name in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        assert_eq!(update(&moved, name), [expected], "{name}");
        assert!(update(&changed(workload(), "/spec/replicas", json!(3)), name).is_empty(), "{name}");
    }
    let mut job = json!({ "metadata": { "name": "a" }, "spec": { "template": template() } });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let update = |new: Value| told(on_update(&object(job.clone()), &object(new), &kind("batch", "Job")));
    let defaulted = changed(job.clone(), "/spec/template/spec/dnsPolicy", json!("ClusterFirst"));
    assert!(update(defaulted).is_empty(), "defaults may come");
    let other = changed(job.clone(), "/spec/template/spec/containers/0/image", json!("other"));
    assert_eq!(update(other).len(), 1);
}

#[test]
fn every_fixed_field_is_one_of_its_kind() {
    for kind in Registry::built_in().kinds() {
        for (path, _) in table::fixed(&kind.group, &kind.kind) {
            let mut message = kind.published();
            for name in path.split('.') {
                let field = message.and_then(|message| message.field(name));
                let field = field.unwrap_or_else(|| panic!("{} {path}", kind.kind));
                message = match field.of {
                    crate::published::Type::Message(inner) => Some(inner),
                    _ => None,
                };
            }
        }
    }
}

#[test]
fn what_is_spelled_otherwise_is_no_change() {
    let refused = |group: &str, name: &str, stored: &Value, new: Value| {
        told(on_update(&object(stored.clone()), &object(new), &kind(group, name))).len()
    };
    let mut job = json!({ "metadata": { "name": "a" }, "spec": { "template": template() } });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let main = "/spec/template/spec/containers/0";
    let job = changed(
        changed(
            job,
            main,
            json!({ "name": "main", "image": "web", "env": [{ "name": "E", "value": "" }],
            "resources": { "limits": { "cpu": 1, "memory": "1024Mi" }, "requests": { "cpu": "0.5" } } }),
        ),
        "/spec/template/spec/hostNetwork",
        json!(false),
    );
    let mut sent = changed(
        job.clone(),
        main,
        json!({ "name": "main", "image": "web", "env": [{ "name": "E" }],
        "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } } }),
    );
    sent["spec"]["template"]["spec"]["hostNetwork"] = json!(null);
    assert_eq!(refused("batch", "Job", &job, sent.clone()), 0);
    let more = changed(sent, &format!("{main}/resources/limits/cpu"), json!("2"));
    assert_eq!(refused("batch", "Job", &job, more), 1);

    let claim = |size: &str, kind: Value| {
        let mut claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size } } } });
        claim["kind"] = kind;
        changed(workload(), "/spec/volumeClaimTemplates", json!([claim]))
    };
    let stored = claim("1Gi", json!("PersistentVolumeClaim"));
    assert_eq!(refused("apps", "StatefulSet", &stored, claim("1024Mi", json!(null))), 0);
    assert_eq!(refused("apps", "StatefulSet", &stored, claim("2Gi", json!(null))), 1);

    let class = |parameters: Value| json!({ "provisioner": "p", "parameters": parameters });
    assert_eq!(refused("storage.k8s.io", "StorageClass", &class(json!({})), class(json!(null))), 0);
    assert_eq!(refused("storage.k8s.io", "StorageClass", &class(json!({})), class(json!({ "a": "b" }))), 1);

    let binding =
        |group: Value, name: &str| json!({ "roleRef": { "apiGroup": group, "kind": "Role", "name": name } });
    let (empty, full) = (json!(""), json!("rbac.authorization.k8s.io"));
    let bare = binding(empty.clone(), "r");
    let of_rbac = "rbac.authorization.k8s.io";
    assert_eq!(refused(of_rbac, "RoleBinding", &bare, binding(full.clone(), "r")), 0);
    assert_eq!(refused(of_rbac, "RoleBinding", &bare, binding(full.clone(), "other")), 1);
    assert_eq!(refused(of_rbac, "RoleBinding", &binding(full, "r"), binding(empty, "r")), 1);
}

#[test]
fn a_suspended_job_may_be_placed() {
    let mut job = json!({ "metadata": { "name": "a" }, "spec": { "suspend": true, "template": template() } });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({ "x": "y" });
    let mut placed = job.clone();
    placed["spec"]["suspend"] = json!(false);
    let pod = &mut placed["spec"]["template"];
    pod["metadata"] = json!({ "labels": { "app": "b" }, "annotations": { "a": "b" } });
    pod["spec"]["nodeSelector"] = json!({ "zone": "1" });
    pod["spec"]["tolerations"] = json!([{ "key": "k", "operator": "Exists" }]);
    pod["spec"]["schedulingGates"] = json!([{ "name": "g" }]);
    let terms = json!([{ "matchExpressions": [{ "key": "k", "operator": "Exists" }] }]);
    let affinity =
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    pod["spec"]["affinity"] = json!({ "nodeAffinity": affinity });
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1" } });
    let refused = |spec: Value, status: Value, new: &Value| {
        let mut stored = job.clone();
        stored["spec"]["suspend"] = spec;
        stored["status"] = status;
        told(on_update(&object(stored), &object(new.clone()), &kind("batch", "Job"))).len()
    };
    let stopped = json!([{ "type": "Suspended", "status": "True" }]);
    let started = json!("2024-01-31T12:00:00Z");
    for (suspend, status, expected) in [
        (true, json!({}), 0),
        (true, json!({ "active": 0, "startTime": null }), 0),
        (true, json!({ "startTime": started, "conditions": stopped }), 0),
        (true, json!({ "startTime": started }), 1),
        (true, json!({ "active": 1, "conditions": stopped }), 1),
        (false, json!({}), 1),
    ] {
        assert_eq!(refused(json!(suspend), status.clone(), &placed), expected, "{suspend} {status}");
    }
    let other = changed(placed, "/spec/template/spec/containers/0/image", json!("other"));
    assert_eq!(refused(json!(true), json!({}), &other), 1);
}

#[test]
fn what_was_wrong_before_does_not_block_an_update() {
    let stored = object(json!({ "metadata": { "name": "a" }, "spec": { "replicas": -1 } }));
    let mut sent = stored.clone();
    sent.set_label("x", "y");
    assert!(on_update(&stored, &sent, &kind("apps", "Deployment")).is_empty());
    let worse = object(json!({ "metadata": { "name": "a" }, "spec": { "replicas": -2 } }));
    assert_eq!(on_update(&stored, &worse, &kind("apps", "Deployment")).len(), 1);
}

#[test]
fn service_ports_are_ports() {
    let service = |ports: Value| {
        created("", "Service", json!({ "metadata": { "name": "a" }, "spec": { "ports": ports } }))
    };
    assert!(
        service(json!([{ "port": 80, "targetPort": "http" }, { "port": 81, "targetPort": 8080 }])).is_empty()
    );
    let range = "must be between 1 and 65535, inclusive";
    assert_eq!(
        service(json!([{ "port": 99_999 }])),
        [format!("spec.ports[0].port: Invalid value: 99999: {range}")]
    );
    assert_eq!(service(json!([{}])), [format!("spec.ports[0].port: Invalid value: 0: {range}")]);
    assert_eq!(
        service(json!([{ "port": 1, "targetPort": "-x" }])),
        ["spec.ports[0].targetPort: Invalid value: \"-x\": must not begin or end with a hyphen"]
    );
    let found = created("", "Service", json!({ "spec": { "type": "Door" } }));
    assert_eq!(
        found,
        [
            "spec.type: Unsupported value: \"Door\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""
        ]
    );
}

#[test]
fn cron_jobs_need_a_schedule_and_an_end() {
    let mut good =
        json!({ "spec": { "schedule": "0 3 * * *", "jobTemplate": { "spec": { "template": template() } } } });
    let restart = "/spec/jobTemplate/spec/template/spec/restartPolicy";
    good = changed(good, restart, json!("OnFailure"));
    assert!(created("batch", "CronJob", good.clone()).is_empty());
    let found = created("batch", "CronJob", changed(good.clone(), "/spec/schedule", json!("never")));
    assert_eq!(
        found,
        ["spec.schedule: Invalid value: \"never\": expected exactly 5 fields, found 1: [never]"]
    );
    let found = created("batch", "CronJob", changed(good.clone(), "/spec/schedule", json!("")));
    assert_eq!(found, ["spec.schedule: Required value"]);
    let found = created("batch", "CronJob", changed(good, restart, json!("Always")));
    assert_eq!(
        found,
        [
            "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""
        ]
    );
}

#[test]
fn contents_have_good_keys_and_an_end() {
    let map = |value: Value| created("", "ConfigMap", value);
    assert!(map(json!({ "data": { "a.b-c_D": "x" }, "binaryData": { "e": "AA==" } })).is_empty());
    for (key, why) in [
        ("a b", "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"),
        ("..", "must not be '..'"),
        ("..x", "must not start with '..'"),
    ] {
        let expected = format!("data[{key}]: Invalid value: {key:?}: {why}");
        let found =
            [map(json!({ "data": { key: "x" } })), created("", "Secret", json!({ "data": { key: "eA==" } }))];
        assert_eq!(found.concat(), [expected.as_str(), expected.as_str()]);
    }
    assert_eq!(
        map(json!({ "data": { "a": "x" }, "binaryData": { "a": "AA==" } })),
        ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
    );
    let mebibyte = "x".repeat(1 << 20);
    assert!(map(json!({ "data": { "a": mebibyte } })).is_empty());
    assert_eq!(
        map(json!({ "data": { "a": mebibyte, "b": "x" } })),
        ["[]: Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        created("", "Secret", json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "eA==" } })),
        ["data[tls.key]: Required value"]
    );
}

#[test]
fn good_objects_pass() {
    let good: Vec<(String, String, Value)> =
        serde_json::from_str(include_str!("good.json")).expect("groups, kinds and objects");
    for (group, kind, value) in good {
        assert_eq!(created(&group, &kind, value.clone()), Vec::<String>::new(), "{kind} {value}");
    }
}

#[test]
fn every_rule_names_a_kind_that_is_served() {
    let registry = Registry::built_in();
    let with_rules = registry.kinds().filter(|kind| !table::of(&kind.group, &kind.kind).is_empty()).count();
    assert_eq!(with_rules, 26);
}

#[test]
fn values_of_other_types_are_left_to_the_schema() {
    let odd = [
        json!(null),
        json!(true),
        json!("x"),
        json!(1.5),
        json!([]),
        json!([null]),
        json!({}),
        json!({ "a": 1 }),
    ];
    for kind in Registry::built_in().kinds() {
        for value in &odd {
            for field in ["spec", "data", "status", "template", "ports", "rules", "subsets"] {
                on_create(&object(json!({ "metadata": { "name": "a" }, field: value })), kind);
            }
            let nested = json!({ "spec": { "template": value, "containers": value, "ports": value, "selector": value } });
            let nested = object(nested);
            on_update(&nested, &nested, kind);
        }
    }
}
