//! Writers that meet, answers that are lost, copies that are old.

use super::*;

#[tokio::test(start_paused = true)]
async fn patches_of_many_all_count() {
    let bench = Arc::new(Bench::new().await);
    bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let writers = (0..8).map(|writer| {
        let bench = bench.clone();
        tokio::spawn(async move {
            for round in 0..5 {
                let body = json!({ "data": { format!("k{writer}-{round}"): "x" } });
                bench.merge("configmaps", WHOLE, "a", body).await.expect("patched");
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.expect("no panic");
    }
    let now = bench.get("configmaps", "n", "a").await.expect("there");
    assert_eq!(now["data"].as_object().expect("data").len(), 41, "none was lost");
}

#[tokio::test(start_paused = true)]
async fn of_two_who_put_one_version_one_is_told_of_the_conflict() {
    let bench = Bench::new().await;
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    let put = |value: &str| {
        let mut sent = made.clone();
        sent["data"]["key"] = json!(value);
        bench.update("configmaps", WHOLE, sent)
    };
    let (one, two) = tokio::join!(put("2"), put("3"));
    let mut codes = [code(one), code(two)];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
    let mut blind = made.clone();
    blind["metadata"]["resourceVersion"] = json!(null);
    blind["data"]["key"] = json!("4");
    bench.update("configmaps", WHOLE, blind).await.expect("who names no version overwrites");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_found_again() {
    let bench = Bench::new().await;
    bench.store.lose_answers(1);
    let made = bench.create("configmaps", "n", config("a", "1")).await.expect("it was made");
    assert_eq!(revision(&made), bench.store.revision());
    bench.store.lose_answers(1);
    let patched = bench.merge("configmaps", WHOLE, "a", json!({ "data": { "key": "2" } })).await;
    assert_eq!(revision(&patched.expect("it was changed")), bench.store.revision());
    bench.store.lose_answers(1);
    let refusal = bench.delete("configmaps", "n", "a").await.expect_err("nobody can say who deleted it");
    assert_eq!((refusal.code(), refusal.retry_after_s), (504, None));
    assert!(refusal.message.contains("outcome"), "{}", refusal.message);
    bench.store.refuse_writes(1);
    let refusal = bench.create("configmaps", "n", config("b", "1")).await.expect_err("refused");
    assert_eq!((refusal.code(), refusal.retry_after_s), (503, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn pod_that_becomes_ready_while_it_is_evicted_is_judged_again() {
    let bench = Bench::new().await;
    let labels = json!({ "app": "a" });
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    let pod = json!({ "metadata": { "name": "p", "labels": labels }, "spec": spec });
    let pending = bench.create("pods", "n", pod).await.expect("made");
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "selector": { "matchLabels": labels }, "minAvailable": 1 } });
    bench.create("poddisruptionbudgets", "n", budget).await.expect("made");
    let status = Part::Of(Endpoint::Status);
    let healthy = json!({ "observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1 });
    bench.merge("poddisruptionbudgets", status, "b", json!({ "status": healthy })).await.expect("kept");
    let becomes = |ready: &str| {
        let conditions = json!([{ "type": "Ready", "status": ready }]);
        let body = json!({ "status": { "phase": "Running", "conditions": conditions } });
        let bench = &bench;
        async move { bench.merge("pods", status, "p", body).await.expect("changed") }
    };
    let unready = becomes("False").await;
    becomes("True").await;
    let kind = bench.kind("pods");
    let place = Place { kind: &kind, namespace: "n", name: "p", writer: Writer::Door };
    let evict = async |seen: &Value, options: DeleteOptions| {
        let seen = meerkat_kubernetes::object::Object::decode(seen.clone()).expect("a pod").0;
        bench.storage.evict_as_read(place, &seen, &options).await
    };
    let again = evict(&pending, DeleteOptions::default()).await.expect("it may be otherwise by now");
    assert_eq!(code(again), 409);
    let later = evict(&unready, DeleteOptions::default()).await.expect_err("it is ready now");
    assert_eq!((later.code(), later.retry_after_s), (429, Some(10)));
    let asked = Preconditions { resource_version: Some(revision(&unready).to_string()), uid: None };
    let options = DeleteOptions { preconditions: asked, ..DeleteOptions::default() };
    for seen in [&pending, &unready] {
        let own = evict(seen, options.clone()).await.expect_err("that is not the version any more");
        assert_eq!(own.code(), 409);
    }
    let body = json!({ "metadata": { "name": "p" } });
    assert_eq!(code(bench.storage.evict(place, &body, false).await), 429);
    let pod = bench.get("pods", "n", "p").await.expect("it is still there");
    assert_eq!(pod["status"]["conditions"].as_array().expect("conditions").len(), 1, "nothing was noted");

    becomes("False").await;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    bench.merge("pods", WHOLE, "p", held).await.expect("held");
    bench.storage.evict(place, &body, false).await.expect("it is not ready");
    let pod = bench.get("pods", "n", "p").await.expect("it is held");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let noted = &pod["status"]["conditions"][1];
    assert_eq!(
        (&noted["type"], &noted["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
}

/// The cache is made to lag behind the store.
#[tokio::test(start_paused = true)]
async fn what_only_an_old_copy_says_is_asked_of_the_store() {
    let bench = Bench::new().await;
    let old = bench.create("configmaps", "n", config("a", "1")).await.expect("made");
    bench.settle("configmaps").await;
    bench.store.hold_watches(true);
    let new =
        bench.merge("configmaps", WHOLE, "a", json!({ "data": { "key": "2" } })).await.expect("changed");
    // What was so of the copy is not so any more.
    let back =
        bench.merge("configmaps", WHOLE, "a", json!({ "data": { "key": "1" } })).await.expect("changed");
    assert!(revision(&new) < revision(&back), "a copy that has it already is no reason to do nothing");
    let mut sent = back.clone();
    sent["data"]["key"] = json!("3");
    bench.update("configmaps", WHOLE, sent).await.expect("a version newer than the copy's is no conflict");
    assert_eq!(code(bench.update("configmaps", WHOLE, old).await), 409);
    bench.delete("configmaps", "n", "a").await.expect("gone");
    assert_eq!(code(bench.merge("configmaps", WHOLE, "a", json!({})).await), 404, "the copy is still there");
    bench.create("configmaps", "n", config("a", "4")).await.expect("the name is free");
    bench.store.hold_watches(false);
}
