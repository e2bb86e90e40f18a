//! Cells of what a cluster is made of and ruled by: nodes, volumes, quotas, bindings of roles.

use super::look::{NONE, condition, flag, list, map, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "/spec/unschedulable") { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

pub fn node_roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (label, value) in map(node, "/metadata/labels").into_iter().flatten() {
        if let Some(role) = label.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role);
        } else if label == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.remove("");
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

/// `RWO,ROX`
pub fn access_modes(object: &Value, pointer: &str) -> String {
    let modes: Vec<&str> = list(object, pointer).iter().filter_map(Value::as_str).collect();
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> =
        known.into_iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| short).collect();
    shown.join(",")
}

/// `namespace/name`
pub fn volume_claim(volume: &Value) -> String {
    let Some(claim) = volume.pointer("/spec/claimRef").filter(|claim| claim.is_object()) else {
        return String::new();
    };
    format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
}

/// What is used of what is allowed: of requests and of counts, or of limits.
pub fn quota(object: &Value, limits: bool) -> String {
    let used = map(object, "/status/used");
    let shown: Vec<String> = map(object, "/status/hard")
        .into_iter()
        .flatten()
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = used.and_then(|used| used.get(resource)).and_then(Value::as_str).unwrap_or("0");
            format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"))
        })
        .collect();
    shown.join(", ")
}

/// `ClusterRole/admin`
pub fn role(binding: &Value) -> String {
    format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"))
}

/// The subjects of one kind; a service account with its namespace.
pub fn subjects(binding: &Value, kind: &str) -> String {
    let of_kind = list(binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    let shown: Vec<String> = of_kind
        .map(|subject| match text(subject, "/namespace") {
            "" => text(subject, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "/name")),
        })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use serde_json::json;

    #[test]
    fn a_node_and_its_state() {
        let node = json!({
            "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "etcd", "x": "y" } },
            "spec": { "unschedulable": true },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": "v1.31.0" },
                "addresses": [{ "type": "Hostname", "address": "n1" }, { "type": "InternalIP", "address": "10.0.0.1" }],
            },
        });
        check(
            "",
            "nodes",
            &node,
            &[
                ("Status", json!("Ready,SchedulingDisabled")),
                ("Roles", json!("control-plane,etcd")),
                ("Version", json!("v1.31.0")),
                ("Internal-IP", json!("10.0.0.1")),
                ("External-IP", json!("<none>")),
            ],
        );
        check("", "nodes", &json!({}), &[("Status", json!("Unknown")), ("Roles", json!("<none>"))]);
        let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        check("", "nodes", &down, &[("Status", json!("NotReady"))]);
    }

    #[test]
    fn a_volume_and_its_claim() {
        let volume = json!({
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadOnlyMany", "ReadWriteOnce"],
                "claimRef": { "namespace": "a", "name": "b" },
            },
        });
        let expected =
            [("Capacity", json!("1Gi")), ("Access Modes", json!("RWO,ROX")), ("Claim", json!("a/b"))];
        check("", "persistentvolumes", &volume, &expected);
    }

    #[test]
    fn a_quota_and_what_is_used_of_it() {
        let hard = json!({ "pods": "10", "limits.cpu": "4", "requests.cpu": "2" });
        let quota = json!({ "status": { "hard": hard, "used": { "pods": "3", "limits.cpu": "1" } } });
        let expected =
            [("Request", json!("pods: 3/10, requests.cpu: 0/2")), ("Limit", json!("limits.cpu: 1/4"))];
        check("", "resourcequotas", &quota, &expected);
    }

    #[test]
    fn a_binding_and_whom_it_binds() {
        let subjects = json!([
            { "kind": "User", "name": "a" }, { "kind": "User", "name": "b" },
            { "kind": "ServiceAccount", "namespace": "n", "name": "s" },
        ]);
        let binding = json!({ "roleRef": { "kind": "Role", "name": "r" }, "subjects": subjects });
        check(
            "rbac.authorization.k8s.io",
            "rolebindings",
            &binding,
            &[
                ("Role", json!("Role/r")),
                ("Users", json!("a, b")),
                ("Groups", json!("")),
                ("ServiceAccounts", json!("n/s")),
            ],
        );
    }
}
