//! Built-in kinds: of the types that they have, and with what Kubernetes fills in.

use super::*;

/// What `kubectl describe` follows without a look whether it is there.
#[tokio::test(start_paused = true)]
async fn a_minimal_object_has_what_is_described_and_shown() {
    let bench = Bench::new().await;
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let workload = json!({ "selector": selector, "template": template });
    for (plural, rest, filled) in [
        (
            "deployments",
            json!({ "spec": workload }),
            vec![("/spec/replicas", json!(1)), ("/spec/strategy/rollingUpdate/maxSurge", json!("25%"))],
        ),
        (
            "replicasets",
            json!({ "spec": workload }),
            vec![("/spec/replicas", json!(1)), ("/status/replicas", json!(0))],
        ),
        (
            "statefulsets",
            json!({ "spec": workload }),
            vec![("/spec/replicas", json!(1)), ("/spec/updateStrategy/rollingUpdate/partition", json!(0))],
        ),
        (
            "daemonsets",
            json!({ "spec": workload }),
            vec![("/spec/updateStrategy/type", json!("RollingUpdate")), ("/status/numberReady", json!(0))],
        ),
        (
            "replicationcontrollers",
            json!({ "spec": { "template": template } }),
            vec![("/spec/replicas", json!(1)), ("/spec/selector/a", json!("b"))],
        ),
        (
            "priorityclasses",
            json!({ "value": 5 }),
            vec![("/preemptionPolicy", json!("PreemptLowerPriority"))],
        ),
        (
            "endpointslices",
            json!({ "addressType": "IPv4", "endpoints": [], "ports": [{ "port": 80 }] }),
            vec![("/ports/0/name", json!("")), ("/ports/0/protocol", json!("TCP"))],
        ),
        ("secrets", json!({}), vec![("/type", json!("Opaque"))]),
        (
            "services",
            json!({ "spec": { "ports": [{ "port": 80 }] } }),
            vec![("/spec/type", json!("ClusterIP")), ("/spec/ports/0/targetPort", json!(80))],
        ),
        (
            "pods",
            json!({ "spec": template["spec"], "status": { "phase": "Failed" } }),
            vec![("/status/phase", json!("Pending")), ("/spec/dnsPolicy", json!("ClusterFirst"))],
        ),
        (
            "persistentvolumeclaims",
            json!({ "spec": {} }),
            vec![("/status/phase", json!("Pending")), ("/spec/volumeMode", json!("Filesystem"))],
        ),
        (
            "jobs",
            json!({ "spec": { "template": template } }),
            vec![("/spec/completions", json!(1)), ("/metadata/labels/a", json!("b"))],
        ),
    ] {
        let mut sent = rest;
        sent["metadata"] = json!({ "name": "minimal" });
        let namespace = if bench.kind(plural).is_namespaced() { "n" } else { "" };
        let made = bench
            .create(plural, namespace, sent)
            .await
            .unwrap_or_else(|refusal| panic!("{plural}: {refusal}"));
        for (path, value) in filled {
            assert_eq!(made.pointer(path), Some(&value), "{plural} {path}");
        }
        assert_eq!(bench.get(plural, namespace, "minimal").await.expect("there"), made, "{plural}");
        let again = bench.update(plural, WHOLE, made.clone()).await.expect("the same").object;
        assert_eq!(again, made, "{plural} is filled once");
    }
}
