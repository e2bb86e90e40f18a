//! What becomes of one write after the other.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_object_lives_from_create_to_delete() {
    let bench = Bench::new().await;
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    assert_eq!(revision(&made), bench.store.revision());
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "maker");
    assert_eq!(bench.get("configmaps", "n", "a").await, Ok(made.clone()), "what is answered is stored");
    let refusal = bench.create("configmaps", "n", config("a", "2")).await.expect_err("taken");
    assert_eq!(refusal.reason, Reason::AlreadyExists);

    let mut sent = made.clone();
    sent["data"]["key"] = json!("2");
    let changed = bench.update("configmaps", WHOLE, sent).await.expect("changed");
    assert_eq!((revision(&changed.object), changed.created), (bench.store.revision(), false));
    assert_eq!(changed.object["metadata"]["uid"], made["metadata"]["uid"]);

    let gone = bench.delete("configmaps", "n", "a").await.expect("gone");
    assert_eq!((&gone["kind"], &gone["details"]["uid"]), (&json!("Status"), &made["metadata"]["uid"]));
    let refusal = bench.get("configmaps", "n", "a").await.expect_err("gone");
    assert_eq!((refusal.reason, &*refusal.message), (Reason::NotFound, "configmaps \"a\" not found"));
    assert_eq!(code(bench.delete("configmaps", "n", "a").await), 404);
    assert_eq!(code(bench.merge("configmaps", WHOLE, "a", json!({})).await), 404);
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_makes_no_revision() {
    let bench = Bench::new().await;
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let before = bench.store.revision();
    let answer = bench.update("configmaps", WHOLE, made.clone()).await.expect("the same");
    assert_eq!(answer.object, made);
    let patched = bench.merge("configmaps", WHOLE, "a", json!({ "data": { "key": "1" } })).await;
    assert_eq!(patched, Ok(made.clone()));
    bench.apply("configmaps", "applier", true, config("a", "1")).await.expect("applied");
    let owned = bench.store.revision();
    assert_eq!(owned, before + 1, "who owns it is written once");
    let again = bench.apply("configmaps", "applier", false, config("a", "1")).await.expect("again");
    assert_eq!((bench.store.revision(), revision(&again.object)), (owned, owned));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_does_everything_but_the_writing() {
    let bench = Bench::new().await;
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let before = bench.store.revision();
    let answer = bench.create_with("configmaps", "n", config("b", "1"), &dry).await.expect("it could be");
    assert!(answer.created && answer.object["metadata"].get("resourceVersion").is_none());
    assert_eq!(code(bench.create_with("configmaps", "n", config("a", "1"), &dry).await), 409);
    let kind = bench.kind("configmaps");
    let place = Place { kind: &kind, namespace: "n", name: "a", writer: Writer::Door };
    let mut sent = made.clone();
    sent["data"]["key"] = json!("2");
    let answer = bench.storage.update(place, WHOLE, sent, &dry, "m").await.expect("it could be");
    assert_eq!(answer.object["data"]["key"], "2");
    let options = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    bench.storage.delete(place, &options).await.expect("it could be");
    assert_eq!(bench.store.revision(), before);
    assert_eq!(bench.get("configmaps", "n", "a").await, Ok(made));
}

#[tokio::test(start_paused = true)]
async fn the_last_finalizer_takes_the_object_along() {
    let bench = Bench::new().await;
    let mut held = config("a", "1");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    bench.create("configmaps", "n", held).await.expect("made");
    let marked = bench.delete("configmaps", "n", "a").await.expect("marked");
    assert_eq!(marked["kind"], "ConfigMap", "it is still there, and shown");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let before = bench.store.revision();
    bench.delete("configmaps", "n", "a").await.expect("marked already");
    assert_eq!(bench.store.revision(), before);
    let refusal = bench.create("configmaps", "n", config("a", "1")).await.expect_err("taken");
    assert!(refusal.message.starts_with("object is being deleted"), "{}", refusal.message);
    let free = json!({ "metadata": { "finalizers": null } });
    let last = bench.merge("configmaps", WHOLE, "a", free).await.expect("freed");
    assert_eq!(revision(&last), bench.store.revision());
    assert_eq!(code(bench.get("configmaps", "n", "a").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_made_up_when_none_is_given() {
    let bench = Bench::new().await;
    let sent = json!({ "metadata": { "generateName": "x-" } });
    let one = bench.create("configmaps", "n", sent.clone()).await.expect("made");
    let two = bench.create("configmaps", "n", sent).await.expect("made");
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(name(&one).starts_with("x-") && name(&one).len() == 7 && name(&one) != name(&two));
    assert_eq!(code(bench.create("configmaps", "n", json!({})).await), 422);
}

#[tokio::test(start_paused = true)]
async fn deletes_keep_to_their_preconditions() {
    let bench = Bench::new().await;
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let kind = bench.kind("configmaps");
    let place = Place { kind: &kind, namespace: "n", name: "a", writer: Writer::Door };
    let uid = |uid: &str| DeleteOptions {
        preconditions: Preconditions { uid: Some(uid.to_owned()), resource_version: None },
        ..DeleteOptions::default()
    };
    let refusal = bench.storage.delete(place, &uid("other")).await.expect_err("not this one");
    assert_eq!(refusal.reason, Reason::Conflict);
    let right = made["metadata"]["uid"].as_str().expect("a uid");
    bench.storage.delete(place, &uid(right)).await.expect("this one");
}

#[tokio::test(start_paused = true)]
async fn nothing_new_comes_where_no_namespace_is() {
    let bench = Bench::new().await;
    let refusal = bench.create("configmaps", "m", config("a", "1")).await.expect_err("no namespace");
    assert_eq!(refusal.message, "namespaces \"m\" not found");
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let going = bench.delete("namespaces", "", "n").await.expect("it goes");
    assert_eq!(going["status"]["phase"], "Terminating");
    let refusal = bench.create("configmaps", "n", config("b", "1")).await.expect_err("it goes");
    assert_eq!((refusal.code(), refusal.causes[0].reason), (403, "NamespaceTerminating"));
    let refusal = bench.apply("configmaps", "m", false, config("b", "1")).await.expect_err("it goes");
    assert_eq!(refusal.code(), 403);
    let mut sent = made;
    sent["data"]["key"] = json!("2");
    bench.update("configmaps", WHOLE, sent).await.expect("what is there can be changed");

    let emptied = json!({ "metadata": { "name": "n" }, "spec": {} });
    bench.update("namespaces", Part::Of(Endpoint::Finalize), emptied).await.expect("emptied");
    assert_eq!(code(bench.get("namespaces", "", "n").await), 404, "the last finalizer took it along");
}

#[tokio::test(start_paused = true)]
async fn some_namespaces_are_always_there() {
    let bench = Bench::new().await;
    bench.storage.ensure_namespaces().await;
    let before = bench.store.revision();
    bench.storage.ensure_namespaces().await;
    assert_eq!(bench.store.revision(), before);
    let default = bench.get("namespaces", "", "default").await.expect("made");
    assert_eq!(default["metadata"]["labels"]["kubernetes.io/metadata.name"], "default");
    assert_eq!(code(bench.delete("namespaces", "", "default").await), 403);
    assert_eq!(code(bench.delete("namespaces", "", "kube-node-lease").await), 200);
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_contests_and_forces() {
    let bench = Bench::new().await;
    let made = bench.apply("configmaps", "one", false, config("a", "1")).await.expect("made");
    assert!(made.created && made.object["metadata"]["uid"].is_string());
    let refusal =
        bench.apply("configmaps", "two", false, config("a", "2")).await.expect_err("it is another's");
    assert_eq!((refusal.code(), refusal.causes[0].reason), (409, "FieldManagerConflict"));
    let forced = bench.apply("configmaps", "two", true, config("a", "2")).await.expect("forced");
    assert_eq!((&forced.object["data"]["key"], forced.created), (&json!("2"), false));
    let empty = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let left = bench.apply("configmaps", "two", false, empty).await.expect("given up");
    assert_eq!(left.object.get("data").and_then(|data| data.get("key")), None);
}

#[tokio::test(start_paused = true)]
async fn some_kinds_are_created_by_a_put() {
    let bench = Bench::new().await;
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } });
    let made = bench.update("leases", WHOLE, lease.clone()).await.expect("made");
    assert!(made.created);
    bench.delete("leases", "n", "l").await.expect("gone");
    let refusal = bench.update("leases", WHOLE, made.object).await.expect_err("it meant another");
    assert_eq!(refusal.reason, Reason::Conflict);
    let config = config("c", "1");
    assert_eq!(code(bench.update("configmaps", WHOLE, config).await), 404);
}

fn deployment() -> Value {
    let labels = json!({ "app": "a" });
    json!({
        "metadata": { "name": "d" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn status_and_scale_are_parts() {
    let bench = Bench::new().await;
    let mut sent = deployment();
    sent["status"] = json!({ "replicas": 9 });
    let made = bench.create("deployments", "n", sent).await.expect("made");
    assert_eq!(made.get("status"), None);
    let status = json!({ "spec": { "replicas": 5 }, "status": { "replicas": 1 } });
    let part = Part::Of(Endpoint::Status);
    let changed = bench.merge("deployments", part, "d", status).await.expect("changed");
    assert_eq!((&changed["spec"]["replicas"], &changed["status"]["replicas"]), (&json!(1), &json!(1)));
    let kind = bench.kind("deployments");
    let place = Place { kind: &kind, namespace: "n", name: "d", writer: Writer::Door };
    let mut scale = bench.storage.scale(place, ReadAt::MostRecent).await.expect("a scale");
    scale["spec"]["replicas"] = json!(3);
    let scaled = bench.update("deployments", Part::Scale, scale.clone()).await.expect("scaled").object;
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    assert_eq!(code(bench.update("deployments", Part::Scale, scale).await), 409, "its version is old");
    let patch = json!({ "spec": { "replicas": 4 } });
    let scaled = bench.merge("deployments", Part::Scale, "d", patch).await.expect("scaled");
    let now = bench.get("deployments", "n", "d").await.expect("there");
    assert_eq!((&now["spec"]["replicas"], revision(&now)), (&json!(4), revision(&scaled)));
    assert_eq!(now["metadata"]["generation"], 3);
    assert_eq!(code(bench.merge("configmaps", Part::Scale, "a", json!({})).await), 404);
}

#[tokio::test(start_paused = true)]
async fn events_share_leases_and_a_change_takes_a_new_one() {
    let bench = Bench::new().await;
    let event = |name: &str| json!({ "metadata": { "name": name }, "message": "x" });
    for name in ["a", "b"] {
        bench.create("events", "n", event(name)).await.expect("made");
    }
    bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let leases: Vec<i64> = bench.store.rows("/registry/events/").iter().map(|row| row.lease).collect();
    assert!(leases[0] != 0 && leases[0] == leases[1]);
    assert_eq!(bench.store.rows("/registry/configmaps/")[0].lease, 0);
    let note = json!({ "message": "y" });
    bench.merge("events", WHOLE, "a", note).await.expect("changed");
    assert_ne!(bench.store.rows("/registry/events/")[0].lease, 0);
}

#[tokio::test(start_paused = true)]
async fn a_collection_goes_object_by_object() {
    let bench = Bench::new().await;
    for name in 0..40 {
        let mut sent = config(&format!("c{name:02}"), "1");
        sent["metadata"]["labels"] = json!({ "half": (name % 2).to_string() });
        bench.create("configmaps", "n", sent).await.expect("made");
    }
    let kind = bench.kind("configmaps");
    let filter = Filter::new(Scope::namespace("n"), vec![Term::label("half", Test::Equals("1".into()))]);
    let options = DeleteOptions::default();
    let plan = |limit| ListPlan { at: ReadAt::MostRecent, resume: None, limit: NonZeroU64::new(limit) };
    let gone = bench
        .storage
        .delete_collection(&kind, &filter, &plan(5), &options, Writer::Door)
        .await
        .expect("gone");
    assert_eq!((gone.items.len(), gone.page.next.as_deref()), (5, Some("n/c09\0")), "one page");
    assert_eq!(bench.store.rows("/registry/configmaps/").len(), 35);
    let gone = bench
        .storage
        .delete_collection(&kind, &filter, &plan(0), &options, Writer::Door)
        .await
        .expect("gone");
    assert_eq!((gone.items.len(), gone.page.next), (15, None));
    assert_eq!(gone.items[0]["metadata"]["name"], "c11");
    assert_eq!(bench.store.rows("/registry/configmaps/").len(), 20);
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_changes_in_its_metadata_only() {
    let bench = Bench::new().await;
    let fixed = json!({ "metadata": { "name": "a" }, "immutable": true, "data": { "key": "MQ==" } });
    for plural in ["configmaps", "secrets"] {
        let made = bench.create(plural, "n", fixed.clone()).await.expect("made");
        let mut sent = made.clone();
        (sent["data"]["key"], sent["immutable"]) = (json!("Mg=="), json!(false));
        let refusal = bench.update(plural, WHOLE, sent).await.expect_err("it is immutable");
        let causes: Vec<(&str, &str)> =
            refusal.causes.iter().map(|cause| (cause.reason, cause.field.as_str())).collect();
        let forbidden = "FieldValueForbidden";
        assert_eq!((refusal.code(), causes), (422, vec![(forbidden, "immutable"), (forbidden, "data")]));
        let patch = json!({ "data": { "other": "Mg==" } });
        assert_eq!(code(bench.merge(plural, WHOLE, "a", patch).await), 422);
        let label = json!({ "metadata": { "labels": { "x": "y" } } });
        bench.merge(plural, WHOLE, "a", label).await.expect("its metadata can change");
        bench.delete(plural, "n", "a").await.expect("and it can go");
    }
    bench.create("secrets", "n", fixed).await.expect("made");
    let plain = json!({ "stringData": { "key": "2" } });
    assert_eq!(code(bench.merge("secrets", WHOLE, "a", plain).await), 422, "plain text is data");
    let same = json!({ "stringData": { "key": "1" } });
    bench.merge("secrets", WHOLE, "a", same).await.expect("nothing changes");
}

#[tokio::test(start_paused = true)]
async fn metadata_go_along_with_a_status() {
    let bench = Bench::new().await;
    let part = Part::Of(Endpoint::Status);
    let patch = json!({ "metadata": { "labels": { "x": "y" }, "annotations": { "a": "b" } }, "status": {} });
    let spec = deployment()["spec"]["template"]["spec"].clone();
    bench.create("pods", "n", json!({ "metadata": { "name": "p" }, "spec": spec })).await.expect("made");
    let pod = bench.merge("pods", part, "p", patch.clone()).await.expect("changed");
    assert_eq!(
        (&pod["metadata"]["labels"]["x"], &pod["metadata"]["annotations"]["a"]),
        (&json!("y"), &json!("b"))
    );
    let fields = &pod["metadata"]["managedFields"];
    let owner = fields.as_array().and_then(|all| all.iter().find(|each| each["subresource"] == "status"));
    assert!(owner.expect("noted")["fieldsV1"]["f:metadata"]["f:labels"].is_object());

    bench.create("deployments", "n", deployment()).await.expect("made");
    let deployment = bench.merge("deployments", part, "d", patch).await.expect("changed");
    assert_eq!(deployment["metadata"].get("labels"), None);
    assert_eq!(deployment["metadata"]["annotations"]["a"], "b");
}
