//! Lists: whole and in pages, from the cache and from the store.

use super::*;
use meerkat_watchcache::continue_token::ContinueToken;

fn plan(at: ReadAt, limit: u64, resume: Option<ContinueToken>) -> ListPlan {
    ListPlan { at, resume, limit: NonZeroU64::new(limit) }
}

/// The names on each page, and the revisions of the pages.
async fn pages(bench: &Bench, filter: &Filter, at: ReadAt, limit: u64) -> (Vec<Vec<String>>, Vec<u64>) {
    let (mut pages, mut revisions, mut next) = (Vec::new(), Vec::new(), plan(at, limit, None));
    loop {
        let listed = bench.list("configmaps", filter, &next).await.expect("a page");
        pages.push(listed.entries.iter().map(|entry| entry.key().to_string()).collect());
        revisions.push(listed.revision);
        let Some(token) = token(filter, &listed) else { return (pages, revisions) };
        next = plan(ReadAt::Exact(listed.revision), limit, Some(token));
    }
}

fn token(filter: &Filter, listed: &Listed) -> Option<ContinueToken> {
    let last = listed.next.as_deref()?.strip_suffix('\0').expect("a start");
    let last = match &filter.scope().namespace {
        Some(namespace) => last.strip_prefix(&format!("{namespace}/")).expect("of the namespace"),
        None => last,
    };
    Some(ContinueToken::decode(&ListPlan::next_token(last, listed.revision).encode()).expect("a token"))
}

async fn filled() -> Bench {
    let bench = Bench::new().await;
    bench.create("namespaces", "", json!({ "metadata": { "name": "n2" } })).await.expect("made");
    for (namespace, count) in [("n", 30), ("n2", 10)] {
        for name in 0..count {
            let mut sent = config(&format!("c{name:02}"), "1");
            sent["metadata"]["labels"] = json!({ "third": (name % 3).to_string() });
            bench.create("configmaps", namespace, sent).await.expect("made");
        }
    }
    bench.store.put("/registry/configmaps/n/c05x", "this is no object");
    bench.store.put("/registry/configmaps/n/c05/y", config("y", "1").to_string());
    bench
}

#[tokio::test(start_paused = true)]
async fn pages_from_the_cache_and_from_the_store_are_the_same() {
    let bench = filled().await;
    let third = || vec![Term::label("third", Test::Equals("1".into()))];
    for scope in [Scope::all(), Scope::namespace("n"), Scope::namespace("n2"), Scope::object("n", "c03")] {
        for filter in [Filter::new(scope.clone(), Vec::new()), Filter::new(scope.clone(), third())] {
            for limit in [1, 3, 7, 30, 100] {
                let at = ReadAt::Exact(bench.store.revision());
                let cached = pages(&bench, &filter, ReadAt::MostRecent, limit).await;
                let stored = stored_pages(&bench, &filter, limit).await;
                assert_eq!(cached.0, stored, "{filter:?} by {limit}");
                assert_eq!(pages(&bench, &filter, at, limit).await.0, stored);
                assert!(cached.1.iter().all(|revision| *revision == cached.1[0]), "one list, one revision");
                let all: usize = stored.iter().map(Vec::len).sum();
                assert!(stored.iter().all(|page| page.len() <= limit as usize) && all <= 40);
            }
        }
    }
}

async fn stored_pages(bench: &Bench, filter: &Filter, limit: u64) -> Vec<Vec<String>> {
    let kind = bench.kind("configmaps");
    let (mut pages, mut first) = (Vec::new(), String::new());
    loop {
        let limit = std::num::NonZeroUsize::new(limit as usize);
        let asked = super::super::read::Asked { kind: &kind, filter, first, limit, revision: None };
        let Ok(listed) = asked.read_store(&bench.store).await else { panic!("no list") };
        pages.push(listed.entries.iter().map(|entry| entry.key().to_string()).collect());
        let Some(next) = listed.next else { return pages };
        first = next;
    }
}

#[tokio::test(start_paused = true)]
async fn pages_stay_with_their_revision_until_it_is_gone() {
    let bench = filled().await;
    let filter = Filter::new(Scope::namespace("n"), Vec::new());
    let first = bench.list("configmaps", &filter, &plan(ReadAt::MostRecent, 10, None)).await.expect("a page");
    let token = token(&filter, &first).expect("there is more");
    bench.delete("configmaps", "n", "c15").await.expect("gone");
    bench.create("configmaps", "n", config("c15a", "1")).await.expect("made");
    let next = plan(ReadAt::Exact(first.revision), 10, Some(token.clone()));
    let second = bench.list("configmaps", &filter, &next).await.expect("a page");
    let names: Vec<&str> = second.entries.iter().map(|entry| entry.name()).collect();
    assert!(names.contains(&"c15") && !names.contains(&"c15a"));
    assert_eq!(second.revision, first.revision);

    bench.store.compact(bench.store.revision());
    bench.forget("configmaps").await;
    let refusal = bench.list("configmaps", &filter, &next).await.expect_err("it is gone");
    assert_eq!(refusal.reason, Reason::Expired);
    let fresh = ContinueToken::decode(&refusal.continue_token.expect("a fresh one")).expect("a token");
    let rest =
        bench.list("configmaps", &filter, &plan(ReadAt::MostRecent, 100, Some(fresh))).await.expect("rest");
    let names: Vec<&str> = rest.entries.iter().map(|entry| entry.name()).collect();
    assert_eq!((names[0], names.len()), ("c10", 20));
    let refusal =
        bench.list("configmaps", &filter, &plan(ReadAt::Exact(1), 0, None)).await.expect_err("gone");
    assert_eq!((refusal.reason, refusal.continue_token), (Reason::Expired, None));
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_does_not_come_is_too_large() {
    let bench = filled().await;
    let future = bench.store.revision() + 100;
    for at in [ReadAt::Exact(future), ReadAt::NotOlderThan(future)] {
        let refusal =
            bench.list("configmaps", &Filter::default(), &plan(at, 0, None)).await.expect_err("future");
        assert_eq!((refusal.code(), refusal.causes[0].reason), (504, "ResourceVersionTooLarge"));
    }
    let kind = bench.kind("configmaps");
    let place = Place { kind: &kind, namespace: "n", name: "c01", writer: Writer::Door };
    assert_eq!(code(bench.storage.get(place, ReadAt::NotOlderThan(future)).await), 504);
    let here = ReadAt::NotOlderThan(bench.store.revision());
    assert_eq!(code(bench.storage.get(place, here).await), 200);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_among_the_objects_is_told_of() {
    let bench = filled().await;
    assert_eq!(code(bench.get("configmaps", "n", "c05x").await), 500);
    assert_eq!(code(bench.delete("configmaps", "n", "c05x").await), 500);
    assert_eq!(code(bench.create("configmaps", "n", config("c05x", "1")).await), 409);
}
