//! Rules on the values of built-in kinds: what a type alone does not say of ports, counts, schedules, keys and
//! selectors. They keep data well-formed for those who read it; what only a kubelet or a scheduler would
//! mind is let in.
//!
//! Which field has which rule is data ([`table`]). A rule never asks for what has a default, and passes over
//! values of another type, which are the schema's to refuse. What was wrong in the object as it is stored and
//! is still wrong in the same way is no fault of an update.

mod contents;
mod cron;
mod rule;
mod selector;
mod suspended;
mod table;

use crate::object::Object;
use crate::object::check::CAUSES_MAX;
use crate::published::meaning;
use crate::registry::Kind;
use crate::status::Cause;
use rule::Rule;
pub use selector::matches as selects;
use serde_json::Value;

/// What is wrong with a new object.
pub fn on_create(object: &Object, kind: &Kind) -> Vec<Cause> {
    let mut causes = Vec::new();
    if kind.custom().is_some() {
        return causes;
    }
    let (group, name) = (kind.group.as_str(), kind.kind.as_str());
    for part in table::of(group, name) {
        for (path, rule) in part.rules {
            walk(object, &format!("{}{path}", part.below), *rule, &mut causes);
        }
    }
    causes.extend(contents::causes(group, name, object));
    causes.extend(selector::causes(group, name, object));
    causes.truncate(CAUSES_MAX);
    causes
}

/// What is wrong with `object` in the place of `stored`, and was not before.
pub fn on_update(stored: &Object, object: &Object, kind: &Kind) -> Vec<Cause> {
    let mut causes = on_create(object, kind);
    if !causes.is_empty() {
        let before = on_create(stored, kind);
        causes.retain(|cause| !before.contains(cause));
    }
    if kind.custom().is_none() {
        causes.extend(fixed(stored, object, kind));
    }
    causes
}

/// Fields that keep the value they have, however it is spelled.
fn fixed(stored: &Object, object: &Object, kind: &Kind) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(message) = kind.published() else { return causes };
    for (path, hold) in table::fixed(&kind.group, &kind.kind) {
        let mut old = meaning::at(message, stored.as_map(), path);
        let mut new = meaning::at(message, object.as_map(), path);
        if matches!(hold, table::Hold::Template) && suspended::may_move(stored) {
            suspended::forget_place(&mut old);
            suspended::forget_place(&mut new);
        }
        // One that has no value yet may get one: it may be a default that came since.
        let is_absent = at(stored, path).is_null() || (at(stored, path) == "" && old.is_null());
        let is_kept = is_absent
            || match hold {
                table::Hold::Equal => old == new,
                table::Hold::AtLeast | table::Hold::Template => says_as_much(&old, &new),
            };
        if !is_kept {
            causes.push(Cause::invalid(*path, at(object, path), "field is immutable"));
        }
    }
    causes
}

/// Null where there is none.
fn at<'o>(object: &'o Object, path: &str) -> &'o Value {
    let mut names = path.split('.');
    let first = names.next().and_then(|name| object.get(name));
    names.fold(first, |value, name| value?.get(name)).unwrap_or(&Value::Null)
}

/// Whether `new` says all that `old` says, and maybe more: defaults are filled in as they come to be.
fn says_as_much(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(name, old)| old.is_null() || new.get(name).is_some_and(|new| says_as_much(old, new))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| says_as_much(old, new))
        }
        (Value::Null, Value::Object(_)) => true,
        (old, new) => old == new,
    }
}

/// Asks `rule` about every value at `path`: `a.b` descends, `a[]` goes through a list and `a{}` through the
/// values of a map. A list or map that is not there has none; of a field that is not there the rule decides,
/// unless a `?` says that it may be absent with all that is in it.
fn walk(object: &Object, path: &str, rule: Rule, causes: &mut Vec<Cause>) {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    enter(object.get(plain(first)), String::new(), (first, rest), rule, causes);
}

/// The name of a step without its mark.
fn plain(step: &str) -> &str {
    step.trim_end_matches(['[', ']', '{', '}', '?'])
}

fn enter(value: Option<&Value>, at: String, (step, rest): (&str, &str), rule: Rule, causes: &mut Vec<Cause>) {
    let name = plain(step);
    let at = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match (&step[name.len()..], value.filter(|value| !value.is_null())) {
        ("[]", Some(Value::Array(list))) => {
            for (index, item) in list.iter().enumerate() {
                go_on(Some(item), format!("{at}[{index}]"), rest, rule, causes);
            }
        }
        ("{}", Some(Value::Object(map))) => {
            for (key, item) in map {
                go_on(Some(item), format!("{at}[{key}]"), rest, rule, causes);
            }
        }
        ("[]" | "{}", _) | ("?", None) => {}
        (_, value) => go_on(value, at, rest, rule, causes),
    }
}

fn go_on(value: Option<&Value>, at: String, rest: &str, rule: Rule, causes: &mut Vec<Cause>) {
    if CAUSES_MAX <= causes.len() {
        return;
    }
    if rest.is_empty() {
        return rule.judge(value.filter(|value| !value.is_null()), &at, causes);
    }
    let (first, rest) = rest.split_once('.').unwrap_or((rest, ""));
    enter(value.and_then(|value| value.get(plain(first))), at, (first, rest), rule, causes);
}

#[cfg(test)]
mod tests;
