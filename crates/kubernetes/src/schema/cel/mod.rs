//! Rules under `x-kubernetes-validations`: what an object must be beyond what its schema can say, in the Common
//! Expression Language.
//!
//! A rule is read, and checked against the types of its schema, when its definition is written; one that does
//! not compile, or that calls what is not there, refuses the definition. One that was stored all the same,
//! before rules were read, is passed over. Objects are then judged within a
//! number of steps: one that its rules cannot be worked out for is refused, as is one that breaks them. A
//! rule that compares with `oldSelf` counts where there is something to compare with; any other is passed
//! over where nothing has changed since the last write.
//!
//! No crate is behind this: those that there are can neither be stopped half-way nor know types.

mod eval;
mod functions;
mod lex;
mod parse;
#[cfg(test)]
mod tests;
mod types;
mod value;

use super::{Additional, ListType, Schema, child, element};
use crate::object::Object;
use crate::object::check::{CAUSES_MAX, shown};
use crate::status::Cause;
use eval::{Budget, Fail, Names, Patterns};
use parse::Expr;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use types::{Scope, Ty};
use value::Val;

/// Steps that the rules of one write may take together: a tenth of a second or so.
const STEPS_MAX: usize = 2_000_000;
const MESSAGE_BYTES_MAX: usize = 5 << 10;
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    /// One that was stored before rules were read may be broken. It is passed over.
    program: Result<Program, String>,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: &'static str,
    /// From the rule's place to the field that is to blame.
    field_path: String,
    uses_old: bool,
}

#[derive(Clone, Debug)]
struct Program {
    expr: Expr,
    patterns: Arc<Patterns>,
}

/// Where in a schema a rule stands.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    pub is_root: bool,
    /// Whether a value there has one that it was before.
    pub is_correlated: bool,
}

/// What is wrong with the message of a rule, if anything is.
fn cause_of_message(message: Option<&str>, source: &str, at: String) -> Option<Cause> {
    match message {
        Some("") => Some(Cause::invalid(at, &json!(""), "message must be non-empty if specified")),
        Some(message) if message.contains(['\n', '\r']) => {
            Some(Cause::invalid(at, &shown(message), "message must not contain line breaks"))
        }
        None if source.trim().contains('\n') => {
            Some(Cause::required(at, "message must be specified if rule contains line breaks"))
        }
        Some(_) | None => None,
    }
}

impl Rule {
    /// A rule of `schema`, and what is wrong with it.
    ///
    /// `patterns_left`: how many more a schema may have. Each takes its time and memory.
    pub fn read(
        given: &Value,
        schema: &Schema,
        stand: Stand,
        patterns_left: &mut usize,
        field: &str,
    ) -> (Rule, Vec<Cause>) {
        let mut causes = Vec::new();
        let text = |name: &str| given.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let at = |name: &str| format!("{field}.{name}");
        let own = Ty::of(schema, stand.is_root);
        let source = text("rule").unwrap_or_default();
        let mut uses_old = false;
        let program = compiled(source, &own, &Ty::Bool, patterns_left).map(|(program, uses)| {
            uses_old = uses;
            program
        });
        if source.trim().is_empty() {
            causes.push(Cause::required(at("rule"), "rules must say something"));
        } else if let Err(why) = &program {
            causes.push(Cause::invalid(at("rule"), &shown(source), &format!("compilation failed: {why}")));
        }
        if uses_old && !stand.is_correlated {
            let why = "oldSelf cannot be used where nothing tells which value was there before, such as in the items \
                       of a list that is no map";
            causes.push(Cause::invalid(at("rule"), &shown(source), why));
        }
        if given.get("optionalOldSelf") == Some(&Value::Bool(true)) {
            causes.push(Cause::forbidden(at("optionalOldSelf"), "optional values are not supported"));
        }
        let message = text("message").map(str::trim);
        causes.extend(cause_of_message(message, source, at("message")));
        let mut message_expression = None;
        if let Some(source) = text("messageExpression") {
            match compiled(source, &own, &Ty::Text, patterns_left) {
                Ok((program, _)) => message_expression = Some(program),
                Err(why) => {
                    let why = format!("messageExpression compilation failed: {why}");
                    causes.push(Cause::invalid(at("messageExpression"), &shown(source), &why));
                }
            }
        }
        let reason = text("reason").unwrap_or("FieldValueInvalid");
        let known = REASONS.into_iter().find(|known| *known == reason);
        if known.is_none() {
            causes.push(Cause::not_supported(at("reason"), &shown(reason), &REASONS));
        }
        let field_path = text("fieldPath").unwrap_or_default();
        let normal = normal_path(field_path, schema);
        if normal.is_none() {
            let why = "fieldPath must be a path to a field of the schema, such as .a.b or .a['b']";
            causes.push(Cause::invalid(at("fieldPath"), &shown(field_path), why));
        }
        let rule = Rule {
            text: source.to_owned(),
            program,
            message: message.filter(|message| !message.is_empty()).map(str::to_owned),
            message_expression,
            reason: known.unwrap_or("FieldValueInvalid"),
            field_path: normal.unwrap_or_default(),
            uses_old,
        };
        (rule, causes)
    }

    fn message(&self, names: &mut Names<'_, '_>, budget: &mut Budget) -> Result<String, Fail> {
        let told =
            self.message_expression.as_ref().map(|program| program.run(&mut Names(names.0.clone()), budget));
        match told {
            Some(Err(Fail::Exhausted)) => return Err(Fail::Exhausted),
            Some(Ok(value)) => {
                let text = value.as_text().map(str::trim).unwrap_or_default();
                if !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains(['\n', '\r']) {
                    return Ok(text.to_owned());
                }
            }
            _ => {}
        }
        Ok(self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.text.trim())))
    }

    fn cause(&self, path: &str, value: &Value, message: &str) -> Cause {
        let path = format!("{path}{}", self.field_path);
        let path = path.strip_prefix('.').unwrap_or(&path);
        // As Kubernetes calls the object itself.
        let path = if path.is_empty() { "<nil>" } else { path };
        match self.reason {
            "FieldValueForbidden" => Cause::forbidden(path, message),
            "FieldValueRequired" => Cause::required(path, message),
            "FieldValueDuplicate" => Cause::duplicate(path, value),
            _ => invalid(path, value, message),
        }
    }
}

impl Program {
    fn run<'e, 'a>(&'e self, names: &mut Names<'e, 'a>, budget: &mut Budget) -> Result<Val<'a>, Fail> {
        budget.spelt_out(&self.patterns);
        eval::eval(&self.expr, names, budget)
    }
}

/// An expression of this type, and whether it asks for the value before.
fn compiled(
    source: &str,
    own: &Ty<'_>,
    wanted: &Ty<'_>,
    patterns_left: &mut usize,
) -> Result<(Program, bool), String> {
    let expr = parse::parse(source)?;
    let mut scope = Scope::new(own, *patterns_left);
    let checked = scope.check(&expr);
    let (uses_old, patterns) = (scope.uses_old, Arc::new(scope.patterns));
    *patterns_left = scope.patterns_left;
    if checked?.is_like(wanted) {
        Ok((Program { expr, patterns }, uses_old))
    } else {
        Err(format!("must evaluate to a {}", wanted.name()))
    }
}

/// Lists and maps are not shown.
fn invalid(path: &str, value: &Value, message: &str) -> Cause {
    match value {
        Value::Object(_) | Value::Array(_) => Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {message}"),
            field: path.to_owned(),
        },
        Value::String(text) => Cause::invalid(path, &shown(text), message),
        value => Cause::invalid(path, value, message),
    }
}

/// `.a['b.c']` as messages write it, if the schema has such a field.
fn normal_path(path: &str, schema: &Schema) -> Option<String> {
    let (mut out, mut rest, mut schema) = (String::new(), path.trim(), schema);
    while !rest.is_empty() {
        let (name, tail) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(after.find(['.', '[']).unwrap_or(after.len())),
            None => rest.strip_prefix("['")?.split_once("']")?,
        };
        (schema, rest) = match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => {
                out.push_str(&format!(".{name}"));
                (property, tail)
            }
            (None, Additional::Like(like)) => {
                out.push_str(&format!("[{name}]"));
                (&**like, tail)
            }
            _ => return None,
        };
    }
    Some(out)
}

/// Why a rule of this schema is passed over, if one is.
pub fn passed_over(schema: &Schema) -> Option<&str> {
    let like = if let Additional::Like(like) = &schema.additional { Some(&**like) } else { None };
    let below = schema.properties.values().chain(schema.items.as_deref()).chain(like);
    let own = schema.rules.iter().find_map(|rule| rule.program.as_ref().err());
    own.map(String::as_str).or_else(|| below.filter(|schema| schema.has_rules).find_map(passed_over))
}

/// What of an object breaks its schema's rules.
pub fn check(schema: &Schema, object: &Object, old: Option<&Object>) -> Vec<Cause> {
    if !schema.has_rules {
        return Vec::new();
    }
    let (value, old) = (object.to_value(), old.map(Object::to_value));
    let mut judge = Judge { causes: Vec::new(), budget: Budget::new(STEPS_MAX) };
    judge.value(schema, &value, old.as_ref(), "");
    judge.causes
}

struct Judge {
    causes: Vec<Cause>,
    budget: Budget,
}

impl Judge {
    fn is_done(&self) -> bool {
        CAUSES_MAX <= self.causes.len() || self.budget.is_empty()
    }

    fn exhausted(&mut self, path: &str, value: &Value) {
        let why =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.causes.push(invalid(if path.is_empty() { "<nil>" } else { path }, value, why));
    }

    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        let old = old.filter(|old| !old.is_null());
        if !schema.has_rules || value.is_null() || self.is_done() {
            return;
        }
        if !schema.rules.is_empty() {
            self.rules(schema, value, old, path);
        }
        match value {
            Value::Object(map) => self.members(schema, map, old, path),
            Value::Array(list) => {
                let Some(items) = &schema.items else { return };
                for (index, item) in list.iter().enumerate() {
                    if self.budget.spend(1).is_err() {
                        return self.exhausted(path, value);
                    }
                    let old = old.and_then(Value::as_array).and_then(|old| before(schema, item, old));
                    self.value(items, item, old, &element(path, index));
                }
            }
            _ => {}
        }
    }

    fn members(&mut self, schema: &Schema, map: &Map<String, Value>, old: Option<&Value>, path: &str) {
        for (name, value) in map {
            let old = old.and_then(|old| old.get(name));
            match (schema.properties.get(name), &schema.additional) {
                (Some(property), _) => self.value(property, value, old, &child(path, name)),
                (None, Additional::Like(like)) => self.value(like, value, old, &format!("{path}[{name}]")),
                _ => {}
            }
        }
    }

    fn rules(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        let is_same = old == Some(value);
        for rule in &schema.rules {
            if self.is_done() || if rule.uses_old { old.is_none() } else { is_same } {
                continue;
            }
            let Ok(program) = &rule.program else { continue };
            let mut names = Names(vec![("self", Val::of(value, Some(schema)))]);
            if let Some(old) = old {
                names.0.push(("oldSelf", Val::of(old, Some(schema))));
            }
            let told = match program.run(&mut names, &mut self.budget) {
                Ok(Val::Bool(true)) => continue,
                Ok(Val::Bool(false)) => rule.message(&mut names, &mut self.budget),
                Ok(other) => Err(Fail::error(format!("evaluated to a {}", other.type_name()))),
                Err(fail) => Err(fail),
            };
            match told {
                Ok(message) => self.causes.push(rule.cause(path, value, &message)),
                Err(Fail::Exhausted) => return self.exhausted(path, value),
                Err(Fail::Error(why)) => {
                    let why = format!("{why} evaluating rule: {}", rule.text.trim());
                    self.causes.push(invalid(if path.is_empty() { "<nil>" } else { path }, value, &why));
                }
            }
        }
    }
}

/// The element of a list that this one was: only those of a map are known again.
fn before<'v>(schema: &Schema, item: &Value, old: &'v [Value]) -> Option<&'v Value> {
    if schema.list_type != Some(ListType::Map) {
        return None;
    }
    let keys = |item: &Value| -> Vec<Value> {
        schema.list_map_keys.iter().map(|key| item.get(key).cloned().unwrap_or(json!(null))).collect()
    };
    let wanted = keys(item);
    old.iter().find(|old| keys(old) == wanted)
}
