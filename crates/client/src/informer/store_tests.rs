//! The cache by itself.

use super::*;
use crate::Event;
use std::time::{Duration, Instant};

fn kv(key: &str, value: &str, modified: i64) -> KeyValue {
    KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        created: Revision::new(1),
        modified: Revision::new(modified),
        version: modified,
        lease: None,
    }
}

fn put(key: &str, value: &str, revision: i64) -> Event {
    Event { kind: EventKind::Put(kv(key, value, revision)), previous: None }
}

fn delete(key: &str, revision: i64) -> Event {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Event { kind: EventKind::Delete { key, modified: Revision::new(revision) }, previous: None }
}

fn changes(revision: i64, events: Vec<Event>) -> Changes {
    Changes { revision: Revision::new(revision), events }
}

/// Numbers, found by their parity and, all of them, under "any".
fn numbers() -> Writer<u32> {
    let decode: Decode<u32> =
        Box::new(|kv| String::from_utf8_lossy(&kv.value).parse().map_err(|e| format!("{e}")));
    let parity: IndexBy<u32> =
        Box::new(|object| vec![if object.value % 2 == 0 { "even" } else { "odd" }.to_owned(), "any".into()]);
    Writer::new(decode, vec![("parity".to_owned(), parity)])
}

fn shown(store: &Store<u32>) -> Vec<(String, u32)> {
    let name = |object: &Arc<Object<u32>>| String::from_utf8_lossy(&object.key).into_owned();
    store.list().iter().map(|object| (name(object), object.value)).collect()
}

fn indexed(store: &Store<u32>, value: &str) -> Vec<u32> {
    store.by_index("parity", value).expect("the index exists").iter().map(|object| object.value).collect()
}

fn told(deltas: &[Delta<u32>]) -> Vec<String> {
    deltas.iter().map(|delta| format!("{delta:?}")).collect()
}

#[test]
fn nothing_is_shown_before_it_is_published() {
    let mut writer = numbers();
    let store = writer.store().clone();
    assert_eq!((store.revision(), store.len()), (None, 0));
    let deltas = writer.replace(Revision::new(5), &[kv("a", "1", 2), kv("b", "2", 3)]);
    assert_eq!(told(&deltas), ["Added(a@2)", "Added(b@3)"]);
    assert_eq!((store.revision(), store.len()), (None, 0));
    writer.publish();
    assert_eq!(store.revision(), Some(Revision::new(5)));
    assert_eq!(shown(&store), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
}

#[test]
fn a_snapshot_does_not_change_while_the_cache_does() {
    let mut writer = numbers();
    let store = writer.store().clone();
    writer.replace(Revision::new(5), &[kv("a", "1", 2)]);
    writer.publish();
    let before = store.snapshot();
    writer.apply(&changes(6, vec![put("a", "4", 6), put("b", "5", 6)]));
    writer.publish();
    assert_eq!(before.get("a").map(|object| object.value), Some(1));
    assert_eq!((before.len(), before.revision()), (1, Some(Revision::new(5))));
    assert_eq!(before.by_index("parity", "odd").expect("known").count(), 1);
    assert_eq!(shown(&store), [("a".to_owned(), 4), ("b".to_owned(), 5)]);
}

#[test]
fn indexes_follow_every_change() {
    let mut writer = numbers();
    let store = writer.store().clone();
    writer.replace(Revision::new(5), &[kv("a", "1", 2), kv("b", "2", 3), kv("c", "3", 4)]);
    writer.publish();
    assert_eq!((indexed(&store, "odd"), indexed(&store, "even")), (vec![1, 3], vec![2]));
    writer.apply(&changes(6, vec![put("a", "10", 6), delete("c", 6)]));
    writer.publish();
    assert_eq!((indexed(&store, "odd"), indexed(&store, "even")), (vec![], vec![10, 2]));
    assert_eq!(indexed(&store, "any"), [10, 2]);
    let values: Vec<String> =
        store.snapshot().index_values("parity").expect("known").map(str::to_owned).collect();
    assert_eq!(values, ["any", "even"], "a value without objects is gone");
    writer.replace(Revision::new(9), &[kv("d", "7", 8)]);
    writer.publish();
    assert_eq!((indexed(&store, "odd"), indexed(&store, "any")), (vec![7], vec![7]));
}

#[test]
fn an_index_that_does_not_exist_is_an_error_and_not_an_empty_answer() {
    let error = numbers().store().by_index("partiy", "odd").expect_err("a typing mistake");
    assert!(error.to_string().contains("partiy"));
}

#[test]
fn a_relist_tells_only_what_changed_and_which_deletes_went_unseen() {
    let mut writer = numbers();
    let kept = [kv("a", "1", 2), kv("b", "2", 3), kv("c", "3", 4)];
    writer.replace(Revision::new(5), &kept);
    writer.publish();
    let before = writer.store().get("a").expect("there");
    let deltas = writer.replace(Revision::new(9), &[kv("a", "1", 2), kv("c", "8", 7), kv("d", "4", 8)]);
    writer.publish();
    assert_eq!(told(&deltas), ["Deleted unseen(b@3)", "Updated(c@7)", "Added(d@8)"]);
    assert!(Arc::ptr_eq(&before, &writer.store().get("a").expect("there")), "the same allocation");
}

#[test]
fn a_value_that_cannot_be_decoded_leaves_the_cache_and_is_listed_as_rejected() {
    let mut writer = numbers();
    let store = writer.store().clone();
    writer.replace(Revision::new(5), &[kv("a", "1", 2), kv("b", "no number", 3)]);
    writer.publish();
    assert_eq!((store.len(), writer.decode_errors()), (1, 1));
    let deltas = writer.apply(&changes(6, vec![put("a", "none either", 6)]));
    writer.publish();
    assert_eq!(told(&deltas), ["Undecodable(a@2)"]);
    let rejected: Vec<(Bytes, i64)> =
        store.snapshot().rejected().map(|one| (one.key.clone(), one.modified.get())).collect();
    assert_eq!(rejected, [(Bytes::from("a"), 6), (Bytes::from("b"), 3)]);
    assert!(indexed(&store, "any").is_empty());
    // Back again, gone, and still bad in a fresh list, which is not counted twice.
    let deltas = writer.apply(&changes(7, vec![put("a", "3", 7)]));
    assert_eq!(told(&deltas), ["Updated(a@7)"], "handlers still knew the former state");
    let deltas = writer.replace(Revision::new(8), &[kv("b", "no number", 3)]);
    assert_eq!((told(&deltas), writer.decode_errors()), (vec!["Deleted unseen(a@7)".to_owned()], 2));
    assert!(writer.apply(&changes(9, vec![delete("b", 9)])).is_empty(), "nobody ever knew it");
    writer.publish();
    assert_eq!((store.len(), store.snapshot().rejected().count()), (0, 0));
}

#[test]
fn the_end_of_a_key_that_was_in_doubt_is_told() {
    let mut writer = numbers();
    writer.replace(Revision::new(5), &[kv("a", "1", 2), kv("b", "2", 3)]);
    let deltas = writer.apply(&changes(6, vec![put("a", "?", 6), put("b", "?", 6)]));
    assert_eq!(told(&deltas), ["Undecodable(a@2)", "Undecodable(b@3)"]);
    let doubts = writer.apply(&changes(7, vec![put("a", "??", 7)]));
    assert_eq!(told(&doubts), ["Undecodable(a@2)"], "another value, another doubt");
    assert_eq!(told(&writer.apply(&changes(8, vec![delete("a", 8)]))), ["Deleted(a@2)"]);
    assert_eq!(told(&writer.replace(Revision::new(9), &[])), ["Deleted unseen(b@3)"]);
}

#[test]
fn deleting_what_is_not_there_tells_nothing() {
    let mut writer = numbers();
    writer.replace(Revision::new(5), &[]);
    assert!(writer.apply(&changes(6, vec![delete("x", 6)])).is_empty());
}

#[test]
fn a_key_deleted_and_put_in_one_revision_ends_as_put() {
    let mut writer = numbers();
    writer.replace(Revision::new(5), &[kv("a", "1", 2)]);
    let deltas = writer.apply(&changes(6, vec![delete("a", 6), put("a", "2", 6)]));
    assert_eq!(told(&deltas), ["Deleted(a@2)", "Added(a@6)"]);
}

#[test]
fn a_revision_that_comes_again_tells_only_what_was_missing() {
    let whole = || {
        vec![
            put("a", "2", 6),
            delete("b", 6),
            delete("c", 6),
            put("c", "3", 6),
            put("d", "?", 6),
            put("e", "4", 6),
        ]
    };
    let first = [kv("a", "1", 2), kv("b", "1", 2), kv("c", "1", 2), kv("d", "1", 2)];
    let told_all =
        ["Updated(a@6)", "Deleted(b@2)", "Deleted(c@2)", "Added(c@6)", "Undecodable(d@2)", "Added(e@6)"];
    for cut in 0..=whole().len() {
        let mut writer = numbers();
        writer.replace(Revision::new(5), &first);
        let mut all = told(&writer.apply(&changes(6, whole()[..cut].to_vec())));
        all.extend(told(&writer.apply(&changes(6, whole()))));
        assert_eq!(all, told_all, "cut after {cut}");
    }
}

#[test]
fn an_update_of_a_hundred_thousand_objects_under_readers_copies_little() {
    let many: Vec<KeyValue> = (0..100_000).map(|n| kv(&format!("key/{n:06}"), "1", 2)).collect();
    let mut writer = numbers();
    let store = writer.store().clone();
    let start = Instant::now();
    writer.replace(Revision::new(5), &many);
    writer.publish();
    let listed = start.elapsed();
    let mut held = Vec::new();
    let (mut updating, mut copying) = (Duration::ZERO, Duration::ZERO);
    for n in 0..2_000i64 {
        let start = Instant::now();
        writer.apply(&changes(6 + n, vec![put(&format!("key/{:06}", n * 37), "2", 6 + n)]));
        writer.publish();
        // A reader that holds on to what it saw, so that nothing can be changed in place.
        held.push(store.snapshot());
        updating += start.elapsed();
        if n % 50 == 0 {
            let start = Instant::now();
            assert_eq!(store.list().len(), 100_000);
            copying += start.elapsed();
        }
    }
    let (update, copy) = (updating / 2_000, copying / 40);
    println!(
        "100,000 objects, one index: listed in {listed:?}, an update {update:?}, a copy of all {copy:?}"
    );
    assert_eq!(held[0].by_index("parity", "even").expect("known").count(), 1);
    assert_eq!(store.by_index("parity", "even").expect("known").len(), 2_000);
    // Against each other and not against the clock, because the machine may be busy.
    assert!(update * 5 < copy, "an update took {update:?}, a copy of all {copy:?}");
}
