//! Pages about the server: kinds, schemas, health.

use crate::rig::Rig;
use serde_json::{Value, json};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

#[tokio::test]
async fn which_kinds_there_are() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/api").await.json()["versions"], json!(["v1"]));
    let resources = rig.get("/api/v1").await.json();
    assert_eq!(resources["groupVersion"], "v1");
    assert_eq!(rig.get("/apis/apps").await.json()["preferredVersion"]["version"], "v1");
    assert_eq!(rig.get("/apis/apps/v1").await.json()["kind"], "APIResourceList");
    assert_eq!(rig.get("/apis/none").await.code, 404);
    for path in ["/api", "/apis"] {
        let reply = rig.get_as(path, AGGREGATED).await;
        assert!(reply.header("content-type").contains("as=APIGroupDiscoveryList"), "{path}");
        assert_eq!(reply.json()["kind"], "APIGroupDiscoveryList");
        let headers = [("accept", AGGREGATED), ("if-none-match", reply.header("etag"))];
        let again = rig.ask("GET", path, &headers, "").await;
        assert_eq!((again.code, again.bytes.len()), (304, 0));
        let plain = [("if-none-match", reply.header("etag"))];
        assert_eq!(rig.ask("GET", path, &plain, "").await.code, 200);
    }
    assert!(rig.get("/").await.json()["paths"].as_array().expect("paths").contains(&json!("/apis/apps/v1")));
    assert!(rig.get("/version").await.json()["gitVersion"].is_string());
}

#[tokio::test]
async fn how_kinds_are_made() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/openapi/v2").await.json()["swagger"], "2.0");
    let proto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let reply = rig.get_as("/openapi/v2", proto).await;
    assert_eq!(
        (reply.code, reply.header("content-type")),
        (200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    );
    let index = rig.get("/openapi/v3").await.json();
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let document = rig.get(&url).await;
    assert_eq!(document.json()["openapi"], "3.0.0");
    let again = rig.ask("GET", &url, &[("if-none-match", document.header("etag"))], "").await;
    assert_eq!(again.code, 304);
    assert_eq!(rig.get("/openapi/v3/apis/none/v1").await.code, 404);
}

#[tokio::test]
async fn whether_it_is_well() {
    let rig = Rig::new().await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        let reply = rig.get(path).await;
        assert_eq!((reply.code, reply.text().as_str()), (200, "ok"), "{path}");
    }
    assert_eq!(rig.get("/readyz/nothing").await.code, 404);
    let text = rig.get("/metrics").await.text();
    assert!(text.contains("meerkat_listwatch_requests_total{verb=\"GET\",code=\"200\"}"), "{text}");
    assert!(text.contains("meerkat_listwatch_feed_ready{place=\"namespaces\"} 1"), "{text}");
    assert!(text.contains("meerkat_listwatch_keeper_collected_total 0"), "{text}");
}

#[tokio::test]
async fn verbose_health_lists_every_check() {
    let rig = Rig::new().await;
    let reply = rig.get("/readyz?verbose").await;
    let listed = "[+]ping ok\n[+]etcd ok\n[+]shutdown ok\nreadyz check passed\n";
    assert_eq!((reply.code, reply.text().as_str()), (200, listed));
    let reply = rig.get("/livez?verbose=&exclude=ping").await;
    assert_eq!(reply.text(), "[+]ping excluded: ok\nlivez check passed\n");
    assert_eq!(rig.get("/readyz/etcd").await.text(), "ok");
}

#[tokio::test]
async fn invalid_timeout_is_refused_on_every_page() {
    let rig = Rig::new().await;
    for path in [
        "/version",
        "/api",
        "/apis",
        "/readyz",
        "/openapi/v2",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
    ] {
        let reply = rig.get(&format!("{path}?timeout=invalid")).await;
        assert_eq!(reply.code, 400, "{path}");
        let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with("invalid timeout specified in the request URL"), "{message}");
        assert_eq!(rig.get(&format!("{path}?timeout=30s")).await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn reviews_have_no_table_form() {
    let rig = Rig::new().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } }).to_string();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let either = format!("{table},application/json");
    for (accept, code) in [(table, 406), (either.as_str(), 201)] {
        let headers = [("accept", accept), ("content-type", "application/json")];
        assert_eq!(rig.ask("POST", path, &headers, body.clone()).await.code, code, "{accept}");
    }
}

#[tokio::test]
async fn token_review_without_users_authenticates_nobody() {
    let rig = Rig::new().await;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, answer) = review(&rig, path, "TokenReview", json!({ "token": "t" })).await;
    assert_eq!((code, &answer["status"]["authenticated"]), (201, &json!(false)));
    assert_eq!(review(&rig, path, "TokenReview", json!({})).await.0, 400);
}

async fn review(rig: &Rig, path: &str, kind: &str, spec: Value) -> (u16, Value) {
    let (version, body) = (
        path.strip_prefix("/apis/").and_then(|rest| rest.split_once("/v1/")).expect("a path"),
        json!({ "kind": kind, "spec": spec }),
    );
    let mut body = body;
    body["apiVersion"] = json!(format!("{}/v1", version.0));
    let reply = rig.write("POST", path, &body).await;
    (reply.code, reply.json())
}

#[tokio::test]
async fn who_may_what() {
    let rig = Rig::new().await;
    let spec = json!({ "resourceAttributes": { "verb": "get", "resource": "pods" } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = review(&rig, path, "SelfSubjectAccessReview", spec).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (code, answer) =
        review(&rig, path, "SelfSubjectRulesReview", json!({ "namespace": "default" })).await;
    assert_eq!((code, &answer["status"]["incomplete"]), (201, &json!(false)));
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = review(&rig, path, "SelfSubjectReview", json!({})).await;
    assert_eq!((code, &answer["status"]["userInfo"]["username"]), (201, &json!("system:anonymous")));
}
