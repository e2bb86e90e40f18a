//! JSON merge patches: RFC 7386. A member is replaced, null takes it out, lists are replaced whole.

use crate::object::{DEPTH_MAX, depth_within};
use crate::status::Refusal;
use serde_json::{Map, Value};

/// The document after `patch`.
pub fn apply(mut document: Value, patch: Value) -> Result<Value, Refusal> {
    if !depth_within(&patch, DEPTH_MAX) {
        return Err(Refusal::bad_request("error decoding patch: it is nested too deeply"));
    }
    if !patch.is_object() {
        return Err(Refusal::bad_request("error decoding patch: a merge patch is a JSON object"));
    }
    merge(&mut document, patch);
    Ok(document)
}

fn merge(place: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *place = patch;
        return;
    };
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    let Value::Object(map) = place else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(&key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use serde_json::json;

    #[test]
    fn the_examples_of_the_rfc() {
        for (document, patch, expected) in [
            (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "b" }), json!({ "b": "c" }), json!({ "a": "b", "b": "c" })),
            (json!({ "a": "b" }), json!({ "a": null }), json!({})),
            (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
            (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "c" }), json!({ "a": ["b"] }), json!({ "a": ["b"] })),
            (
                json!({ "a": { "b": "c" } }),
                json!({ "a": { "b": "d", "c": null } }),
                json!({ "a": { "b": "d" } }),
            ),
            (json!({ "a": [{ "b": "c" }] }), json!({ "a": [1] }), json!({ "a": [1] })),
            (json!({ "e": null }), json!({ "a": 1 }), json!({ "e": null, "a": 1 })),
            (json!([1, 2]), json!({ "a": "b", "c": null }), json!({ "a": "b" })),
            (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
        ] {
            assert_eq!(apply(document, patch.clone()), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn what_is_no_object_is_no_merge_patch() {
        for patch in [json!(1), json!([]), json!(null), json!("a")] {
            assert_eq!(apply(json!({}), patch).expect_err("malformed").code(), 400);
        }
        let deep = (0..=DEPTH_MAX).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!(apply(json!({}), deep).expect_err("too deep").code(), 400);
    }

    fn random_value(random: &mut StdRng, levels: u32) -> Value {
        match random.random_range(0..if levels == 0 { 3 } else { 5 }) {
            0 => Value::Null,
            1 => json!(random.random_range(0..3)),
            2 => json!([random.random_range(0..3)]),
            _ => {
                let mut map = Map::new();
                for key in ["a", "b", "c"] {
                    if random.random_bool(0.6) {
                        map.insert(key.to_owned(), random_value(random, levels - 1));
                    }
                }
                Value::Object(map)
            }
        }
    }

    #[test]
    fn merging_twice_is_merging_once_and_every_path_of_the_patch_is_there() {
        fn holds(document: &Value, patch: &Value) -> bool {
            match patch {
                Value::Object(patch) => patch.iter().all(|(key, value)| match document.get(key) {
                    Some(found) => !value.is_null() && holds(found, value),
                    None => value.is_null(),
                }),
                _ => document == patch,
            }
        }
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..5_000 {
            let (document, patch) = (random_value(&mut random, 3), random_value(&mut random, 3));
            let Ok(once) = apply(document.clone(), patch.clone()) else { continue };
            assert!(holds(&once, &patch), "{document} + {patch} = {once}");
            assert_eq!(apply(once.clone(), patch.clone()), Ok(once), "{document} + {patch}");
        }
    }
}
