//! Definitions, and the custom objects that they let in.

use super::*;
use meerkat_kubernetes::crd::CLEANUP_FINALIZER;

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": [{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }],
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": {
                        "size": { "type": "integer", "default": 3, "maximum": 10 },
                    } },
                    "status": { "type": "object", "properties": { "ready": { "type": "boolean" } } },
                } } },
            }],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec,
    })
}

async fn with_widgets() -> Bench {
    let bench = Bench::new().await;
    bench.create("customresourcedefinitions", "", definition()).await.expect("made");
    bench
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_from_its_first_revision_on() {
    let bench = Bench::new().await;
    let made = bench.create("customresourcedefinitions", "", definition()).await.expect("made");
    assert_eq!(made["metadata"]["finalizers"], json!([CLEANUP_FINALIZER]));
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    let conditions = made["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|each| each["type"] == "Established" && each["status"] == "True"));
    let registry = bench.storage.kinds().now();
    let kind = registry.by_resource("example.com", "v1", "widgets").expect("served");
    assert_eq!(kind.columns[1].name, "Size");

    let again = bench.update("customresourcedefinitions", WHOLE, made.clone()).await.expect("the same");
    assert_eq!(again.object, made);
    let mut bare = made;
    bare["metadata"]["finalizers"] = json!([]);
    let answer = bench.update("customresourcedefinitions", WHOLE, bare).await.expect("nothing");
    assert_eq!(answer.object["metadata"]["finalizers"], json!([CLEANUP_FINALIZER]));
}

#[tokio::test(start_paused = true)]
async fn a_bad_definition_is_refused() {
    let bench = Bench::new().await;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/type";
    for (path, value) in [("/spec/scope", json!("Everywhere")), (schema, json!("thing"))] {
        let mut sent = definition();
        *sent.pointer_mut(path).expect("there") = value;
        assert_eq!(code(bench.create("customresourcedefinitions", "", sent).await), 422, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn custom_objects_keep_to_their_schema() {
    let bench = with_widgets().await;
    let sent = widget("a", json!({ "colour": "red" }));
    let strict = WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    assert_eq!(code(bench.create_with("widgets", "n", sent.clone(), &strict).await), 400);
    let answer = bench.create_with("widgets", "n", sent, &WriteOptions::default()).await.expect("made");
    assert_eq!(answer.warnings, ["unknown field \"spec.colour\""]);
    assert_eq!(answer.object["spec"], json!({ "size": 3 }));
    assert_eq!(answer.object["metadata"]["generation"], 1);
    let refusal = bench.create("widgets", "n", widget("b", json!({ "size": 11 }))).await.expect_err("big");
    assert_eq!((refusal.code(), &*refusal.causes[0].field), (422, "spec.size"));
    let refusal =
        bench.merge("widgets", WHOLE, "a", json!({ "spec": { "size": 11 } })).await.expect_err("big");
    assert_eq!(refusal.code(), 422);
    let changed = bench.merge("widgets", WHOLE, "a", json!({ "spec": { "size": 4 } })).await.expect("fits");
    assert_eq!(changed["metadata"]["generation"], 2);
    let part = Part::Of(Endpoint::Status);
    let ready =
        bench.merge("widgets", part, "a", json!({ "status": { "ready": true } })).await.expect("fits");
    assert_eq!((&ready["status"]["ready"], &ready["metadata"]["generation"]), (&json!(true), &json!(2)));
    let applied = bench.apply("widgets", "m", false, widget("c", json!({ "size": 1 }))).await.expect("made");
    assert!(applied.created && applied.object["spec"]["size"] == 1);
}

#[tokio::test(start_paused = true)]
async fn what_became_wrong_by_a_stricter_schema_can_stay() {
    let bench = with_widgets().await;
    bench.create("widgets", "n", widget("a", json!({ "size": 9 }))).await.expect("made");
    let strict = json!([{ "op": "replace", "value": 5,
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum" }]);
    let patch = Patch::Of { form: PatchForm::Json, body: strict, options: WriteOptions::default() };
    let kind = bench.kind("customresourcedefinitions");
    let place = Place { kind: &kind, namespace: "", name: "widgets.example.com", writer: Writer::Door };
    bench.storage.patch(place, WHOLE, &patch, "m").await.expect("stricter");
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    bench.merge("widgets", WHOLE, "a", label).await.expect("nobody touched the size");
    assert_eq!(code(bench.merge("widgets", WHOLE, "a", json!({ "spec": { "size": 8 } })).await), 422);
    bench.merge("widgets", WHOLE, "a", json!({ "spec": { "size": 5 } })).await.expect("it fits");
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_goes_takes_nothing_new() {
    let bench = with_widgets().await;
    bench.create("widgets", "n", widget("a", json!({}))).await.expect("made");
    let name = "widgets.example.com";
    let marked = bench.delete("customresourcedefinitions", "", name).await.expect("marked");
    let conditions = marked["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|each| each["type"] == "Terminating" && each["status"] == "True"));
    assert_eq!(code(bench.create("widgets", "n", widget("b", json!({}))).await), 405);
    assert_eq!(code(bench.apply("widgets", "m", false, widget("b", json!({}))).await), 405);
    assert_eq!(code(bench.merge("widgets", WHOLE, "a", json!({ "spec": { "size": 1 } })).await), 200);
    let free = json!({ "metadata": { "finalizers": null } });
    bench.merge("customresourcedefinitions", WHOLE, name, free).await.expect("gone");
    let registry = bench.storage.kinds().fresh().await.expect("fresh");
    assert!(registry.by_resource("example.com", "v1", "widgets").is_none());
}

#[tokio::test(start_paused = true)]
async fn definitions_of_other_doors_are_served_to_who_asks() {
    let bench = Bench::new().await;
    let shared: Arc<dyn meerkat_watchcache::store::Store> = Arc::new(bench.store.clone());
    let other =
        Bench { storage: Storage::new(shared.clone(), Feeds::new(shared)), store: bench.store.clone() };
    other.storage.kinds().fresh().await.expect("fresh");
    bench.create("customresourcedefinitions", "", definition()).await.expect("made");
    let registry = other.storage.kinds().fresh().await.expect("fresh");
    assert!(registry.by_resource("example.com", "v1", "widgets").is_some());
    other.create("widgets", "n", widget("a", json!({}))).await.expect("made");
    let mut made = bench.get("customresourcedefinitions", "", "widgets.example.com").await.expect("there");
    made["spec"]["names"]["shortNames"] = json!(["wd"]);
    bench.update("customresourcedefinitions", WHOLE, made).await.expect("changed");
    for _ in 0..1_000 {
        if other.kind("widgets").short_names == ["wd"] {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("nobody follows the definitions");
}

const VERSIONS: &str = "/spec/versions";

/// The definition, with its versions changed.
async fn redefine(bench: &Bench, edit: impl FnOnce(&mut Vec<Value>)) {
    let name = "widgets.example.com";
    let mut sent = bench.get("customresourcedefinitions", "", name).await.expect("there");
    edit(sent.pointer_mut(VERSIONS).and_then(Value::as_array_mut).expect("versions"));
    bench.update("customresourcedefinitions", WHOLE, sent).await.expect("redefined");
}

fn stored_widget(bench: &Bench) -> Value {
    let rows = bench.store.rows("/registry/example.com/widgets/");
    serde_json::from_slice(&rows[0].value).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_brings_an_object_into_the_stored_version() {
    let bench = with_widgets().await;
    let made = bench.create("widgets", "n", widget("a", json!({ "size": 1 }))).await.expect("made");
    redefine(&bench, |versions| {
        let mut second = versions[0].clone();
        second["name"] = json!("v2");
        versions[0]["storage"] = json!(false);
        versions.push(second);
    })
    .await;
    bench.settle("widgets").await;
    assert_eq!(stored_widget(&bench)["apiVersion"], "example.com/v1");
    let read = bench.get("widgets", "n", "a").await.expect("there");
    assert_eq!(revision(&read), revision(&made), "to read is not to write");

    let same = bench.update("widgets", WHOLE, read).await.expect("the same");
    assert_eq!(stored_widget(&bench)["apiVersion"], "example.com/v2");
    assert_eq!(revision(&same.object), bench.store.revision());
    assert_eq!(
        (&same.object["spec"], &same.object["metadata"]["generation"]),
        (&json!({ "size": 1 }), &json!(1))
    );
    let before = bench.store.revision();
    bench.update("widgets", WHOLE, same.object).await.expect("the same");
    bench.merge("widgets", WHOLE, "a", json!({})).await.expect("the same");
    assert_eq!(bench.store.revision(), before, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn objects_from_before_a_default_are_read_with_it() {
    let bench = with_widgets().await;
    bench.create("widgets", "n", widget("a", json!({ "size": 1 }))).await.expect("made");
    bench.settle("widgets").await;
    let mut watcher = {
        let kind = bench.kind("widgets");
        let begin = meerkat_watchcache::watch_plan::WatchBegin::Changes(
            meerkat_watchcache::watch_plan::ChangesAfter::Cached,
        );
        let plan = meerkat_watchcache::watch_plan::WatchPlan { begin, bookmarks: false };
        let feed = bench.storage.feeds().of(&kind).expect("a feed");
        feed.watch(&plan, Filter::default(), meerkat_watchcache::watch_plan::LIFETIME_MAX)
            .await
            .expect("a watch")
    };
    redefine(&bench, |versions| {
        let spec = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec["colour"] = json!({ "type": "string", "default": "red" });
    })
    .await;
    assert!(watcher.next().await.is_none(), "what it would tell is no longer so");
    let filled = json!({ "size": 1, "colour": "red" });
    let read = bench.get("widgets", "n", "a").await.expect("there");
    assert_eq!(read["spec"], filled);
    assert_eq!(stored_widget(&bench)["spec"], json!({ "size": 1 }), "to read is not to write");
    bench.settle("widgets").await;
    let plan = ListPlan { at: ReadAt::MostRecent, resume: None, limit: None };
    let listed = bench.list("widgets", &Filter::default(), &plan).await.expect("a list");
    let item: Value = serde_json::from_slice(listed.entries[0].json()).expect("JSON");
    assert_eq!(item["spec"], filled);

    let same = bench.update("widgets", WHOLE, read).await.expect("the same");
    assert_eq!(same.object["metadata"]["generation"], 1, "nobody wants anything else");
    assert_eq!(stored_widget(&bench)["spec"], filled);
}

/// Other work on the door's thread counts how often it has its turn meanwhile.
#[tokio::test]
async fn costly_rules_leave_the_doors_thread_to_others() {
    let bench = Bench::new().await;
    let mut sent = definition();
    let all = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c != 'x')))";
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let texts = json!({ "type": "array", "maxItems": 300, "items": { "type": "string", "maxLength": 10 } });
    *sent.pointer_mut(spec).expect("there") = json!({
        "type": "object", "properties": { "l": texts }, "x-kubernetes-validations": [{ "rule": all }],
    });
    bench.create("customresourcedefinitions", "", sent).await.expect("made");
    let mut turns = 0_u64;
    let others = async {
        loop {
            turns += 1;
            tokio::task::yield_now().await;
        }
    };
    let list: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let refused = tokio::select! {
        refused = bench.create("widgets", "n", widget("a", json!({ "l": list }))) => refused,
        () = others => unreachable!("it never ends"),
    };
    let refusal = refused.expect_err("it costs more than a write may");
    assert!(refusal.message.contains("running out of cost budget"), "{refusal}");
    assert!(1_000 < turns, "{turns} turns");
}
