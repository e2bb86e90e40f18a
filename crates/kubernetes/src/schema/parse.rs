//! Reads a schema from the JSON of a CRD. What has the wrong shape is told by its field path.

use super::cel::{Rule, Stand};
use super::pattern::Pattern;
use super::{Additional, Bound, Limits, ListType, Range, Schema, Type};
use crate::object::check::{CAUSES_MAX, shown};
use crate::object::{DEPTH_MAX, depth_within};
use crate::status::Cause;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Words of a schema that a structural one has no use for.
const FORBIDDEN: [&str; 7] =
    ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id", "$schema"];
impl Schema {
    /// The structural schema at `field` of a CRD, such as `spec.versions[0].schema.openAPIV3Schema`.
    pub fn parse(value: &Value, field: &str) -> Result<Schema, Vec<Cause>> {
        Schema::parse_changed(value, field, &RuleFaults::new())
    }

    /// The same of a definition that is changed. Rules may stay wrong as they were before, wherever they stand.
    pub fn parse_changed(value: &Value, field: &str, before: &RuleFaults) -> Result<Schema, Vec<Cause>> {
        Schema::read(value, field, Some(before)).0
    }

    /// The same of a definition that is stored already. Rules that do not compile are kept, and passed over.
    pub fn parse_stored(value: &Value, field: &str) -> Result<Schema, Vec<Cause>> {
        Schema::read(value, field, None).0
    }

    /// What is wrong with the rules of a definition that is stored already.
    pub fn rule_faults(value: &Value) -> RuleFaults {
        Schema::read(value, "", None).1
    }

    /// `allowed`: of the faults of rules, those that do not matter. `None`: none does.
    fn read(
        value: &Value,
        field: &str,
        allowed: Option<&RuleFaults>,
    ) -> (Result<Schema, Vec<Cause>>, RuleFaults) {
        if !depth_within(value, DEPTH_MAX) {
            return (Err(vec![Cause::forbidden(field, "is nested too deeply")]), RuleFaults::new());
        }
        let mut reader = Reader {
            causes: Vec::new(),
            patterns: 0,
            rule_patterns: 0,
            rules: 0,
            depth: 0,
            is_correlated: true,
            allowed,
            rule_faults: RuleFaults::new(),
        };
        let schema = reader.schema(value, field);
        if reader.causes.is_empty() {
            reader.causes = schema.structural_causes(field);
        }
        reader.causes.truncate(CAUSES_MAX);
        let found = if reader.causes.is_empty() { Ok(schema) } else { Err(reader.causes) };
        (found, reader.rule_faults)
    }
}

/// Patterns of one schema: each may take its share of memory.
pub(super) const PATTERNS_MAX: usize = 1_000;

/// Rules of one schema: all of them are read in one request.
const RULES_MAX: usize = 1_000;

/// What is wrong with rules, by what they say: the expression, the field, and why.
pub type RuleFaults = BTreeSet<[String; 3]>;

struct Reader<'a> {
    causes: Vec<Cause>,
    patterns: usize,
    /// Those that rules spell out.
    rule_patterns: usize,
    rules: usize,
    /// Schemas that the one at hand lies in.
    depth: usize,
    /// Whether values of the schema at hand have one that they were before.
    is_correlated: bool,
    /// `None`: the definition is stored already.
    allowed: Option<&'a RuleFaults>,
    rule_faults: RuleFaults,
}

impl Reader<'_> {
    fn refuse(&mut self, cause: Cause) {
        if self.causes.len() < CAUSES_MAX {
            self.causes.push(cause);
        }
    }

    fn mistyped(&mut self, field: String, what: &str) {
        self.refuse(Cause {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: must be {what}"),
            field,
        });
    }

    fn schema(&mut self, value: &Value, field: &str) -> Schema {
        let Value::Object(map) = value else {
            self.mistyped(field.to_owned(), "a schema object");
            return Schema::default();
        };
        for word in FORBIDDEN {
            if map.contains_key(word) {
                self.refuse(Cause::forbidden(
                    format!("{field}.{word}"),
                    &format!("a structural schema has no {word}"),
                ));
            }
        }
        let preserve = format!("{field}.x-kubernetes-preserve-unknown-fields");
        if map.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
            self.refuse(Cause::invalid(preserve, &json!(false), "is true, or left out"));
        }
        let (is_correlated, list_type) = (self.is_correlated, self.list_type(map, field));
        let (atomic_map, is_root) = (self.is_atomic_map(map, field), self.depth == 0);
        self.depth += 1;
        self.is_correlated = is_correlated && !atomic_map;
        let (properties, additional) = (self.properties(map, field), self.additional(map, field));
        self.is_correlated = is_correlated && list_type == Some(ListType::Map);
        let items = map.get("items").map(|items| Box::new(self.schema(items, &format!("{field}.items"))));
        self.is_correlated = is_correlated;
        let mut schema = Schema {
            value_type: self.value_type(map, field),
            nullable: self.flag(map, field, "nullable"),
            default: map.get("default").cloned(),
            properties,
            additional,
            items,
            int_or_string: self.flag(map, field, "x-kubernetes-int-or-string"),
            preserve_unknown_fields: self.flag(map, field, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: self.flag(map, field, "x-kubernetes-embedded-resource"),
            list_type,
            list_map_keys: self.texts(map, field, "x-kubernetes-list-map-keys"),
            atomic_map,
            rules: Vec::new(),
            has_rules: false,
            limits: self.limits(map, field),
        };
        self.depth -= 1;
        schema.rules = self.rules(map, &schema, Stand { is_root, is_correlated }, field);
        let like = if let Additional::Like(like) = &schema.additional { Some(&**like) } else { None };
        let below = schema.properties.values().chain(schema.items.as_deref()).chain(like);
        schema.has_rules = !schema.rules.is_empty() || below.into_iter().any(|schema| schema.has_rules);
        schema
    }

    fn rules(&mut self, map: &Map<String, Value>, schema: &Schema, stand: Stand, field: &str) -> Vec<Rule> {
        let given = self.list(map, field, "x-kubernetes-validations").unwrap_or_default();
        self.rules += given.len();
        if RULES_MAX < self.rules {
            let why = format!("a schema has {RULES_MAX} rules at most");
            self.refuse(Cause::forbidden(format!("{field}.x-kubernetes-validations"), &why));
            return Vec::new();
        }
        let mut rules = Vec::with_capacity(given.len());
        for (index, given) in given.iter().enumerate() {
            let place = format!("{field}.x-kubernetes-validations[{index}]");
            let left = PATTERNS_MAX.saturating_sub(self.patterns + self.rule_patterns);
            let mut still_left = left;
            let (rule, causes) = Rule::read(given, schema, stand, &mut still_left, &place);
            self.rule_patterns += left - still_left;
            for cause in causes {
                let source = given.get("rule").and_then(Value::as_str).unwrap_or_default();
                let word = cause.field.strip_prefix(&place).unwrap_or_default();
                let fault = [source.to_owned(), word.to_owned(), cause.message.clone()];
                if self.allowed.is_some_and(|allowed| !allowed.contains(&fault)) {
                    self.refuse(cause);
                }
                self.rule_faults.insert(fault);
            }
            rules.push(rule);
        }
        rules
    }

    fn limits(&mut self, map: &Map<String, Value>, field: &str) -> Limits {
        if self.flag(map, field, "uniqueItems") {
            let why = "x-kubernetes-list-type: set says the same, and is checked in less time";
            self.refuse(Cause::forbidden(format!("{field}.uniqueItems"), why));
        }
        Limits {
            choices: self.list(map, field, "enum").map(<[Value]>::to_vec),
            format: self.text(map, field, "format").map(str::to_owned),
            pattern: self.pattern(map, field),
            minimum: self.bound(map, field, "minimum", "exclusiveMinimum"),
            maximum: self.bound(map, field, "maximum", "exclusiveMaximum"),
            multiple_of: self.multiple_of(map, field),
            length: self.range(map, field, "minLength", "maxLength"),
            items: self.range(map, field, "minItems", "maxItems"),
            properties: self.range(map, field, "minProperties", "maxProperties"),
            required: self.texts(map, field, "required"),
            all_of: self.schemas(map, field, "allOf"),
            any_of: self.schemas(map, field, "anyOf"),
            one_of: self.schemas(map, field, "oneOf"),
            not: map.get("not").map(|not| Box::new(self.schema(not, &format!("{field}.not")))),
        }
    }

    fn value_type(&mut self, map: &Map<String, Value>, field: &str) -> Option<Type> {
        let types = [Type::Array, Type::Boolean, Type::Integer, Type::Number, Type::Object, Type::String];
        let word = self.text(map, field, "type").filter(|word| !word.is_empty())?;
        let found = types.into_iter().find(|value_type| value_type.name() == word);
        if found.is_none() {
            let names = types.map(Type::name);
            self.refuse(Cause::not_supported(format!("{field}.type"), &shown(word), &names));
        }
        found
    }

    fn properties(&mut self, map: &Map<String, Value>, field: &str) -> BTreeMap<String, Schema> {
        let field = format!("{field}.properties");
        match map.get("properties") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(all)) => {
                let read = |(name, value): (&String, &Value)| {
                    (name.clone(), self.schema(value, &format!("{field}[{name}]")))
                };
                all.iter().map(read).collect()
            }
            Some(_) => {
                self.mistyped(field, "a map of schemas");
                BTreeMap::new()
            }
        }
    }

    fn additional(&mut self, map: &Map<String, Value>, field: &str) -> Additional {
        let field = format!("{field}.additionalProperties");
        match map.get("additionalProperties") {
            None | Some(Value::Null) => Additional::None,
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => {
                self.refuse(Cause::forbidden(field, "to leave it out says the same"));
                Additional::None
            }
            Some(value) => Additional::Like(Box::new(self.schema(value, &field))),
        }
    }

    fn list_type(&mut self, map: &Map<String, Value>, field: &str) -> Option<ListType> {
        let word = self.text(map, field, "x-kubernetes-list-type")?;
        match word {
            "atomic" => Some(ListType::Atomic),
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map),
            _ => {
                let field = format!("{field}.x-kubernetes-list-type");
                self.refuse(Cause::not_supported(field, &shown(word), &["atomic", "map", "set"]));
                None
            }
        }
    }

    fn is_atomic_map(&mut self, map: &Map<String, Value>, field: &str) -> bool {
        let word = self.text(map, field, "x-kubernetes-map-type");
        if let Some(word) = word
            && !matches!(word, "atomic" | "granular")
        {
            let field = format!("{field}.x-kubernetes-map-type");
            self.refuse(Cause::not_supported(field, &shown(word), &["atomic", "granular"]));
        }
        word == Some("atomic")
    }

    fn pattern(&mut self, map: &Map<String, Value>, field: &str) -> Option<Pattern> {
        let text = self.text(map, field, "pattern").filter(|text| !text.is_empty())?;
        self.patterns += 1;
        // Of a stored schema it is the rules that give way.
        let in_rules = if self.allowed.is_none() { 0 } else { self.rule_patterns };
        if PATTERNS_MAX < self.patterns + in_rules {
            let why = format!("a schema has {PATTERNS_MAX} patterns at most");
            self.refuse(Cause::forbidden(format!("{field}.pattern"), &why));
            return None;
        }
        Pattern::compile(text)
            .map_err(|why| self.refuse(Cause::invalid(format!("{field}.pattern"), &shown(text), &why)))
            .ok()
    }

    fn bound(&mut self, map: &Map<String, Value>, field: &str, word: &str, exclusive: &str) -> Option<Bound> {
        let exclusive = self.flag(map, field, exclusive);
        let value = self.number(map, field, word)?.as_f64()?;
        Some(Bound { value, exclusive })
    }

    fn multiple_of(&mut self, map: &Map<String, Value>, field: &str) -> Option<serde_json::Number> {
        let number = self.number(map, field, "multipleOf")?;
        if number.as_f64().is_some_and(|number| 0.0 < number) {
            return Some(number.clone());
        }
        let field = format!("{field}.multipleOf");
        self.refuse(Cause::invalid(field, &json!(number), "must be greater than 0"));
        None
    }

    fn range(&mut self, map: &Map<String, Value>, field: &str, least: &str, most: &str) -> Range {
        Range { least: self.count(map, field, least), most: self.count(map, field, most) }
    }

    fn schemas(&mut self, map: &Map<String, Value>, field: &str, word: &str) -> Vec<Schema> {
        let list = self.list(map, field, word).unwrap_or_default();
        let read = |(index, value)| self.schema(value, &format!("{field}.{word}[{index}]"));
        list.iter().enumerate().map(read).collect()
    }

    fn texts(&mut self, map: &Map<String, Value>, field: &str, word: &str) -> Vec<String> {
        let list = self.list(map, field, word).unwrap_or_default();
        if !list.iter().all(Value::is_string) {
            self.mistyped(format!("{field}.{word}"), "a list of strings");
        }
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn list<'a>(&mut self, map: &'a Map<String, Value>, field: &str, word: &str) -> Option<&'a [Value]> {
        let value = map.get(word).filter(|value| !value.is_null())?;
        if value.as_array().is_none() {
            self.mistyped(format!("{field}.{word}"), "a list");
        }
        value.as_array().map(Vec::as_slice)
    }

    fn text<'a>(&mut self, map: &'a Map<String, Value>, field: &str, word: &str) -> Option<&'a str> {
        let value = map.get(word).filter(|value| !value.is_null())?;
        if value.as_str().is_none() {
            self.mistyped(format!("{field}.{word}"), "a string");
        }
        value.as_str()
    }

    fn flag(&mut self, map: &Map<String, Value>, field: &str, word: &str) -> bool {
        match map.get(word) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.mistyped(format!("{field}.{word}"), "a boolean");
                false
            }
        }
    }

    fn number<'a>(
        &mut self,
        map: &'a Map<String, Value>,
        field: &str,
        word: &str,
    ) -> Option<&'a serde_json::Number> {
        let value = map.get(word).filter(|value| !value.is_null())?;
        if value.as_number().is_none() {
            self.mistyped(format!("{field}.{word}"), "a number");
        }
        value.as_number()
    }

    fn count(&mut self, map: &Map<String, Value>, field: &str, word: &str) -> Option<u64> {
        let value = map.get(word).filter(|value| !value.is_null())?;
        if value.as_u64().is_none() {
            self.mistyped(format!("{field}.{word}"), "an integer that is not negative");
        }
        value.as_u64()
    }
}
