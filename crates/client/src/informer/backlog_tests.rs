//! What a slow handler is told, and what it costs.

use super::*;
use crate::{KeyValue, Revision};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn object(key: &str, modified: i64) -> Arc<Object<()>> {
    let modified = Revision::new(modified);
    let key = Bytes::copy_from_slice(key.as_bytes());
    let kv = KeyValue { key, value: Bytes::new(), created: modified, modified, version: 1, lease: None };
    Arc::new(Object::new(&kv, ()))
}

fn added(key: &str, at: i64) -> Delta<()> {
    Delta::Added(object(key, at))
}

fn updated(key: &str, from: i64, to: i64) -> Delta<()> {
    Delta::Updated { old: object(key, from), new: object(key, to) }
}

fn deleted(key: &str, last: i64, unseen: bool) -> Delta<()> {
    Delta::Deleted { last: object(key, last), unseen }
}

/// Everything told, with the past where there is one.
fn drain(backlog: &mut Backlog<()>) -> Vec<String> {
    std::iter::from_fn(|| backlog.pop())
        .map(|delta| match &delta {
            Delta::Updated { old, .. } => format!("{delta:?} from {}", old.modified),
            _ => format!("{delta:?}"),
        })
        .collect()
}

fn check(log_max: usize, pushed: &[Delta<()>], expected: &[&str]) {
    let mut backlog = Backlog::new(log_max);
    for delta in pushed {
        backlog.push(delta);
    }
    assert_eq!(drain(&mut backlog), expected);
    assert!(backlog.nets.is_empty() && backlog.places.is_empty(), "nothing stays behind");
}

#[test]
fn a_handler_that_keeps_up_is_told_everything_in_order() {
    check(
        8,
        &[added("a", 1), added("b", 2), updated("a", 1, 3), deleted("b", 2, false), added("b", 5)],
        &["Added(a@1)", "Added(b@2)", "Updated(a@3) from 1", "Deleted(b@2)", "Added(b@5)"],
    );
}

#[test]
fn beyond_the_bound_only_the_newest_state_of_each_key_is_told() {
    check(
        1,
        &[added("a", 1), updated("a", 1, 2), added("b", 3), updated("a", 2, 4), updated("a", 4, 5)],
        &["Added(a@1)", "Updated(a@5) from 1", "Added(b@3)"],
    );
}

#[test]
fn a_key_that_came_and_went_untold_leaves_nothing() {
    check(0, &[added("a", 1), updated("a", 1, 2), deleted("a", 2, false)], &[]);
}

#[test]
fn a_delete_tells_what_the_handler_knew_last() {
    check(
        1,
        &[added("a", 1), updated("a", 1, 2), deleted("a", 2, true)],
        &["Added(a@1)", "Deleted unseen(a@1)"],
    );
}

#[test]
fn a_key_deleted_and_made_again_is_an_update_from_what_the_handler_knew() {
    check(1, &[added("a", 1), deleted("a", 1, false), added("a", 7)], &["Added(a@1)", "Updated(a@7) from 1"]);
}

#[test]
fn a_doubt_is_told_after_the_state_that_is_in_doubt() {
    let (one, two) = (object("a", 1), object("a", 2));
    let doubt = |last: &Arc<Object<()>>| Delta::Undecodable { last: Arc::clone(last), reason: "bad".into() };
    let update = Delta::Updated { old: Arc::clone(&one), new: Arc::clone(&two) };
    let pushed = [Delta::Added(Arc::clone(&one)), update, doubt(&two)];
    check(8, &pushed, &["Added(a@1)", "Updated(a@2) from 1", "Undecodable(a@2)"]);
    check(1, &pushed, &["Added(a@1)", "Updated(a@2) from 1", "Undecodable(a@2)"]);
    check(0, &pushed, &["Added(a@2)", "Undecodable(a@2)"]);
    check(0, &[doubt(&one), Delta::Deleted { last: one, unseen: false }], &["Deleted(a@1)"]);
}

#[test]
fn while_keys_wait_behind_the_log_no_change_overtakes_them() {
    let mut backlog = Backlog::new(1);
    for delta in [added("a", 1), updated("a", 1, 2)] {
        backlog.push(&delta);
    }
    assert_eq!(backlog.pop().map(|delta| format!("{delta:?}")), Some("Added(a@1)".into()));
    // There is room in the log again, but an update of the key is waiting behind it.
    backlog.push(&updated("a", 2, 3));
    assert_eq!(drain(&mut backlog), ["Updated(a@3) from 1"]);
    backlog.push(&updated("a", 3, 4));
    assert_eq!(drain(&mut backlog), ["Updated(a@4) from 3"]);
}

#[test]
fn a_resync_tells_each_object_once_and_never_an_old_one() {
    let mut backlog = Backlog::new(0);
    let (a, b) = (object("a", 1), object("b", 2));
    for _ in 0..3 {
        backlog.resync(&a);
        backlog.resync(&b);
    }
    backlog.push(&Delta::Updated { old: Arc::clone(&a), new: object("a", 5) });
    assert_eq!(drain(&mut backlog), ["Updated(a@5) from 1", "Resync(b@2)"]);
    backlog.resync(&b);
    backlog.push(&Delta::Deleted { last: b, unseen: false });
    assert_eq!(drain(&mut backlog), ["Deleted(b@2)"]);
}

#[test]
fn a_stopped_handler_costs_no_more_than_the_keys_there_are() {
    let mut backlog = Backlog::new(16);
    for round in 0..100_000i64 {
        // Names that never come again: they must not pile up.
        let name = format!("job/{round}");
        backlog.push(&added(&name, round));
        backlog.push(&deleted(&name, round, false));
        backlog.push(&updated("steady", round, round + 1));
    }
    assert!(backlog.len() <= 16 + 2, "{} entries", backlog.len());
    assert!(backlog.nets.len() == backlog.places.len() && backlog.nets.len() <= 2);
    assert!(0 < backlog.left_out());
}

/// Random changes and a reader of random pace: the chain of each key always holds.
#[test]
fn whatever_is_left_out_what_is_told_follows_from_what_was_told() {
    for seed in 0..2_000 {
        let mut draws = StdRng::seed_from_u64(seed);
        let mut backlog = Backlog::new(draws.random_range(0..6));
        let mut truth: HashMap<String, Arc<Object<()>>> = HashMap::new();
        let mut view: HashMap<String, Arc<Object<()>>> = HashMap::new();
        for revision in 1..120 {
            match draws.random_range(0..10) {
                0..6 => change(&mut truth, &mut backlog, revision, &mut draws),
                6 => truth.values().for_each(|object| backlog.resync(object)),
                _ => {
                    if let Some(delta) = backlog.pop() {
                        follow(&mut view, &delta);
                    }
                }
            }
        }
        while let Some(delta) = backlog.pop() {
            follow(&mut view, &delta);
        }
        assert_eq!(view, truth, "seed {seed}: the final state was missed");
    }
}

fn change(
    truth: &mut HashMap<String, Arc<Object<()>>>,
    backlog: &mut Backlog<()>,
    revision: i64,
    draws: &mut StdRng,
) {
    let key = format!("k{}", draws.random_range(0..4));
    let delta = match truth.remove(&key) {
        Some(last) if draws.random_bool(0.4) => Delta::Deleted { last, unseen: draws.random() },
        Some(last) if draws.random_bool(0.2) => Delta::Undecodable { last, reason: "bad".into() },
        Some(old) => Delta::Updated { old, new: object(&key, revision) },
        None => added(&key, revision),
    };
    if !matches!(delta, Delta::Deleted { .. }) {
        truth.insert(key, Arc::clone(delta.object()));
    }
    backlog.push(&delta);
}

fn follow(view: &mut HashMap<String, Arc<Object<()>>>, delta: &Delta<()>) {
    let key = String::from_utf8_lossy(delta.key()).into_owned();
    let known = view.remove(&key);
    let (past, now) = match delta {
        Delta::Added(new) => (None, Some(new)),
        Delta::Updated { old, new } => (Some(old), Some(new)),
        Delta::Deleted { last, .. } => (Some(last), None),
        Delta::Undecodable { last: same, .. } | Delta::Resync(same) => (Some(same), Some(same)),
    };
    assert_eq!(known.as_ref(), past, "told of a past that was not: {delta:?}");
    if let Some(now) = now {
        view.insert(key, Arc::clone(now));
    }
}
