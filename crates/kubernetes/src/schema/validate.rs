//! Whether an object is as its schema says. What is not is told by its field path.
//!
//! The number of causes is bounded, and so is the work: past the bound an object is refused unread.

use super::pattern::Pattern;
use super::{Additional, Bound, Limits, ListType, Range, Schema, Type, child, element, format};
use crate::object::Object;
use crate::object::check::{CAUSES_MAX, shown};
use crate::status::Cause;
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeSet;

/// What the check of one object may take: pairs of a schema's node and a value, and steps of patterns. A second or so.
const STEPS_MAX: u64 = 20_000_000;
/// How many of our steps one of a pattern may take.
const PATTERN_STEP: u64 = 4;
/// Allowed values that a message lists.
const CHOICES_SHOWN_MAX: usize = 32;

impl Schema {
    /// What is wrong with an object. Whether its metadata is good is not asked here, but for what the
    /// schema says of names.
    pub fn check(&self, object: &Object) -> Vec<Cause> {
        let mut checker = Checker::new();
        checker.limits(self, &object.to_value(), "");
        checker.object(self, object.as_map(), "");
        checker.finish("")
    }

    pub(super) fn value_causes(&self, value: &Value, path: &str) -> Vec<Cause> {
        let mut checker = Checker::new();
        checker.value(self, value, path);
        checker.finish(path)
    }
}

struct Checker {
    causes: Vec<Cause>,
    steps: u64,
}

impl Checker {
    fn new() -> Checker {
        Checker { causes: Vec::new(), steps: 0 }
    }

    fn refuse(&mut self, cause: Cause) {
        if self.causes.len() < CAUSES_MAX {
            self.causes.push(cause);
        }
    }

    fn invalid(&mut self, path: &str, value: &Value, why: &str) {
        self.refuse(Cause::invalid(path, &brief(value), why));
    }

    /// `false`: enough has been done, or said.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps < STEPS_MAX && self.causes.len() < CAUSES_MAX
    }

    /// Whether there are enough steps left to match a text.
    fn steps_of(&mut self, pattern: &Pattern, text: &str) -> bool {
        let steps = (pattern.steps(text.len()) as u64).saturating_mul(PATTERN_STEP);
        self.steps = self.steps.saturating_add(steps);
        self.steps < STEPS_MAX
    }

    /// An object that was not read to its end is not let in, whatever was found until then.
    fn finish(self, path: &str) -> Vec<Cause> {
        if self.steps < STEPS_MAX {
            return self.causes;
        }
        vec![Cause::forbidden(path, "the object is too large for its schema to be checked")]
    }

    fn value(&mut self, schema: &Schema, value: &Value, path: &str) {
        if !self.step() {
            return;
        }
        if value.is_null() && schema.nullable {
            return;
        }
        if !self.has_type(schema, value, path) {
            return;
        }
        self.limits(schema, value, path);
        match value {
            Value::Object(map) => {
                if schema.embedded_resource {
                    self.embedded(map, path);
                }
                self.object(schema, map, path);
            }
            Value::Array(list) => self.list(schema, list, path),
            _ => {}
        }
    }

    fn has_type(&mut self, schema: &Schema, value: &Value, path: &str) -> bool {
        let (fits, expected) = match schema.value_type {
            _ if schema.int_or_string => (is_integer(value) || value.is_string(), "integer or string"),
            None => (true, ""),
            Some(Type::Object) => (value.is_object(), "object"),
            Some(Type::Array) => (value.is_array(), "array"),
            Some(Type::String) => (value.is_string(), "string"),
            Some(Type::Integer) => (is_integer(value), "integer"),
            Some(Type::Number) => (value.is_number(), "number"),
            Some(Type::Boolean) => (value.is_boolean(), "boolean"),
        };
        if !fits {
            self.refuse(Cause {
                reason: "FieldValueTypeInvalid",
                message: format!("Invalid value: {:?}: must be of type {expected}", type_name(value)),
                field: path.to_owned(),
            });
        }
        fits
    }

    fn object(&mut self, schema: &Schema, map: &Map<String, Value>, path: &str) {
        for (field, value) in map {
            if let Some(property) = schema.properties.get(field) {
                self.value(property, value, &child(path, field));
            } else if let Additional::Like(like) = &schema.additional {
                self.value(like, value, &child(path, field));
            }
        }
    }

    /// An object inside of an object says what it is.
    fn embedded(&mut self, map: &Map<String, Value>, path: &str) {
        for field in ["apiVersion", "kind"] {
            if map.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                self.refuse(Cause::required(child(path, field), "must not be empty"));
            }
        }
        if map.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
            self.refuse(Cause::required(child(path, "metadata"), "must be an object"));
        }
    }

    fn list(&mut self, schema: &Schema, list: &[Value], path: &str) {
        if let Some(items) = &schema.items {
            for (index, item) in list.iter().enumerate() {
                self.value(items, item, &element(path, index));
            }
        }
        let mut known = BTreeSet::new();
        for (index, item) in list.iter().enumerate() {
            let key = match schema.list_type {
                None | Some(ListType::Atomic) => return,
                Some(ListType::Set) => item.clone(),
                Some(ListType::Map) => {
                    let keys = schema.list_map_keys.iter();
                    Value::Object(
                        keys.filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect(),
                    )
                }
            };
            if !known.insert(key.to_string()) {
                self.refuse(Cause::duplicate(element(path, index), &brief(&key)));
            }
        }
    }

    fn limits(&mut self, schema: &Schema, value: &Value, path: &str) {
        let limits = &schema.limits;
        if let Some(choices) = &limits.choices
            && !choices.iter().any(|choice| same(choice, value))
        {
            let words: Vec<String> = choices
                .iter()
                .take(CHOICES_SHOWN_MAX)
                .map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned))
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.refuse(Cause::not_supported(path, &brief(value), &words));
        }
        match value {
            Value::String(text) => self.text(limits, text, path),
            Value::Number(number) => self.number(limits, number, path),
            Value::Array(list) => self.count(limits.items, list.len(), "items", path),
            Value::Object(map) => {
                self.count(limits.properties, map.len(), "properties", path);
                for field in limits.required.iter().filter(|field| !map.contains_key(*field)) {
                    self.refuse(Cause::required(child(path, field), ""));
                }
            }
            _ => {}
        }
        self.junctors(limits, value, path);
    }

    fn text(&mut self, limits: &Limits, text: &str, path: &str) {
        let Range { least, most } = limits.length;
        // Letters are counted, not bytes.
        let letters = if least.or(most).is_some() { text.chars().count() as u64 } else { 0 };
        if least.is_some_and(|least| letters < least) {
            let why = format!("must have at least {} characters", least.unwrap_or_default());
            self.refuse(Cause::invalid(path, &shown(text), &why));
        }
        if let Some(most) = most.filter(|most| *most < letters) {
            self.refuse(Cause {
                reason: "FieldValueTooLong",
                message: format!("Too long: may not be more than {most} bytes"),
                field: path.to_owned(),
            });
        }
        if let Some(pattern) = &limits.pattern
            && self.steps_of(pattern, text)
            && !pattern.matches(text)
        {
            let why = format!("must match '{}'", pattern.text);
            self.refuse(Cause::invalid(path, &shown(text), &why));
        }
        if let Some(name) = &limits.format
            && !format::fits(name, text)
        {
            self.refuse(Cause::invalid(path, &shown(text), &format!("must be of format {name}")));
        }
    }

    fn number(&mut self, limits: &Limits, number: &Number, path: &str) {
        let value = number.as_f64().unwrap_or_default();
        let shown = Value::Number(number.clone());
        if let Some(Bound { value: least, exclusive }) = limits.minimum
            && (value < least || exclusive && value == least)
        {
            let word = if exclusive { "more than" } else { "at least" };
            self.invalid(path, &shown, &format!("must be {word} {least}"));
        }
        if let Some(Bound { value: most, exclusive }) = limits.maximum
            && (most < value || exclusive && value == most)
        {
            let word = if exclusive { "less than" } else { "at most" };
            self.invalid(path, &shown, &format!("must be {word} {most}"));
        }
        if let Some(factor) = &limits.multiple_of
            && !is_multiple(number, factor)
        {
            self.invalid(path, &shown, &format!("must be a multiple of {factor}"));
        }
        let range = match limits.format.as_deref() {
            Some("int32") => f64::from(i32::MIN)..=f64::from(i32::MAX),
            Some("uint32") => 0.0..=f64::from(u32::MAX),
            _ => return,
        };
        if !range.contains(&value) {
            let name = limits.format.as_deref().unwrap_or_default();
            self.invalid(path, &shown, &format!("must be of format {name}"));
        }
    }

    fn count(&mut self, range: Range, count: usize, what: &str, path: &str) {
        let count = count as u64;
        if let Some(least) = range.least.filter(|least| count < *least) {
            let why = format!("must have at least {least} {what}");
            self.refuse(Cause::invalid(path, &json!(count), &why));
        }
        if let Some(most) = range.most.filter(|most| *most < count) {
            self.refuse(Cause {
                reason: "FieldValueTooMany",
                message: format!("Too many: {count}: must have at most {most} {what}"),
                field: path.to_owned(),
            });
        }
    }

    fn junctors(&mut self, limits: &Limits, value: &Value, path: &str) {
        for nested in &limits.all_of {
            self.value(nested, value, path);
        }
        if !limits.any_of.is_empty() && !limits.any_of.iter().any(|nested| self.fits(nested, value, path)) {
            self.invalid(path, value, "matches none of anyOf");
        }
        let one_of = limits.one_of.iter().filter(|nested| self.fits(nested, value, path)).count();
        if !limits.one_of.is_empty() && one_of != 1 {
            let why = format!("matches {one_of} of oneOf instead of one");
            self.invalid(path, value, &why);
        }
        if let Some(not) = &limits.not
            && self.fits(not, value, path)
        {
            self.invalid(path, value, "matches what not forbids");
        }
    }

    /// Whether a value fits, said to nobody.
    fn fits(&mut self, schema: &Schema, value: &Value, path: &str) -> bool {
        let mut apart = Checker { causes: Vec::new(), steps: self.steps };
        apart.value(schema, value, path);
        self.steps = apart.steps;
        apart.causes.is_empty()
    }
}

/// A value as a message shows it: never more than a line.
fn brief(value: &Value) -> Value {
    match value {
        Value::String(text) => shown(text),
        Value::Array(list) if 8 < list.len() => json!(format!("a list of {} items", list.len())),
        Value::Object(map) if 8 < map.len() => json!(format!("an object of {} fields", map.len())),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.len() <= 512 { value.clone() } else { shown(&text) }
        }
        value => value.clone(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// 3.0 counts as an integer: JSON does not tell them apart.
fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    }
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    match (number.as_i64(), factor.as_i64()) {
        (Some(number), Some(factor)) => number.checked_rem(factor) == Some(0),
        _ => {
            let quotient = number.as_f64().unwrap_or_default() / factor.as_f64().unwrap_or(1.0);
            (quotient - quotient.round()).abs() < 1e-9
        }
    }
}

fn same(choice: &Value, value: &Value) -> bool {
    match (choice, value) {
        (Value::Number(choice), Value::Number(value)) => choice == value || choice.as_f64() == value.as_f64(),
        _ => choice == value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(spec: Value, value: Value) -> Vec<(&'static str, String)> {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let schema = Schema::parse(&schema, "s").expect("a good schema");
        let (object, _) = Object::decode(json!({ "spec": value })).expect("a good object");
        schema.check(&object).into_iter().map(|cause| (cause.reason, cause.field)).collect()
    }

    fn check(spec: Value, good: &[Value], bad: &[(Value, &'static str)]) {
        for value in good {
            assert_eq!(causes(spec.clone(), value.clone()), [], "{spec} {value}");
        }
        for (value, reason) in bad {
            let expected = [(*reason, "spec".to_owned())];
            assert_eq!(causes(spec.clone(), value.clone()), expected, "{spec} {value}");
        }
    }

    const INVALID: &str = "FieldValueInvalid";
    const TYPE: &str = "FieldValueTypeInvalid";

    #[test]
    fn types() {
        check(
            json!({ "type": "integer" }),
            &[json!(1), json!(-1), json!(2.0)],
            &[(json!(1.5), TYPE), (json!("1"), TYPE), (json!(null), TYPE), (json!(true), TYPE)],
        );
        check(json!({ "type": "number" }), &[json!(1), json!(1.5)], &[(json!("1"), TYPE)]);
        check(json!({ "type": "string" }), &[json!("")], &[(json!(1), TYPE), (json!([]), TYPE)]);
        check(json!({ "type": "boolean" }), &[json!(true)], &[(json!("true"), TYPE)]);
        check(json!({ "type": "object" }), &[json!({})], &[(json!([]), TYPE)]);
        check(json!({ "type": "array", "items": { "type": "string" } }), &[json!([])], &[(json!({}), TYPE)]);
        check(json!({ "type": "string", "nullable": true }), &[json!(null), json!("a")], &[(json!(1), TYPE)]);
        let either = json!({ "x-kubernetes-int-or-string": true });
        check(either, &[json!(1), json!("50%")], &[(json!(1.5), TYPE), (json!(true), TYPE)]);
    }

    #[test]
    fn limits_of_numbers() {
        check(
            json!({ "type": "integer", "minimum": 1, "maximum": 3 }),
            &[json!(1), json!(3)],
            &[(json!(0), INVALID), (json!(4), INVALID)],
        );
        let open = json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 2, "exclusiveMaximum": true });
        check(open, &[json!(1.5)], &[(json!(1), INVALID), (json!(2), INVALID)]);
        check(
            json!({ "type": "number", "multipleOf": 0.1 }),
            &[json!(0.3), json!(2)],
            &[(json!(0.25), INVALID)],
        );
        check(json!({ "type": "integer", "multipleOf": 3 }), &[json!(9), json!(0)], &[(json!(10), INVALID)]);
        check(
            json!({ "type": "integer", "format": "int32" }),
            &[json!(2_147_483_647)],
            &[(json!(2_147_483_648_u64), INVALID)],
        );
    }

    #[test]
    fn limits_of_strings() {
        check(
            json!({ "type": "string", "minLength": 2, "maxLength": 3 }),
            &[json!("ab"), json!("\u{e9}\u{e9}\u{e9}")],
            &[(json!("a"), INVALID), (json!("abcd"), "FieldValueTooLong")],
        );
        check(json!({ "type": "string", "pattern": "^a+$" }), &[json!("aa")], &[(json!("b"), INVALID)]);
        check(json!({ "type": "string", "format": "ipv4" }), &[json!("1.2.3.4")], &[(json!("1"), INVALID)]);
        check(
            json!({ "type": "string", "enum": ["a", "b"] }),
            &[json!("b")],
            &[(json!("c"), "FieldValueNotSupported")],
        );
    }

    #[test]
    fn limits_of_lists_and_maps() {
        let list = json!({ "type": "array", "items": { "type": "integer" }, "minItems": 1, "maxItems": 2 });
        check(
            list,
            &[json!([1]), json!([1, 1])],
            &[(json!([]), INVALID), (json!([1, 2, 3]), "FieldValueTooMany")],
        );
        let map = json!({ "type": "object", "additionalProperties": { "type": "integer" }, "minProperties": 1, "maxProperties": 2 });
        check(
            map,
            &[json!({ "a": 1 })],
            &[(json!({}), INVALID), (json!({ "a": 1, "b": 1, "c": 1 }), "FieldValueTooMany")],
        );
    }

    #[test]
    fn faults_are_told_by_their_exact_place() {
        let spec = json!({ "type": "object", "required": ["must"], "properties": {
            "must": { "type": "string" },
            "list": { "type": "array", "items": { "type": "object", "properties": { "n": { "type": "integer" } } } },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
        } });
        let found = causes(spec, json!({ "list": [{ "n": 1 }, { "n": "x" }], "map": { "k": 1 } }));
        let expected = [("FieldValueRequired", "spec.must"), (TYPE, "spec.list[1].n"), (TYPE, "spec.map.k")];
        assert_eq!(found, expected.map(|(reason, field)| (reason, field.to_owned())));
    }

    #[test]
    fn junctors_restrict() {
        let with = |word: &str, list: Value| json!({ "type": "integer", word: list });
        check(
            with("allOf", json!([{ "minimum": 1 }, { "maximum": 3 }])),
            &[json!(2)],
            &[(json!(0), INVALID)],
        );
        check(
            with("anyOf", json!([{ "maximum": 1 }, { "minimum": 3 }])),
            &[json!(1), json!(3)],
            &[(json!(2), INVALID)],
        );
        check(
            with("oneOf", json!([{ "maximum": 2 }, { "minimum": 2 }])),
            &[json!(1), json!(3)],
            &[(json!(2), INVALID)],
        );
        check(with("not", json!({ "enum": [5] })), &[json!(4)], &[(json!(5), INVALID)]);
    }

    #[test]
    fn sets_and_maps_have_each_element_once() {
        let set = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } });
        assert_eq!(causes(set.clone(), json!(["a", "b"])), []);
        assert_eq!(causes(set, json!(["a", "b", "a"])), [("FieldValueDuplicate", "spec[2]".to_owned())]);
        let map = json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {
            "type": "object", "required": ["a"],
            "properties": { "a": { "type": "string" }, "b": { "type": "integer", "default": 1 }, "c": { "type": "string" } },
        } });
        assert_eq!(causes(map.clone(), json!([{ "a": "x", "b": 1 }, { "a": "x", "b": 2 }])), []);
        let twice = json!([{ "a": "x", "b": 1, "c": "p" }, { "a": "x", "b": 1, "c": "q" }]);
        assert_eq!(causes(map, twice), [("FieldValueDuplicate", "spec[1]".to_owned())]);
    }

    #[test]
    fn an_embedded_object_says_what_it_is() {
        let spec = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true });
        assert_eq!(causes(spec.clone(), json!({ "apiVersion": "v1", "kind": "Pod" })), []);
        assert_eq!(
            causes(spec, json!({ "kind": "Pod" })),
            [("FieldValueRequired", "spec.apiVersion".to_owned())]
        );
    }

    #[test]
    fn a_hostile_object_makes_a_small_answer() {
        let list = json!({ "type": "array", "items": { "type": "string", "maxLength": 1 } });
        let long = vec!["x".repeat(1_000); 2_000];
        assert_eq!(causes(list, json!(long)).len(), CAUSES_MAX);
    }

    #[test]
    fn work_is_bounded() {
        let mut checker = Checker { causes: Vec::new(), steps: STEPS_MAX - 10 };
        let schema = json!({ "type": "array", "items": { "type": "integer", "anyOf": [{ "minimum": 0 }] } });
        let schema =
            Schema::parse(&json!({ "type": "object", "properties": { "l": schema } }), "s").expect("good");
        checker.value(&schema, &json!({ "l": vec![1; 1_000] }), "");
        assert!(checker.steps < STEPS_MAX + 3_000);
        let causes = checker.finish("l");
        assert_eq!((causes.len(), causes[0].reason), (1, "FieldValueForbidden"), "said once");
    }
}
