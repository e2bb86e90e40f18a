//! What an expression is, as far as its schema tells: what cannot be is refused when the definition is
//! written, and not when objects are.

use super::eval::Patterns;
use super::functions::Function;
use super::parse::{Expr, Literal, Macro, Operator, Step};
use super::value::{META_FIELDS, TYPES, property};
use crate::excerpt::excerpt;
use crate::schema::parse::PATTERNS_MAX;
use crate::schema::pattern::Pattern;
use crate::schema::{Additional, Schema, Type};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Ty<'s> {
    /// Only the value will tell.
    Dyn,
    Null,
    Bool,
    Int,
    UInt,
    Double,
    Text,
    Bytes,
    /// In Base64: it can be compared with its like, has a size, and no more.
    Encoded,
    Type,
    Time,
    Span,
    List(Box<Ty<'s>>),
    /// By text.
    Map(Box<Ty<'s>>),
    /// `true`: it has the fields that every object has.
    Object(&'s Schema, bool),
    Metadata,
}

impl<'s> Ty<'s> {
    pub fn of(schema: &'s Schema, is_root: bool) -> Ty<'s> {
        match schema.value_type {
            _ if schema.int_or_string => Ty::Dyn,
            None => Ty::Dyn,
            Some(Type::Boolean) => Ty::Bool,
            Some(Type::Integer) => Ty::Int,
            Some(Type::Number) => Ty::Double,
            Some(Type::String) => match schema.limits.format.as_deref() {
                Some("date" | "date-time") => Ty::Time,
                Some("duration") => Ty::Span,
                Some("byte") => Ty::Encoded,
                _ => Ty::Text,
            },
            Some(Type::Array) => {
                let items = schema.items.as_deref();
                Ty::List(Box::new(items.map_or(Ty::Dyn, |items| Ty::of(items, false))))
            }
            Some(Type::Object) => match &schema.additional {
                Additional::Like(like) => Ty::Map(Box::new(Ty::of(like, false))),
                Additional::Any => Ty::Map(Box::new(Ty::Dyn)),
                Additional::None => Ty::Object(schema, is_root || schema.embedded_resource),
            },
        }
    }

    pub fn name(&self) -> String {
        match self {
            Ty::Dyn => "dyn".to_owned(),
            Ty::Null => "null".to_owned(),
            Ty::Bool => "bool".to_owned(),
            Ty::Int => "int".to_owned(),
            Ty::UInt => "uint".to_owned(),
            Ty::Double => "double".to_owned(),
            Ty::Text => "string".to_owned(),
            Ty::Bytes => "bytes".to_owned(),
            Ty::Encoded => "string of format byte".to_owned(),
            Ty::Type => "type".to_owned(),
            Ty::Time => "timestamp".to_owned(),
            Ty::Span => "duration".to_owned(),
            Ty::List(item) => format!("list({})", item.name()),
            Ty::Map(value) => format!("map(string, {})", value.name()),
            Ty::Object(..) | Ty::Metadata => "object".to_owned(),
        }
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Ty::Dyn)
    }

    fn is_number(&self) -> bool {
        matches!(self, Ty::Int | Ty::UInt | Ty::Double)
    }

    pub fn is_like(&self, other: &Ty<'_>) -> bool {
        match (self, other) {
            (Ty::Dyn, _) | (_, Ty::Dyn) => true,
            (Ty::List(one), Ty::List(other)) | (Ty::Map(one), Ty::Map(other)) => one.is_like(other),
            (Ty::Object(..) | Ty::Map(_), Ty::Object(..) | Ty::Map(_)) => true,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// Of two that may be the value of one expression.
    fn joined(self, other: &Ty<'_>) -> Ty<'s> {
        if !self.is_dyn() && !other.is_dyn() && self.is_like(other) { self } else { Ty::Dyn }
    }

    fn field(&self, name: &str) -> Result<Ty<'s>, String> {
        let unknown = || format!("undefined field '{name}'");
        match self {
            Ty::Dyn => Ok(Ty::Dyn),
            Ty::Map(value) => Ok((**value).clone()),
            Ty::Metadata if META_FIELDS.contains(&name) => Ok(Ty::Text),
            Ty::Object(_, true) if name == "metadata" => Ok(Ty::Metadata),
            Ty::Object(schema, is_resource) => match property(schema, name) {
                Some((_, schema)) => Ok(Ty::of(schema, false)),
                None if *is_resource && matches!(name, "apiVersion" | "kind") => Ok(Ty::Text),
                None => Err(unknown()),
            },
            Ty::Metadata => Err(unknown()),
            other => Err(format!("type '{}' does not support field selection", other.name())),
        }
    }

    /// What a macro's variable stands for, and what is iterated.
    fn element(&self) -> Result<Ty<'s>, String> {
        match self {
            Ty::Dyn => Ok(Ty::Dyn),
            Ty::List(item) => Ok((**item).clone()),
            Ty::Map(_) => Ok(Ty::Text),
            other => Err(format!("expression of type '{}' cannot be range of a comprehension", other.name())),
        }
    }
}

/// The names that an expression may use.
pub struct Scope<'e, 's> {
    names: Vec<(&'e str, Ty<'s>)>,
    pub uses_old: bool,
    /// Compiled, by their text.
    pub patterns: Patterns,
    /// How many more there may be.
    pub patterns_left: usize,
}

type Checked<'s> = Result<Ty<'s>, String>;

impl<'e, 's> Scope<'e, 's> {
    pub fn new(own: &Ty<'s>, patterns_left: usize) -> Scope<'e, 's> {
        let names = vec![("self", own.clone()), ("oldSelf", own.clone())];
        Scope { names, uses_old: false, patterns: Patterns::new(), patterns_left }
    }

    pub fn check(&mut self, expr: &'e Expr) -> Checked<'s> {
        match expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Name(name) => {
                let found = self.names.iter().rev().find(|(known, _)| known == name);
                if found.is_none() && TYPES.contains(&name.as_str()) {
                    return Ok(Ty::Type);
                }
                let (_, ty) = found.ok_or_else(|| format!("undeclared reference to '{name}'"))?;
                self.uses_old |= name == "oldSelf";
                Ok(ty.clone())
            }
            Expr::List(items) => {
                let mut of: Option<Ty<'s>> = None;
                for item in items {
                    let ty = self.check(item)?;
                    of = Some(of.map_or(ty.clone(), |of| of.joined(&ty)));
                }
                Ok(Ty::List(Box::new(of.unwrap_or(Ty::Dyn))))
            }
            Expr::Map(entries) => {
                for (key, value) in entries {
                    self.wants(key, &Ty::Text, "a map's key")?;
                    self.check(value)?;
                }
                Ok(Ty::Map(Box::new(Ty::Dyn)))
            }
            Expr::Not(inner) => self.wants(inner, &Ty::Bool, "!_"),
            Expr::Negate(inner) => match self.check(inner)? {
                ty @ (Ty::Int | Ty::Double | Ty::Dyn) => Ok(ty),
                other => Err(no_overload("-_", &[&other])),
            },
            Expr::All(terms) | Expr::Any(terms) => {
                for term in terms {
                    self.wants(term, &Ty::Bool, if matches!(expr, Expr::All(_)) { "_&&_" } else { "_||_" })?;
                }
                Ok(Ty::Bool)
            }
            Expr::If(parts) => {
                self.wants(&parts.0, &Ty::Bool, "_?_:_")?;
                let then = self.check(&parts.1)?;
                let otherwise = self.check(&parts.2)?;
                Ok(then.joined(&otherwise))
            }
            Expr::Chain(first, rest) => {
                let mut ty = self.check(first)?;
                for (operator, right) in rest {
                    let right = self.check(right)?;
                    ty = operated(*operator, &ty, &right)?;
                }
                Ok(ty)
            }
            Expr::Has(of, name) => self.check(of)?.field(name).map(|_| Ty::Bool),
            Expr::Steps(first, steps) => {
                let mut ty = self.check(first)?;
                for step in steps {
                    ty = self.step(ty, step)?;
                }
                Ok(ty)
            }
            Expr::Call(function, args) => self.call(*function, None, args),
        }
    }

    fn wants(&mut self, expr: &'e Expr, wanted: &Ty<'s>, operator: &str) -> Checked<'s> {
        let ty = self.check(expr)?;
        if ty.is_like(wanted) { Ok(wanted.clone()) } else { Err(no_overload(operator, &[&ty])) }
    }

    fn step(&mut self, of: Ty<'s>, step: &'e Step) -> Checked<'s> {
        match step {
            Step::Field(name) => of.field(name),
            Step::Index(index) => {
                let index = self.check(index)?;
                match (&of, &index) {
                    (Ty::Dyn, _) => Ok(Ty::Dyn),
                    (Ty::List(item), Ty::Int | Ty::Dyn) => Ok((**item).clone()),
                    (Ty::Map(value), Ty::Text | Ty::Dyn) => Ok((**value).clone()),
                    _ => Err(no_overload("_[_]", &[&of, &index])),
                }
            }
            Step::Call(function, args) => self.call(*function, Some(of), args),
            Step::Macro { which, name, condition, body } => {
                if matches!(name.as_str(), "self" | "oldSelf") {
                    return Err(format!("'{name}' cannot be the variable of a macro"));
                }
                self.names.push((name, of.element()?));
                let condition = condition.as_ref().map(|condition| self.wants(condition, &Ty::Bool, "map"));
                let made = match which {
                    Macro::Map => self.check(body),
                    _ => self.wants(body, &Ty::Bool, "_&&_"),
                };
                self.names.pop();
                condition.transpose()?;
                let made = made?;
                Ok(match which {
                    Macro::All | Macro::Exists | Macro::ExistsOne => Ty::Bool,
                    Macro::Map => Ty::List(Box::new(made)),
                    Macro::Filter => Ty::List(Box::new(of.element()?)),
                })
            }
        }
    }

    fn pattern(&mut self, text: &str) -> Result<(), String> {
        if self.patterns.contains_key(text) {
            return Ok(());
        }
        self.patterns_left = self
            .patterns_left
            .checked_sub(1)
            .ok_or_else(|| format!("a schema has {PATTERNS_MAX} patterns at most"))?;
        let compiled =
            Pattern::compile(text).map_err(|why| format!("regular expression {:?} {why}", excerpt(text)))?;
        self.patterns.insert(text.to_owned(), Arc::new(compiled));
        Ok(())
    }

    fn call(&mut self, function: Function, of: Option<Ty<'s>>, args: &'e [Expr]) -> Checked<'s> {
        let pattern = args.get(usize::from(of.is_none()));
        if let (
            Function::Matches | Function::Find | Function::FindAll,
            Some(Expr::Literal(Literal::Text(text))),
        ) = (function, pattern)
        {
            self.pattern(text)?;
        }
        let mut types: Vec<Ty<'s>> = of.into_iter().collect();
        for arg in args {
            types.push(self.check(arg)?);
        }
        let shown: Vec<&Ty<'s>> = types.iter().collect();
        result(function, &types).ok_or_else(|| no_overload(function.name(), &shown))
    }
}

fn of_literal<'s>(literal: &Literal) -> Ty<'s> {
    match literal {
        Literal::Null => Ty::Null,
        Literal::Bool(_) => Ty::Bool,
        Literal::Int(_) => Ty::Int,
        Literal::UInt(_) => Ty::UInt,
        Literal::Double(_) => Ty::Double,
        Literal::Text(_) => Ty::Text,
        Literal::Bytes(_) => Ty::Bytes,
    }
}

fn no_overload(what: &str, types: &[&Ty<'_>]) -> String {
    let types: Vec<String> = types.iter().map(|ty| ty.name()).collect();
    format!("found no matching overload for '{what}' applied to '({})'", types.join(", "))
}

fn operated<'s>(operator: Operator, left: &Ty<'s>, right: &Ty<'s>) -> Checked<'s> {
    use Operator::{
        Add, Divide, Equal, Greater, GreaterEqual, In, Less, LessEqual, Modulo, Multiply, NotEqual, Subtract,
    };
    let any = left.is_dyn() || right.is_dyn();
    let numbers = left.is_number() && right.is_number();
    let same = left.is_like(right);
    let found = match operator {
        Equal | NotEqual => {
            let nullable = matches!(left, Ty::Null) || matches!(right, Ty::Null);
            (any || nullable || numbers || same).then_some(Ty::Bool)
        }
        Less | LessEqual | Greater | GreaterEqual => {
            let is_ordered = matches!(left, Ty::Text | Ty::Bool | Ty::Bytes | Ty::Time | Ty::Span);
            (any || numbers || same && is_ordered).then_some(Ty::Bool)
        }
        In => match right {
            Ty::Dyn => Some(Ty::Bool),
            Ty::List(item) => {
                (left.is_like(item) || left.is_number() && item.is_number()).then_some(Ty::Bool)
            }
            Ty::Map(_) => matches!(left, Ty::Text | Ty::Dyn).then_some(Ty::Bool),
            _ => None,
        },
        _ if any => Some(Ty::Dyn),
        Add => match (left, right) {
            (Ty::Time, Ty::Span) | (Ty::Span, Ty::Time) => Some(Ty::Time),
            (Ty::List(item), Ty::List(other)) => Some(Ty::List(Box::new((**item).clone().joined(other)))),
            (Ty::Text | Ty::Bytes | Ty::Span, _) if same => Some(left.clone()),
            _ => (same && left.is_number()).then(|| left.clone()),
        },
        Subtract => match (left, right) {
            (Ty::Time, Ty::Time) => Some(Ty::Span),
            (Ty::Time, Ty::Span) => Some(Ty::Time),
            (Ty::Span, Ty::Span) => Some(Ty::Span),
            _ => (same && left.is_number()).then(|| left.clone()),
        },
        Multiply | Divide => (same && left.is_number()).then(|| left.clone()),
        Modulo => (same && matches!(left, Ty::Int | Ty::UInt)).then(|| left.clone()),
    };
    let shown = || no_overload(&format!("_{}_", sign(operator)), &[left, right]);
    found.ok_or_else(shown)
}

pub fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal => "==",
        Operator::NotEqual => "!=",
        Operator::Less => "<",
        Operator::LessEqual => "<=",
        Operator::Greater => ">",
        Operator::GreaterEqual => ">=",
        Operator::In => " in ",
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::Modulo => "%",
    }
}

/// What a function makes of arguments of these types, its target first.
fn result<'s>(function: Function, types: &[Ty<'s>]) -> Option<Ty<'s>> {
    use Function as F;
    let is = |at: usize, wanted: &Ty<'_>| types.get(at).is_none_or(|ty| ty.is_like(wanted));
    let texts = (0..types.len()).all(|at| is(at, &Ty::Text));
    let text_then_int = is(0, &Ty::Text) && is(1, &Ty::Int) && is(2, &Ty::Int);
    let is_list = matches!(types.first(), Some(Ty::List(_) | Ty::Dyn));
    let of_list = match types.first() {
        Some(Ty::List(item)) => (**item).clone(),
        _ => Ty::Dyn,
    };
    let found = match function {
        F::Size => {
            let sized = matches!(
                types.first()?,
                Ty::Dyn | Ty::Text | Ty::Bytes | Ty::Encoded | Ty::List(_) | Ty::Map(_)
            );
            (sized, Ty::Int)
        }
        F::Contains | F::StartsWith | F::EndsWith | F::Matches => (texts, Ty::Bool),
        F::IndexOf | F::LastIndexOf if is_list && !is(0, &Ty::Text) => (types.len() == 2, Ty::Int),
        F::IndexOf | F::LastIndexOf => (is(0, &Ty::Text) && is(1, &Ty::Text) && is(2, &Ty::Int), Ty::Int),
        F::CharAt | F::Substring => (text_then_int, Ty::Text),
        F::LowerAscii | F::UpperAscii | F::Trim | F::Find => (texts, Ty::Text),
        F::Replace => (is(0, &Ty::Text) && is(1, &Ty::Text) && is(2, &Ty::Text) && is(3, &Ty::Int), Ty::Text),
        F::Split | F::FindAll => {
            (is(0, &Ty::Text) && is(1, &Ty::Text) && is(2, &Ty::Int), Ty::List(Box::new(Ty::Text)))
        }
        F::Join => (is_list && of_list.is_like(&Ty::Text) && is(1, &Ty::Text), Ty::Text),
        F::IsSorted => (is_list, Ty::Bool),
        F::Sum | F::Min | F::Max => (is_list, of_list),
        F::Dyn => (true, Ty::Dyn),
        F::TypeOf => (true, Ty::Type),
        F::Int => (is_scalar(types.first()?), Ty::Int),
        F::UInt => (is_scalar(types.first()?), Ty::UInt),
        F::Double => (is_scalar(types.first()?), Ty::Double),
        F::Text => (is_scalar(types.first()?), Ty::Text),
        F::Bool => (is_scalar(types.first()?), Ty::Bool),
        F::Time => (is(0, &Ty::Text), Ty::Time),
        F::Span => (is(0, &Ty::Text), Ty::Span),
        F::Hours | F::Minutes | F::Seconds | F::Milliseconds => {
            (is(0, &Ty::Time) || is(0, &Ty::Span), Ty::Int)
        }
        F::FullYear | F::Month | F::Date | F::DayOfMonth | F::DayOfWeek | F::DayOfYear => {
            (is(0, &Ty::Time), Ty::Int)
        }
    };
    found.0.then_some(found.1)
}

fn is_scalar(ty: &Ty<'_>) -> bool {
    !matches!(
        ty,
        Ty::List(_) | Ty::Map(_) | Ty::Object(..) | Ty::Metadata | Ty::Null | Ty::Type | Ty::Encoded
    )
}
