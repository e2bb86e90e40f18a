//! Strategic merge patches: merge patches that know which lists are maps and which are sets.
//!
//! A directive in the patch says where merging is not what is wanted: `$patch` replaces or deletes a map or
//! an element, `$deleteFromPrimitiveList/x` takes values out of a set, `$setElementOrder/x` tells the order
//! of a list after the merge, `$retainKeys` drops the members of a map that it does not name. No directive
//! and no null of a patch is ever stored.

use super::lists::{self, ListType};
use super::unprocessable;
use crate::object::{DEPTH_MAX, depth_within};
use crate::status::Refusal;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// The document after `patch`. `kind`: the name of the kind, of which one has a rule of its own.
pub fn apply(document: Value, patch: Value, kind: &str) -> Result<Value, Refusal> {
    if !depth_within(&patch, DEPTH_MAX) {
        return Err(Refusal::bad_request("error decoding patch: it is nested too deeply"));
    }
    let (Value::Object(mut map), Value::Object(patch)) = (document, patch) else {
        return Err(Refusal::bad_request("error decoding patch: a strategic merge patch is a JSON object"));
    };
    Merger { kind, path: Vec::new() }.merge_map(&mut map, patch)?;
    Ok(Value::Object(map))
}

/// What `$patch` asks for.
#[derive(PartialEq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn take_directive(patch: &mut Map<String, Value>) -> Result<Directive, Refusal> {
    match patch.remove(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(word)) => match word.as_str() {
            "merge" => Ok(Directive::Merge),
            "replace" => Ok(Directive::Replace),
            "delete" => Ok(Directive::Delete),
            _ => Err(Refusal::bad_request(format!("unknown patch type {word:?}"))),
        },
        Some(_) => Err(Refusal::bad_request("$patch must be a string")),
    }
}

fn take_list(patch: &mut Map<String, Value>, directive: &str) -> Result<Option<Vec<Value>>, Refusal> {
    match patch.remove(directive) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(Refusal::bad_request(format!("{directive} must be a list"))),
    }
}

struct Merger<'a> {
    kind: &'a str,
    path: Vec<String>,
}

impl Merger<'_> {
    fn merge_map(
        &mut self,
        map: &mut Map<String, Value>,
        mut patch: Map<String, Value>,
    ) -> Result<(), Refusal> {
        match take_directive(&mut patch)? {
            Directive::Merge => {}
            Directive::Replace => {
                *map = plain_map(patch)?;
                return Ok(());
            }
            Directive::Delete => {
                map.clear();
                return Ok(());
            }
        }
        retain_keys(map, &mut patch)?;
        let directives: Vec<String> = patch
            .keys()
            .filter(|key| key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER))
            .cloned()
            .collect();
        let mut orders = Vec::new();
        for directive in directives {
            let Some(list) = take_list(&mut patch, &directive)? else { continue };
            if let Some(field) = directive.strip_prefix(DELETE_FROM) {
                delete_values(map, field, &list);
            } else if let Some(field) = directive.strip_prefix(ELEMENT_ORDER) {
                // The order on the server is that of before the merge.
                let before = map.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
                orders.push((field.to_owned(), before, list));
            }
        }
        for (field, value) in patch {
            self.path.push(field.clone());
            self.merge_member(map, field, value)?;
            self.path.pop();
        }
        for (field, before, order) in orders {
            self.path.push(field.clone());
            let list_type = self.list_type();
            self.path.pop();
            if let Some(Value::Array(list)) = map.get_mut(&field) {
                reorder(list, &before, &order, list_type);
            }
        }
        Ok(())
    }

    fn list_type(&self) -> ListType {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        lists::strategic(&path)
    }

    /// The selector of a disruption budget is one thing: two halves of it would match what neither meant.
    fn is_replaced(&self) -> bool {
        self.kind == "PodDisruptionBudget" && self.path == ["spec", "selector"]
    }

    fn merge_member(
        &mut self,
        map: &mut Map<String, Value>,
        field: String,
        value: Value,
    ) -> Result<(), Refusal> {
        match (map.get_mut(&field), value) {
            (_, Value::Null) => drop(map.remove(&field)),
            (Some(Value::Object(inner)), Value::Object(patch)) if !self.is_replaced() => {
                self.merge_map(inner, patch)?;
            }
            (Some(Value::Array(list)), Value::Array(patch)) => self.merge_list(list, patch)?,
            (_, value @ Value::Array(_)) => {
                // Against nothing, so that directives among the elements are carried out and not stored.
                let (mut list, Value::Array(patch)) = (Vec::new(), value) else { return Ok(()) };
                self.merge_list(&mut list, patch)?;
                map.insert(field, Value::Array(list));
            }
            (_, Value::Object(mut patch)) => {
                if take_directive(&mut patch)? == Directive::Delete {
                    map.remove(&field);
                } else {
                    let mut inner = Map::new();
                    self.merge_map(&mut inner, patch)?;
                    map.insert(field, Value::Object(inner));
                }
            }
            (_, value) => drop(map.insert(field, value)),
        }
        Ok(())
    }

    fn merge_list(&mut self, list: &mut Vec<Value>, patch: Vec<Value>) -> Result<(), Refusal> {
        match self.list_type() {
            ListType::Atomic => {
                *list = patch
                    .into_iter()
                    .filter(|item| item.get(PATCH).is_none_or(|word| word != "replace"))
                    .map(plain)
                    .collect::<Result<_, _>>()?;
                Ok(())
            }
            ListType::Set => {
                let mut known: BTreeSet<String> = list.iter().map(Value::to_string).collect();
                list.extend(patch.into_iter().filter(|value| known.insert(value.to_string())));
                Ok(())
            }
            ListType::Map(keys) => self.merge_elements(list, patch, keys),
        }
    }

    fn merge_elements(
        &mut self,
        list: &mut Vec<Value>,
        patch: Vec<Value>,
        keys: &[&str],
    ) -> Result<(), Refusal> {
        let (mut elements, mut deleted, mut replaces) = (Vec::new(), BTreeSet::new(), false);
        for element in patch {
            let Value::Object(mut element) = element else {
                return Err(unprocessable(format!(
                    "each element of {} must be an object",
                    self.path.join(".")
                )));
            };
            match take_directive(&mut element)? {
                Directive::Replace => replaces = true,
                Directive::Delete => drop(deleted.insert(self.key_of(&element, keys)?)),
                Directive::Merge => elements.push(element),
            }
        }
        if replaces {
            *list = elements.into_iter().map(|map| plain(Value::Object(map))).collect::<Result<_, _>>()?;
            return Ok(());
        }
        let mut places = BTreeMap::new();
        list.retain(|element| key(element, keys).is_none_or(|key| !deleted.contains(&key)));
        for (place, element) in list.iter().enumerate() {
            if let Some(key) = key(element, keys) {
                places.entry(key).or_insert(place);
            }
        }
        for element in elements {
            let key = self.key_of(&element, keys)?;
            let place = *places.entry(key).or_insert_with(|| {
                list.push(Value::Object(Map::new()));
                list.len() - 1
            });
            if let Some(Value::Object(found)) = list.get_mut(place) {
                self.merge_map(found, element)?;
            }
        }
        Ok(())
    }

    fn key_of(&self, element: &Map<String, Value>, keys: &[&str]) -> Result<String, Refusal> {
        key_in(element, keys).ok_or_else(|| {
            let (path, key) = (self.path.join("."), keys.first().unwrap_or(&""));
            unprocessable(format!("an element of {path} does not contain declared merge key: {key}"))
        })
    }
}

fn key(element: &Value, keys: &[&str]) -> Option<String> {
    key_in(element.as_object()?, keys)
}

fn key_in(element: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    let values: Option<Vec<&Value>> = keys.iter().map(|key| element.get(*key)).collect();
    Some(values?.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Drops the members that `$retainKeys` does not name.
fn retain_keys(map: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Refusal> {
    let Some(kept) = take_list(patch, RETAIN_KEYS)? else { return Ok(()) };
    let kept: BTreeSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    if let Some((key, _)) = patch
        .iter()
        .find(|(key, value)| !value.is_null() && !key.starts_with('$') && !kept.contains(key.as_str()))
    {
        return Err(unprocessable(format!("{key:?} is in the patch and not in its $retainKeys")));
    }
    map.retain(|key, _| kept.contains(key.as_str()));
    Ok(())
}

fn delete_values(map: &mut Map<String, Value>, field: &str, values: &[Value]) {
    let deleted: BTreeSet<String> = values.iter().map(Value::to_string).collect();
    if let Some(Value::Array(list)) = map.get_mut(field) {
        list.retain(|value| !deleted.contains(&value.to_string()));
    }
}

/// The elements that `order` names come in that order.
fn reorder(list: &mut Vec<Value>, before: &[Value], order: &[Value], list_type: ListType) {
    let name = |value: &Value| match list_type {
        ListType::Map(keys) => key(value, keys),
        _ => Some(value.to_string()),
    };
    let before: Vec<Option<String>> = before.iter().map(name).collect();
    let order: Vec<String> = order.iter().filter_map(name).collect();
    let all = std::mem::take(list).into_iter().map(|value| (name(&value), value)).collect();
    *list = lists::arrange(all, &before, &order);
}

/// A value of a patch that meets nothing, without the nulls and directives that were meant for a merge.
fn plain(value: Value) -> Result<Value, Refusal> {
    Ok(match value {
        Value::Object(mut map) => {
            take_directive(&mut map)?;
            Value::Object(plain_map(map)?)
        }
        Value::Array(list) => Value::Array(list.into_iter().map(plain).collect::<Result<_, _>>()?),
        value => value,
    })
}

fn plain_map(map: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let is_directive =
        |key: &str| key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    map.into_iter()
        .filter(|(key, value)| !value.is_null() && !is_directive(key))
        .map(|(key, value)| Ok((key, plain(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(document: Value, patch: Value, expected: Value) {
        assert_eq!(apply(document, patch.clone(), "Pod"), Ok(expected), "{patch}");
    }

    fn refused(document: Value, patch: Value, code: u16) {
        let refusal = apply(document, patch.clone(), "Pod").expect_err("a refusal");
        assert_eq!(refusal.code(), code, "{patch}: {refusal}");
    }

    fn pod(containers: Value) -> Value {
        json!({ "spec": { "containers": containers } })
    }

    #[test]
    fn maps_are_merged_and_null_takes_out() {
        check(
            json!({ "data": { "a": "1", "b": "2" } }),
            json!({ "data": { "a": null, "c": "3", "never": null }, "gone": null }),
            json!({ "data": { "b": "2", "c": "3" } }),
        );
        check(json!({}), json!({ "data": { "a": null, "b": "1" } }), json!({ "data": { "b": "1" } }));
        check(json!({ "a": 1 }), json!({ "a": { "b": null } }), json!({ "a": {} }));
    }

    #[test]
    fn elements_are_merged_by_their_key() {
        check(
            pod(
                json!([{ "name": "a", "image": "1", "env": [{ "name": "X", "value": "x" }] }, { "name": "b" }]),
            ),
            pod(json!([
                { "name": "c", "image": "3" },
                { "name": "a", "image": "2", "env": [{ "name": "Y", "value": "y" }] },
            ])),
            pod(json!([
                { "name": "a", "image": "2", "env": [{ "name": "X", "value": "x" }, { "name": "Y", "value": "y" }] },
                { "name": "b" },
                { "name": "c", "image": "3" },
            ])),
        );
    }

    #[test]
    fn other_lists_are_replaced_whole() {
        check(
            json!({ "spec": { "tolerations": [{ "key": "a" }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b", "value": null }] } }),
            json!({ "spec": { "tolerations": [{ "key": "b" }] } }),
        );
        check(
            pod(json!([{ "name": "a", "args": ["1", "2"] }])),
            pod(json!([{ "name": "a", "args": ["3"] }])),
            pod(json!([{ "name": "a", "args": ["3"] }])),
        );
    }

    #[test]
    fn sets_grow_and_shrink_by_value() {
        check(
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
            json!({ "metadata": { "finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"] } }),
            json!({ "metadata": { "finalizers": ["a", "c"] } }),
        );
        check(
            json!({ "metadata": { "finalizers": ["a", "b"] } }),
            json!({ "metadata": {
                "finalizers": ["c"], "$setElementOrder/finalizers": ["c", "b", "a"],
            } }),
            json!({ "metadata": { "finalizers": ["c", "b", "a"] } }),
        );
    }

    #[test]
    fn patch_directives_replace_and_delete() {
        let two = || pod(json!([{ "name": "a" }, { "name": "b" }]));
        check(two(), pod(json!([{ "name": "a", "$patch": "delete" }])), pod(json!([{ "name": "b" }])));
        check(two(), pod(json!([{ "$patch": "replace" }, { "name": "c" }])), pod(json!([{ "name": "c" }])));
        check(two(), pod(json!([{ "name": "x", "$patch": "delete" }])), two());
        check(
            two(),
            pod(json!([{ "name": "a", "image": "1", "$patch": "merge" }])),
            pod(json!([{ "name": "a", "image": "1" }, { "name": "b" }])),
        );
        check(
            json!({ "spec": { "selector": { "a": "1", "b": "2" } } }),
            json!({ "spec": { "selector": { "$patch": "replace", "c": "3", "d": null } } }),
            json!({ "spec": { "selector": { "c": "3" } } }),
        );
        check(
            json!({ "spec": { "selector": { "a": "1" } } }),
            json!({ "spec": { "selector": { "$patch": "delete" } } }),
            json!({ "spec": { "selector": {} } }),
        );
        check(json!({}), json!({ "x": { "$patch": "delete" } }), json!({}));
        check(
            json!({}),
            pod(json!([{ "$patch": "delete", "name": "a" }, { "name": "b" }])),
            pod(json!([{ "name": "b" }])),
        );
    }

    #[test]
    fn the_order_of_elements_is_as_told_and_others_keep_their_place() {
        let names = |names: &[&str]| pod(names.iter().map(|name| json!({ "name": name })).collect());
        let patched = |order: &[&str], patch: &[&str]| {
            let mut whole = names(patch);
            whole["spec"]["$setElementOrder/containers"] =
                order.iter().map(|name| json!({ "name": name })).collect();
            apply(names(&["a", "b", "c", "d"]), whole, "Pod").expect("a good patch")
        };
        assert_eq!(patched(&["d", "c", "b", "a"], &[]), names(&["d", "c", "b", "a"]));
        assert_eq!(patched(&["e", "a"], &["e"]), names(&["e", "a", "b", "c", "d"]));
        assert_eq!(patched(&["c", "e"], &["e"]), names(&["a", "b", "c", "e", "d"]));
        assert_eq!(patched(&["d", "a"], &["a"]), names(&["b", "c", "d", "a"]));
    }

    #[test]
    fn retain_keys_drops_what_it_does_not_name() {
        check(
            json!({ "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } } } }),
            json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } }),
            json!({ "spec": { "strategy": { "type": "Recreate" } } }),
        );
        check(
            json!({ "spec": { "volumes": [{ "name": "a", "emptyDir": {} }] } }),
            json!({ "spec": { "volumes": [{ "name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/" } }] } }),
            json!({ "spec": { "volumes": [{ "name": "a", "hostPath": { "path": "/" } }] } }),
        );
        refused(json!({ "a": {} }), json!({ "a": { "$retainKeys": ["x"], "y": 1 } }), 422);
    }

    #[test]
    fn the_selector_of_a_disruption_budget_is_replaced() {
        let document = json!({ "spec": { "selector": { "matchLabels": { "a": "1" } } } });
        let patch = json!({ "spec": { "selector": { "matchLabels": { "b": "2" } } } });
        assert_eq!(apply(document.clone(), patch.clone(), "PodDisruptionBudget"), Ok(patch.clone()));
        let merged = json!({ "spec": { "selector": { "matchLabels": { "a": "1", "b": "2" } } } });
        assert_eq!(apply(document, patch, "Deployment"), Ok(merged));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        refused(json!({}), json!([]), 400);
        refused(json!({}), json!({ "a": { "$patch": "explode" } }), 400);
        refused(json!({}), json!({ "a": { "$patch": 1 } }), 400);
        refused(json!({}), json!({ "metadata": { "$setElementOrder/finalizers": 1 } }), 400);
        refused(json!({}), pod(json!([{ "image": "a" }])), 422);
        refused(json!({}), pod(json!(["a"])), 422);
        let deep = (0..=DEPTH_MAX).fold(json!(1), |inner, _| json!({ "a": inner }));
        refused(json!({}), deep, 400);
    }

    #[test]
    fn applying_a_patch_twice_changes_nothing_more() {
        let document = pod(json!([{ "name": "a", "ports": [{ "containerPort": 1 }] }]));
        let patch = json!({
            "metadata": { "finalizers": ["x"], "labels": { "a": "b" } },
            "spec": { "containers": [
                { "name": "a", "ports": [{ "containerPort": 2, "name": "p" }] },
                { "name": "b", "volumeMounts": [{ "mountPath": "/x" }] },
            ], "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] },
        });
        let once = apply(document, patch.clone(), "Pod").expect("a good patch");
        assert_eq!(once["spec"]["containers"][0]["name"], "b");
        assert_eq!(
            once["spec"]["containers"][1]["ports"],
            json!([{ "containerPort": 1 }, { "containerPort": 2, "name": "p" }])
        );
        assert_eq!(apply(once.clone(), patch, "Pod"), Ok(once));
    }
}
