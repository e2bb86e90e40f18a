//! Built-in kinds: of the types that they have, and with what Kubernetes fills in.

use super::*;

/// What a set of pods is made of, and no more.
fn workload() -> Value {
    let containers = json!([{ "name": "c", "image": "i" }]);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
    json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } })
}

/// What a write of each sort comes to.
async fn refusals(bench: &Bench, plural: &str, body: Value) -> [Refusal; 4] {
    let patch = |form, body| Patch::Of { form, body, options: WriteOptions::default() };
    let kind = bench.kind(plural);
    let place = Place { kind: &kind, namespace: "n", name: "good", writer: Writer::Door };
    let by = |patch: Patch| async move { bench.storage.patch(place, WHOLE, &patch, "m").await };
    let mut named = body.clone();
    named["metadata"]["name"] = json!("good");
    [
        bench.create(plural, "n", body.clone()).await.expect_err("no such object"),
        bench.update(plural, WHOLE, named.clone()).await.expect_err("no such object"),
        by(patch(PatchForm::Merge, body.clone())).await.expect_err("no such object"),
        by(patch(PatchForm::StrategicMerge, body)).await.expect_err("no such object"),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_no_typed_client_could_read_is_not_stored() {
    let bench = Bench::new().await;
    for (plural, good, bad, why) in [
        (
            "configmaps",
            json!({}),
            json!({ "metadata": { "name": "bad" }, "data": { "one": 1 } }),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "deployments",
            workload(),
            json!({ "metadata": { "name": "bad" }, "spec": { "replicas": "three" } }),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
    ] {
        let mut good = good;
        good["metadata"] = json!({ "name": "good" });
        bench.create(plural, "n", good).await.expect("made");
        let [created, updated, merged, strategic] = refusals(&bench, plural, bad).await;
        for refusal in [created, updated] {
            assert_eq!(refusal.code(), 400, "{refusal}");
            let kind = &bench.kind(plural).kind;
            let expected = format!("{kind} in version \"v1\" cannot be handled as a {kind}: {why}");
            assert_eq!(refusal.message, expected);
        }
        for refusal in [merged, strategic] {
            assert_eq!((refusal.code(), refusal.causes[0].field.as_str()), (422, "patch"), "{refusal}");
            assert!(refusal.message.ends_with(why), "{refusal}");
        }
    }
    let applied = json!({ "metadata": { "name": "good" }, "data": { "one": {} } });
    assert_eq!(code(bench.apply("configmaps", "m", false, applied).await), 400);
}

#[tokio::test(start_paused = true)]
async fn fields_that_a_built_in_kind_does_not_have() {
    let bench = Bench::new().await;
    let body = |name: &str| {
        let mut body = workload();
        body["metadata"] = json!({ "name": name });
        body["spec"]["replica"] = json!(1);
        body["spec"]["template"]["spec"]["containers"][0]["imag"] = json!("i");
        body
    };
    let create = async |name: &str, field_validation: FieldValidation| {
        let options = WriteOptions { field_validation, ..WriteOptions::default() };
        bench.create_with("deployments", "n", body(name), &options).await
    };
    let unknown = ["spec.replica", "spec.template.spec.containers[0].imag"];
    let words = unknown.map(|path| format!("unknown field {path:?}"));
    let refusal = create("a", FieldValidation::Strict).await.expect_err("strict");
    let why = format!("strict decoding error: {}", words.join(", "));
    let expected = format!("Deployment in version \"v1\" cannot be handled as a Deployment: {why}");
    assert_eq!((refusal.code(), refusal.message), (400, expected));
    let warned = create("a", FieldValidation::Warn).await.expect("made");
    assert_eq!(warned.warnings, words);
    assert_eq!(warned.object["spec"].get("replica"), None);
    assert_eq!(warned.object["spec"]["template"]["spec"]["containers"][0].get("imag"), None);
    assert_eq!(create("b", FieldValidation::Ignore).await.expect("made").warnings, [""; 0]);

    let options = WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    let patch = Patch::Of { form: PatchForm::Merge, body: json!({ "spec": { "replica": 1 } }), options };
    let kind = bench.kind("deployments");
    let place = Place { kind: &kind, namespace: "n", name: "a", writer: Writer::Door };
    let refusal = bench.storage.patch(place, WHOLE, &patch, "m").await.expect_err("strict");
    assert_eq!((refusal.code(), refusal.causes[0].field.as_str()), (422, "patch"));
    assert!(refusal.message.ends_with("strict decoding error: unknown field \"spec.replica\""), "{refusal}");
}

type Row = (&'static str, Value, [(&'static str, Value); 2]);

/// A kind, the least that one says of an object, and what is filled in: what `kubectl describe` follows
/// without a look whether it is there, and what tables show.
fn minimal() -> Vec<Row> {
    let workload = workload();
    let template = &workload["spec"]["template"];
    let made = json!({ "spec": { "template": template } });
    let mut job = made.clone();
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let claim = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let slice = json!({ "addressType": "IPv4", "endpoints": [], "ports": [{ "port": 80 }] });
    let row = |plural, sent: &Value, one: (&'static str, Value), other: (&'static str, Value)| -> Row {
        (plural, sent.clone(), [one, other])
    };
    let replicas = || ("/spec/replicas", json!(1));
    let surge = ("/spec/strategy/rollingUpdate/maxSurge", json!("25%"));
    let partition = ("/spec/updateStrategy/rollingUpdate/partition", json!(0));
    let strategy = ("/spec/updateStrategy/type", json!("RollingUpdate"));
    let phase = || ("/status/phase", json!("Pending"));
    let class = json!({ "value": 5 });
    let service = json!({ "spec": { "ports": [{ "port": 80 }] } });
    let pod = json!({ "spec": template["spec"], "status": { "phase": "Failed" } });
    vec![
        row("deployments", &workload, replicas(), surge),
        row("replicasets", &workload, replicas(), ("/status/replicas", json!(0))),
        row("statefulsets", &workload, replicas(), partition),
        row("daemonsets", &workload, strategy, ("/status/numberReady", json!(0))),
        row("replicationcontrollers", &made, replicas(), ("/spec/selector/a", json!("b"))),
        row("jobs", &job, ("/spec/completions", json!(1)), ("/metadata/labels/a", json!("b"))),
        row(
            "priorityclasses",
            &class,
            ("/preemptionPolicy", json!("PreemptLowerPriority")),
            ("/value", json!(5)),
        ),
        row("endpointslices", &slice, ("/ports/0/name", json!("")), ("/ports/0/protocol", json!("TCP"))),
        row("secrets", &json!({}), ("/type", json!("Opaque")), ("/kind", json!("Secret"))),
        row(
            "services",
            &service,
            ("/spec/type", json!("ClusterIP")),
            ("/spec/ports/0/targetPort", json!(80)),
        ),
        row("pods", &pod, phase(), ("/spec/dnsPolicy", json!("ClusterFirst"))),
        row("persistentvolumeclaims", &claim, phase(), ("/spec/volumeMode", json!("Filesystem"))),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_minimal_object_has_what_is_described_and_shown() {
    let bench = Bench::new().await;
    for (plural, mut sent, filled) in minimal() {
        sent["metadata"] = json!({ "name": "minimal" });
        let namespace = if bench.kind(plural).is_namespaced() { "n" } else { "" };
        let made = bench.create(plural, namespace, sent).await;
        let made = made.unwrap_or_else(|refusal| panic!("{plural}: {refusal}"));
        for (path, value) in filled {
            assert_eq!(made.pointer(path), Some(&value), "{plural} {path}");
        }
        assert_eq!(bench.get(plural, namespace, "minimal").await.expect("there"), made, "{plural}");
        let again = bench.update(plural, WHOLE, made.clone()).await.expect("the same").object;
        assert_eq!(again, made, "{plural} is filled once");
    }
}
