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

/// As one that was stored before types were looked at, or defaults filled in.
async fn as_it_was(bench: &Bench, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let mut stored = bench.get(plural, "n", name).await.expect("there");
    change(&mut stored);
    let key = meerkat_watchcache::key::object(&bench.kind(plural), "n", name).expect("a key");
    bench.store.put(&key, stored.to_string());
}

#[tokio::test(start_paused = true)]
async fn what_is_of_another_type_already_can_be_patched_and_mended() {
    let bench = Bench::new().await;
    let mut body = config("a", "x");
    body["metadata"]["finalizers"] = json!(["example.com/f"]);
    bench.create("configmaps", "n", body).await.expect("made");
    as_it_was(&bench, "configmaps", "a", |stored| stored["data"] = json!({ "a": 1 })).await;
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    let labelled = bench.merge("configmaps", WHOLE, "a", label.clone()).await.expect("labelled");
    assert_eq!(
        (&labelled["metadata"]["labels"], &labelled["data"]),
        (&json!({ "x": "y" }), &json!({ "a": 1 }))
    );
    let bare = json!({ "metadata": { "finalizers": null } });
    bench.merge("configmaps", WHOLE, "a", bare).await.expect("its finalizers go");
    let mended = bench.merge("configmaps", WHOLE, "a", json!({ "data": { "a": "1" } })).await;
    assert_eq!(mended.expect("mended")["data"], json!({ "a": "1" }));
    let broken = bench.merge("configmaps", WHOLE, "a", json!({ "data": { "a": 1 } })).await;
    assert_eq!(code(broken), 422, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn a_template_without_defaults_stays_until_it_is_changed() {
    let bench = Bench::new().await;
    let bare = workload()["spec"]["template"].clone();
    for plural in ["deployments", "statefulsets", "daemonsets", "replicasets"] {
        let mut body = workload();
        body["metadata"] = json!({ "name": "a" });
        (body["apiVersion"], body["kind"]) = (json!("apps/v1"), json!(bench.kind(plural).kind));
        bench.create(plural, "n", body.clone()).await.expect("made");
        as_it_was(&bench, plural, "a", |stored| stored["spec"]["template"] = bare.clone()).await;
        let label = json!({ "metadata": { "labels": { "x": "y" } } });
        let patched = bench.merge(plural, WHOLE, "a", label).await.expect("labelled");
        assert_eq!(patched["spec"]["template"], bare, "{plural}");
        let mut sent = patched.clone();
        sent["metadata"]["labels"] = json!({ "x": "z" });
        sent["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
        sent["spec"]["template"]["metadata"]["creationTimestamp"] = json!(null);
        let updated = bench.update(plural, WHOLE, sent).await.expect("updated").object;
        assert_eq!(updated["spec"]["template"], bare, "{plural}");
        assert_eq!(updated["metadata"]["generation"], patched["metadata"]["generation"], "{plural}");
        let applied = bench.apply(plural, "applier", true, body).await.expect("applied").object;
        assert_eq!(applied["spec"]["template"], bare, "{plural}");
        let image =
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "j" }] } } } });
        let changed = bench.merge(plural, WHOLE, "a", image).await.expect("changed");
        assert_eq!(changed["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst", "{plural}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_a_group_gets_it() {
    let bench = Bench::new().await;
    let reference = json!({ "apiGroup": "", "kind": "Role", "name": "r" });
    let body = json!({ "metadata": { "name": "a" }, "roleRef": reference });
    let made = bench.create("rolebindings", "n", body.clone()).await.expect("made");
    let group = "rbac.authorization.k8s.io";
    assert_eq!(made["roleRef"]["apiGroup"], group);
    as_it_was(&bench, "rolebindings", "a", |stored| stored["roleRef"]["apiGroup"] = json!("")).await;
    let updated = bench.update("rolebindings", WHOLE, body).await.expect("updated");
    assert_eq!(updated.object["roleRef"]["apiGroup"], group);
}

#[tokio::test(start_paused = true)]
async fn bytes_over_several_lines_are_kept_on_one() {
    let bench = Bench::new().await;
    let body = json!({ "metadata": { "name": "a" }, "data": { "k": "aGVs\nbG8=\n" } });
    let made = bench.create("secrets", "n", body).await.expect("made");
    assert_eq!(made["data"], json!({ "k": "aGVsbG8=" }));
}
