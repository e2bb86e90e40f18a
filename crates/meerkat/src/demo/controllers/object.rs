//! The objects of the demo, and what is read of them.

use meerkat_client::listwatch::Resource;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "default";
/// Where the agents renew their leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// A pod goes only when the agent that runs it has stopped it and taken this off.
pub const FINALIZER: &str = "demo.meerkat/agent";

pub fn pods() -> Resource {
    Resource::core("pods").namespace(NAMESPACE)
}

pub fn replica_sets() -> Resource {
    Resource::new("apps", "v1", "replicasets").namespace(NAMESPACE)
}

pub fn nodes() -> Resource {
    Resource::core("nodes")
}

pub fn leases() -> Resource {
    Resource::new("coordination.k8s.io", "v1", "leases").namespace(LEASE_NAMESPACE)
}

/// The ReplicaSet that kubectl is to create.
pub fn replica_set(name: &str, replicas: usize) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "registry.invalid/web:1" }] },
            },
        },
    })
}

/// A new pod of this set.
pub fn pod_of(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", name(set)),
            "labels": template["metadata"]["labels"],
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": name(set),
                "uid": uid(set),
                "controller": true,
            }],
        },
        "spec": template["spec"],
    })
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// As a number: this product's versions are.
pub fn version(object: &Value) -> i64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

pub fn is_going(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null())
}

pub fn has_finalizer(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| one == FINALIZER))
}

/// Whether this pod belongs to that set.
pub fn is_owned_by(pod: &Value, set: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == set["metadata"]["uid"]))
}

/// Empty before a scheduler has chosen.
pub fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

pub fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

/// What takes the finalizer off, if the pod is still as it was seen.
pub fn release(pod: &Value) -> Value {
    let others: Vec<&Value> = pod["metadata"]["finalizers"]
        .as_array()
        .map(|all| all.iter().filter(|one| *one != FINALIZER).collect())
        .unwrap_or_default();
    json!({ "metadata": { "finalizers": others, "resourceVersion": pod["metadata"]["resourceVersion"] } })
}

#[cfg(test)]
pub mod sample {
    use super::*;

    /// A set with its uid.
    pub fn set(replicas: usize) -> Value {
        let mut set = replica_set("web", replicas);
        set["metadata"]["uid"] = json!("set-1");
        set["metadata"]["resourceVersion"] = json!("5");
        set
    }

    /// A pod of [`set`]: on a node or not, running or not.
    pub fn pod(name: &str, node: &str, running: bool) -> Value {
        let mut pod = pod_of(&set(1));
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(format!("uid-{name}"));
        pod["metadata"]["resourceVersion"] = json!("7");
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        pod["status"] = json!({ "phase": if running { "Running" } else { "Pending" } });
        pod
    }

    pub fn going(mut pod: Value) -> Value {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_made_as_its_set_wants_it() {
        let pod = sample::pod("web-1", "", false);
        assert!(is_owned_by(&pod, &sample::set(1)) && has_finalizer(&pod) && !is_going(&pod));
        assert_eq!(pod["metadata"]["labels"], json!({ "app": "web" }));
        assert_eq!((node_of(&pod), version(&pod)), ("", 7));
    }

    #[test]
    fn a_release_leaves_the_finalizers_of_others() {
        let mut pod = sample::pod("web-1", "", false);
        pod["metadata"]["finalizers"] = json!(["other/one", FINALIZER]);
        let expected = json!({ "metadata": { "finalizers": ["other/one"], "resourceVersion": "7" } });
        assert_eq!(release(&pod), expected);
    }
}
