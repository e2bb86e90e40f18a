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
