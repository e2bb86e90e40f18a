//! Creates, updates, patches and deletes.

use crate::rig::{MAPS, Rig, config_map, version};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

#[tokio::test]
async fn what_is_written_is_read() {
    let rig = Rig::new().await;
    let made = rig.make("a", json!({})).await;
    let again = rig.write("POST", MAPS, &config_map("a", json!({}))).await;
    assert_eq!((again.code, &again.json()["reason"]), (409, &json!("AlreadyExists")));
    let path = format!("{MAPS}/a");
    assert_eq!(rig.get(&path).await.json(), made);
    // What changes nothing is no change.
    let mut watch = rig.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&made)), "").await;
    let same = rig.write("PUT", &path, &made).await;
    assert_eq!((same.code, version(&same.json())), (200, version(&made)));
    assert!(watch.is_silent().await);
    let mut stale = made.clone();
    stale["metadata"]["resourceVersion"] = json!("1");
    stale["data"]["a"] = json!("9");
    let reply = rig.write("PUT", &path, &stale).await;
    assert_eq!((reply.code, &reply.json()["reason"]), (409, &json!("Conflict")));
    let gone = rig.ask("DELETE", &path, &[], "").await;
    assert_eq!((gone.code, &gone.json()["status"]), (200, &json!("Success")));
    assert_eq!(rig.get(&path).await.code, 404);
}

#[tokio::test]
async fn a_test_of_null_holds_for_what_is_missing() {
    let rig = Rig::new().await;
    rig.make("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let patch = json!([
        { "op": "test", "path": "/metadata/finalizers", "value": null },
        { "op": "add", "path": "/metadata/finalizers", "value": ["example.com/keep"] },
    ]);
    let reply = rig.patch(&path, JSON_PATCH, &patch).await;
    assert_eq!(reply.code, 200, "{}", reply.text());
    assert_eq!(rig.patch(&path, JSON_PATCH, &patch).await.code, 422);
    // Held back by its finalizer until that is taken away.
    let held = rig.ask("DELETE", &path, &[], "").await;
    assert_eq!(held.code, 200);
    assert!(held.json()["metadata"]["deletionTimestamp"].is_string());
    let mut watch =
        rig.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&held.json())), "").await;
    let last = rig.patch(&path, MERGE, &json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(last.code, 200, "{}", last.text());
    assert_eq!(watch.brief().await.0, "DELETED");
    assert_eq!(rig.get(&path).await.code, 404);
}

#[tokio::test]
async fn patch_cannot_change_a_uid() {
    let rig = Rig::new().await;
    let made = rig.make("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let uid = json!({ "metadata": { "uid": "other" } });
    let applied =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "uid": "other" } });
    for (path, form, body) in [
        (path.clone(), MERGE, uid.clone()),
        (path.clone(), "application/strategic-merge-patch+json", uid),
        (path.clone(), JSON_PATCH, json!([{ "op": "replace", "path": "/metadata/uid", "value": "other" }])),
        (format!("{path}?fieldManager=me"), "application/apply-patch+yaml", applied),
    ] {
        let status = rig.patch(&path, form, &body).await.json();
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&json!(422), &json!("Invalid")),
            "{form}: {status}"
        );
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["field"], "metadata.uid");
        assert_eq!(cause["message"], "Invalid value: \"other\": field is immutable");
    }
    let mut put = made;
    put["metadata"]["uid"] = json!("other");
    assert_eq!(rig.write("PUT", &path, &put).await.code, 409, "in an update it is a precondition");
}

#[tokio::test]
async fn server_side_apply_follows_client_side_apply() {
    let rig = Rig::new().await;
    let note = "kubectl.kubernetes.io/last-applied-configuration";
    let config = |color: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "default" },
            "data": { "color": color },
        })
    };
    let mut made = config("blue");
    made["metadata"]["annotations"] = json!({ note: format!("{}\n", config("blue")) });
    let made = rig.write("POST", &format!("{MAPS}?fieldManager=kubectl-client-side-apply"), &made).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let apply = async |manager: &str, color: &str| {
        let path = format!("{MAPS}/a?fieldManager={manager}");
        rig.patch(&path, "application/apply-patch+yaml", &config(color)).await
    };
    assert_eq!(apply("other", "red").await.code, 409);
    // As `kubectl diff --server-side` asks.
    let dry = apply("kubectl&dryRun=All", "red").await;
    assert_eq!((dry.code, &dry.json()["data"]["color"]), (200, &json!("red")), "{}", dry.text());
    let applied = apply("kubectl", "red").await.json();
    let noted = applied["metadata"]["annotations"][note].as_str().expect("the annotation stays");
    assert_eq!(serde_json::from_str::<Value>(noted).expect("JSON"), config("red"));
}

#[tokio::test]
async fn bad_values_are_refused_with_field_and_reason() {
    let rig = Rig::new().await;
    let labels = json!({ "app": "a" });
    let good = json!({
        "metadata": { "name": "a" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut bad = good.clone();
    bad["spec"]["replicas"] = json!(-1);
    bad["spec"]["template"]["spec"]["containers"] = json!([]);
    let reply = rig.write("POST", path, &bad).await;
    let status = reply.json();
    assert_eq!((reply.code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(
        status["details"],
        json!({
            "name": "a", "group": "apps", "kind": "Deployment",
            "causes": [
                {
                    "reason": "FieldValueInvalid", "field": "spec.replicas",
                    "message": "Invalid value: -1: must be greater than or equal to 0",
                },
                { "reason": "FieldValueRequired", "field": "spec.template.spec.containers", "message": "Required value" },
            ],
        })
    );
    assert_eq!(rig.write("POST", path, &good).await.code, 201);
    let change = json!({ "spec": { "selector": { "matchLabels": { "app": "b" } }, "template": { "metadata": { "labels": { "app": "b" } } } } });
    let status = rig.patch(&format!("{path}/a"), MERGE, &change).await.json();
    assert_eq!(
        (&status["code"], &status["details"]["causes"][0]["field"]),
        (&json!(422), &json!("spec.selector"))
    );
    let scaled = rig.patch(&format!("{path}/a"), MERGE, &json!({ "spec": { "replicas": 3 } })).await;
    assert_eq!(scaled.code, 200, "{}", scaled.text());
    let mut long = config_map("long", json!({}));
    long["data"] = json!({ "a": "x".repeat((1 << 20) + 1) });
    let reply = rig.write("POST", MAPS, &long).await;
    assert_eq!(
        reply.json()["message"],
        "ConfigMap \"long\" is invalid: []: Too long: may not be more than 1048576 bytes"
    );
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Of spans with a `min`, a `max` and a class, of which this rule holds.
fn spans_with(rule: &str) -> Value {
    let spec = json!({
        "type": "object", "required": ["min", "max"],
        "properties": {
            "min": { "type": "integer" }, "max": { "type": "integer" },
            "class": { "type": "string", "x-kubernetes-validations": [
                { "rule": "self == oldSelf", "message": "class is immutable", "reason": "FieldValueForbidden" },
            ] },
        },
        "x-kubernetes-validations": [
            { "rule": rule, "messageExpression": "'max is ' + string(self.max)", "fieldPath": ".max" },
        ],
    });
    json!({
        "metadata": { "name": "spans.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "spans", "kind": "Span" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
            }],
        },
    })
}

fn span(kind: &str, min: i64, max: i64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": "s" },
        "spec": { "min": min, "max": max, "class": "a" },
    })
}

#[tokio::test]
async fn definition_with_a_rule_that_does_not_compile_is_refused() {
    let rig = Rig::new().await;
    let place = "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    for (rule, why) in [
        ("self.min <", "compilation failed: syntax error"),
        ("self.least < self.max", "compilation failed: undefined field 'least'"),
        ("isURL(self.class)", "compilation failed: the function isURL() is not supported"),
    ] {
        let status = rig.write("POST", DEFINITIONS, &spans_with(rule)).await.json();
        assert_eq!(status["code"], 422, "{rule}: {status}");
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["field"], place);
        assert!(cause["message"].as_str().is_some_and(|message| message.contains(why)), "{cause}");
    }
}

#[tokio::test]
async fn validation_rules_of_definitions_are_enforced() {
    let rig = Rig::new().await;
    let made = rig.write("POST", DEFINITIONS, &spans_with("self.min <= self.max")).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let spans = "/apis/example.com/v1/namespaces/default/spans";
    let status = rig.write("POST", spans, &span("Span", 5, 3)).await.json();
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(
        status["details"]["causes"],
        json!([{ "reason": "FieldValueInvalid", "field": "spec.max", "message": "Invalid value: max is 3" }])
    );
    let made = rig.write("POST", spans, &span("Span", 1, 3)).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let one = format!("{spans}/s");
    let status = rig.patch(&one, MERGE, &json!({ "spec": { "class": "b" } })).await.json();
    let told = "Forbidden: class is immutable";
    assert_eq!(
        status["details"]["causes"],
        json!([{ "reason": "FieldValueForbidden", "field": "spec.class", "message": told }])
    );
    let apply = format!("{one}?fieldManager=m&force=true");
    let applied = rig.patch(&apply, "application/apply-patch+yaml", &span("Span", 9, 3)).await;
    assert_eq!(applied.code, 422);
    assert_eq!(rig.patch(&one, MERGE, &json!({ "spec": { "max": 9 } })).await.code, 200);
}

/// As definitions may be that were stored before rules were read.
#[tokio::test]
async fn stored_definition_with_a_broken_rule_can_be_changed_and_deleted() {
    let rig = Rig::new().await;
    let made = rig.write("POST", DEFINITIONS, &spans_with("true")).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let mut stored = made.json();
    let one = format!("{DEFINITIONS}/links.example.com");
    let names = json!({ "plural": "links", "singular": "link", "kind": "Link", "listKind": "LinkList" });
    stored["metadata"]["name"] = json!("links.example.com");
    stored["spec"]["names"] = names.clone();
    stored["status"]["acceptedNames"] = names;
    let rule = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations/0/rule";
    *stored.pointer_mut(rule).expect("a rule") = json!("isURL(self.class)");
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/links.example.com";
    rig.store.put(key, stored.to_string());
    let links = "/apis/example.com/v1/namespaces/default/links";
    rig.until(links, 200).await;
    let mut held = span("Link", 1, 3);
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    let linked = rig.write("POST", links, &held).await;
    assert_eq!(linked.code, 201, "the rule is passed over: {}", linked.text());
    let link = format!("{links}/{}", held["metadata"]["name"].as_str().expect("a name"));
    assert_eq!(rig.ask("DELETE", &link, &[], "").await.code, 200);
    let freed = rig.patch(&link, MERGE, &json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(freed.code, 200, "{}", freed.text());
    assert_eq!(rig.get(&link).await.code, 404);
    let mut second = stored["spec"]["versions"][0].clone();
    second["name"] = json!("v0");
    second["storage"] = json!(false);
    let versions =
        |second: &Value| json!({ "spec": { "versions": [second, stored["spec"]["versions"][0]] } });
    let moved = rig.patch(&one, MERGE, &versions(&second)).await;
    assert_eq!(moved.code, 200, "the same rule in another place: {}", moved.text());
    let rule = rule.trim_start_matches("/spec/versions/0");
    *second.pointer_mut(rule).expect("a rule") = json!("isURL(self.other)");
    assert_eq!(rig.patch(&one, MERGE, &versions(&second)).await.code, 422, "another rule");
    second["schema"]["openAPIV3Schema"]["properties"]["x"] = json!({});
    *second.pointer_mut(rule).expect("a rule") = json!("isURL(self.class)");
    let untyped = rig.patch(&one, MERGE, &versions(&second)).await;
    assert_eq!(untyped.code, 422, "what is wrong beside the rule is told: {}", untyped.text());
    let labelled = rig.patch(&one, MERGE, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(labelled.code, 200, "{}", labelled.text());
    assert_eq!(rig.ask("DELETE", &one, &[], "").await.code, 200);
    rig.until(&one, 404).await;
}

#[tokio::test]
async fn bodies_of_all_forms() {
    let rig = Rig::new().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  a: b\n";
    let made = rig.ask("POST", MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!((made.code, &made.json()["data"]["a"]), (201, &json!("b")));
    let binary =
        meerkat_kubernetes::protobuf::encode(&config_map("p", json!({ "x": "y" }))).expect("protobuf");
    let form = [("content-type", "application/vnd.kubernetes.protobuf")];
    let made = rig.ask("POST", MAPS, &form, binary).await;
    assert_eq!((made.code, &made.json()["metadata"]["labels"]["x"]), (201, &json!("y")));
    let options = meerkat_kubernetes::protobuf::encode(
        &json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] }),
    );
    let dry = rig.ask("DELETE", &format!("{MAPS}/p"), &form, options.expect("protobuf")).await;
    assert_eq!(dry.code, 200, "{}", dry.text());
    assert_eq!(rig.get(&format!("{MAPS}/p")).await.code, 200);
    let form = [("content-type", "application/apply-patch+yaml")];
    let apply = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: s\ndata:\n  a: c\n";
    let path = format!("{MAPS}/s");
    assert_eq!(rig.ask("PATCH", &path, &form, apply).await.code, 422);
    let made = rig.ask("PATCH", &format!("{path}?fieldManager=me"), &form, apply).await;
    assert_eq!(made.code, 201, "{}", made.text());
    assert_eq!(rig.ask("POST", MAPS, &[("content-type", "text/plain")], "x").await.code, 415);
    let twice = r#"{"metadata":{"name":"d"},"data":{"a":"1","a":"2"}}"#;
    let form = [("content-type", "application/json")];
    let strict = rig.ask("POST", &format!("{MAPS}?fieldValidation=Strict"), &form, twice).await;
    assert_eq!(strict.code, 400, "{}", strict.text());
    let warned = rig.ask("POST", MAPS, &form, twice).await;
    assert_eq!(warned.code, 201, "{}", warned.text());
    assert!(warned.header("warning").contains("duplicate field"), "{:?}", warned.headers);
}

#[tokio::test]
async fn a_definition_is_served_at_once() {
    let rig = Rig::new().await;
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": { "replicas": { "type": "integer" } } } } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "dolls.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "dolls", "singular": "doll", "kind": "Doll", "listKind": "DollList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } },
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = rig.write("POST", path, &definition).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let dolls = "/apis/example.com/v1/namespaces/default/dolls";
    let mut watch = rig.watch(&format!("{dolls}?watch=true"), "").await;
    assert_eq!(watch.code, 200);
    let doll = json!({ "apiVersion": "example.com/v1", "kind": "Doll", "metadata": { "name": "d" }, "spec": { "replicas": 2 } });
    let made = rig.write("POST", dolls, &doll).await;
    assert_eq!(made.code, 201, "{}", made.text());
    assert_eq!(watch.brief().await.0, "ADDED");
    let scale = rig.get(&format!("{dolls}/d/scale")).await.json();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    let scaled = rig.patch(&format!("{dolls}/d/scale"), MERGE, &json!({ "spec": { "replicas": 5 } })).await;
    assert_eq!((scaled.code, &scaled.json()["spec"]["replicas"]), (200, &json!(5)));
    let status =
        rig.patch(&format!("{dolls}/d/status"), MERGE, &json!({ "status": { "replicas": 1 } })).await;
    assert_eq!(status.code, 200, "{}", status.text());
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(rig.patch(&format!("{dolls}/d"), strategic, &json!({})).await.code, 415);
    assert_eq!(rig.get_as(dolls, "application/vnd.kubernetes.protobuf").await.code, 406);
    let groups: Value = rig.get("/apis").await.json();
    assert!(groups["groups"].as_array().expect("groups").iter().any(|group| group["name"] == "example.com"));
}

#[tokio::test]
async fn a_collection_goes_page_by_page_for_who_asks_so() {
    let rig = Rig::new().await;
    for nth in 0..5 {
        rig.make(&format!("m{nth}"), json!({ "app": "x" })).await;
    }
    let select = "labelSelector=app%3Dx";
    let mut path = format!("{MAPS}?{select}&limit=2");
    let (mut sizes, mut versions) = (Vec::new(), Vec::new());
    loop {
        let reply = rig.ask("DELETE", &path, &[], "").await;
        assert_eq!(reply.code, 200, "{}", reply.text());
        let list = reply.json();
        assert_eq!(list["kind"], "ConfigMapList");
        sizes.push(list["items"].as_array().expect("items").len());
        versions.push(version(&list));
        let Some(token) = list["metadata"]["continue"].as_str() else { break };
        path = format!("{MAPS}?{select}&limit=2&continue={token}");
    }
    assert_eq!(sizes, [2, 2, 1]);
    assert!(versions.iter().all(|version| *version == versions[0]), "pages of one list: {versions:?}");
    assert_eq!(rig.get(&format!("{MAPS}?{select}")).await.json()["items"], json!([]));
    assert_eq!(rig.ask("DELETE", &format!("{MAPS}?resourceVersion=1000000"), &[], "").await.code, 504);
}

#[tokio::test]
async fn pods_are_bound_and_evicted_within_their_budget() {
    let rig = Rig::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": { "name": "p", "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    assert_eq!(rig.write("POST", pods, &pod).await.code, 201);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n" },
    });
    let one = format!("{pods}/p");
    let bound = rig.write("POST", &format!("{one}/binding"), &binding).await;
    assert_eq!((bound.code, &bound.json()["status"]), (201, &json!("Success")), "{}", bound.text());
    assert_eq!(rig.get(&one).await.json()["spec"]["nodeName"], "n");
    assert_eq!(rig.write("POST", &format!("{one}/binding"), &binding).await.code, 409);
    let running =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(rig.patch(&format!("{one}/status"), MERGE, &running).await.code, 200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({
        "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "a" } } },
    });
    assert_eq!(rig.write("POST", budgets, &budget).await.code, 201);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" } });
    let evict = format!("{one}/eviction");
    let refused = rig.write("POST", &evict, &eviction).await;
    assert_eq!((refused.code, refused.header("retry-after")), (429, "10"), "{}", refused.text());
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "DisruptionBudget");
    let allowed = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": 1 } });
    assert_eq!(rig.patch(&format!("{budgets}/b/status"), MERGE, &allowed).await.code, 200);
    assert_eq!(rig.write("POST", &format!("{evict}?dryRun=All"), &eviction).await.code, 201);
    assert_eq!(rig.get(&one).await.code, 200);
    let evicted = rig.write("POST", &evict, &eviction).await;
    assert_eq!(evicted.code, 201, "{}", evicted.text());
    assert_eq!(rig.get(&one).await.code, 404);
    let left = rig.get(&format!("{budgets}/b")).await.json();
    assert_eq!(left["status"]["disruptionsAllowed"], 0);
    assert!(left["status"]["disruptedPods"]["p"].is_string());
    let resources = rig.get("/api/v1").await.json();
    let named = |name: &str| {
        resources["resources"]
            .as_array()
            .and_then(|all| all.iter().find(|each| each["name"] == name))
            .cloned()
    };
    let listed = named("pods/eviction").expect("kubectl drain looks for it");
    assert_eq!(
        (&listed["group"], &listed["version"], &listed["kind"]),
        (&json!("policy"), &json!("v1"), &json!("Eviction"))
    );
    assert_eq!(rig.write("POST", &evict, &eviction).await.code, 404);
}
