//! The structural schema of a CRD's version: what its objects look like, and what is done to those that don't.
//!
//! A schema is read once, when its CRD is written, and refused with causes if it is not structural. An
//! object of the kind then goes three ways through it, in this order: [`Schema::prune`] takes out what the
//! schema does not know, [`Schema::fill_defaults`] puts in what it says of absent fields, and
//! [`Schema::check`] tells what is still wrong. Time is linear in the size of the schema times that of the
//! object, and bounded.
//!
//! Rules under `x-kubernetes-validations` ([`cel`]) are judged last, of an object that is otherwise as its schema
//! has it.

pub mod cel;
mod default;
mod format;
mod parse;
mod pattern;
mod prune;
mod stored_defaults;
mod structural;
mod validate;

pub use parse::RuleFaults;
pub use stored_defaults::StoredDefaults;

use crate::status::Refusal;
use pattern::Pattern;
use serde_json::{Number, Value};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }
}

/// What a list is, for its elements and for those who apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map,
}

/// What is allowed beside the named properties.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// Nothing is said, or nothing is allowed.
    #[default]
    None,
    Any,
    Like(Box<Schema>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub value_type: Option<Type>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub int_or_string: bool,
    pub preserve_unknown_fields: bool,
    pub embedded_resource: bool,
    pub list_type: Option<ListType>,
    pub list_map_keys: Vec<String>,
    /// Applied as a whole.
    pub atomic_map: bool,
    /// `x-kubernetes-validations`
    pub rules: Vec<cel::Rule>,
    /// Here or anywhere below.
    pub has_rules: bool,
    limits: Limits,
}

/// What a value must be beyond its shape.
#[derive(Clone, Debug, Default)]
struct Limits {
    choices: Option<Vec<Value>>,
    format: Option<String>,
    pattern: Option<Pattern>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<Number>,
    length: Range,
    items: Range,
    properties: Range,
    required: Vec<String>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// How many there may be.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    least: Option<u64>,
    most: Option<u64>,
}

/// What becomes of fields that no schema knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// `None`: no such word.
    pub fn parse(word: &str) -> Option<FieldValidation> {
        match word {
            "" | "Warn" => Some(FieldValidation::Warn),
            "Ignore" => Some(FieldValidation::Ignore),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }

    /// The warnings for `unknown` fields, or the one refusal that names them all.
    pub fn judge(self, unknown: &[String], kind: &str, version: &str) -> Result<Vec<String>, Refusal> {
        let words: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        match self {
            _ if words.is_empty() => Ok(words),
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(words),
            FieldValidation::Strict => Err(Refusal::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                words.join(", ")
            ))),
        }
    }
}

/// A field's place in a value: `spec.list[0].name`.
fn child(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn element(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_warned_of_or_refused_in_one() {
        let unknown = ["spec.x".to_owned(), "y".to_owned()];
        let judge = |mode: FieldValidation| mode.judge(&unknown, "Widget", "v1");
        assert_eq!(judge(FieldValidation::Ignore), Ok(vec![]));
        let warnings = vec!["unknown field \"spec.x\"".to_owned(), "unknown field \"y\"".to_owned()];
        assert_eq!(judge(FieldValidation::Warn), Ok(warnings));
        let refusal = judge(FieldValidation::Strict).expect_err("strict");
        assert_eq!(refusal.code(), 400);
        assert_eq!(
            refusal.message,
            "Widget in version \"v1\" cannot be handled as a Widget: \
             strict decoding error: unknown field \"spec.x\", unknown field \"y\""
        );
        assert_eq!(FieldValidation::Strict.judge(&[], "Widget", "v1"), Ok(vec![]));
    }

    #[test]
    fn the_words_of_the_parameter() {
        assert_eq!(FieldValidation::parse(""), Some(FieldValidation::Warn));
        assert_eq!(FieldValidation::parse("Strict"), Some(FieldValidation::Strict));
        assert_eq!(FieldValidation::parse("strict"), None);
    }
}
