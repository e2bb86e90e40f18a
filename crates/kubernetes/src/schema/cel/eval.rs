//! Works an expression out, within a number of steps. A step is a node of the tree or a few bytes of text, so
//! that the budget bounds time and memory, whatever rule and object say.

use super::functions::{BYTES_PER_STEP, no_overload};
use super::parse::{Expr, Literal, Macro, Operator, Step};
use super::value::{TYPES, Val};
use crate::excerpt::excerpt;
use crate::schema::pattern::Pattern;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// What the least list and the least map of an expression cost: they take much more memory than a scalar.
const LIST_STEPS: usize = 10;
const MAP_STEPS: usize = 40;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Fail {
    /// Of no matter where `||` or `&&` is decided by its other side.
    Error(String),
    /// The budget is used up.
    Exhausted,
}

impl Fail {
    pub fn error(message: impl Into<String>) -> Fail {
        Fail::Error(message.into())
    }
}

/// Steps that are left to one write, and the patterns that it has needed.
pub struct Budget {
    left: usize,
    patterns: Patterns,
    /// Those that the rule at hand spells out, which were compiled with it.
    literal: Arc<Patterns>,
}

pub type Patterns = HashMap<String, Arc<Pattern>>;

impl Budget {
    pub fn new(steps: usize) -> Budget {
        Budget { left: steps, patterns: HashMap::new(), literal: Arc::default() }
    }

    pub fn spelt_out(&mut self, patterns: &Arc<Patterns>) {
        self.literal.clone_from(patterns);
    }

    pub fn spend(&mut self, steps: usize) -> Result<(), Fail> {
        match self.left.checked_sub(steps) {
            Some(left) => self.left = left,
            None => self.left = 0,
        }
        if self.left == 0 { Err(Fail::Exhausted) } else { Ok(()) }
    }

    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    pub fn pattern(&mut self, text: &str, compile_steps: usize) -> Result<Arc<Pattern>, Fail> {
        if let Some(known) = self.literal.get(text).or_else(|| self.patterns.get(text)) {
            return Ok(known.clone());
        }
        self.spend(compile_steps)?;
        let compiled = Pattern::compile(text).map(Arc::new);
        let compiled = compiled
            .map_err(|why| Fail::error(format!("invalid regular expression {:?}: {why}", excerpt(text))))?;
        self.patterns.insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }
}

/// The names that have a value, the innermost last.
pub struct Names<'e, 'a>(pub Vec<(&'e str, Val<'a>)>);

type Found<'a> = Result<Val<'a>, Fail>;

pub fn eval<'e, 'a>(expr: &'e Expr, names: &mut Names<'e, 'a>, budget: &mut Budget) -> Found<'a> {
    budget.spend(1)?;
    match expr {
        Expr::Literal(literal) => Ok(of_literal(literal, budget)?),
        Expr::Name(name) => {
            let found = names.0.iter().rev().find(|(known, _)| known == name);
            let named = || TYPES.into_iter().find(|known| known == name).map(Val::Type);
            let found = found.map(|(_, value)| value.clone()).or_else(named);
            found.ok_or_else(|| Fail::error(format!("no such attribute: {name}")))
        }
        Expr::List(items) => {
            budget.spend(LIST_STEPS)?;
            let items: Result<Vec<Val<'a>>, Fail> =
                items.iter().map(|item| eval(item, names, budget)).collect();
            items.map(Val::list)
        }
        Expr::Map(entries) => mapped(entries, names, budget),
        Expr::Not(inner) => match eval(inner, names, budget)? {
            Val::Bool(flag) => Ok(Val::Bool(!flag)),
            other => Err(no_overload("!_", &[other])),
        },
        Expr::Negate(inner) => negated(eval(inner, names, budget)?),
        Expr::All(terms) => joined(false, terms.iter().map(|term| eval(term, names, budget))),
        Expr::Any(terms) => joined(true, terms.iter().map(|term| eval(term, names, budget))),
        Expr::If(parts) => match eval(&parts.0, names, budget)? {
            Val::Bool(true) => eval(&parts.1, names, budget),
            Val::Bool(false) => eval(&parts.2, names, budget),
            other => Err(no_overload("_?_:_", &[other])),
        },
        Expr::Chain(first, rest) => {
            let mut value = eval(first, names, budget)?;
            for (operator, right) in rest {
                let right = eval(right, names, budget)?;
                value = operated(*operator, &value, &right, budget)?;
            }
            Ok(value)
        }
        Expr::Has(of, name) => {
            let of = eval(of, names, budget)?;
            if !of.is_map() {
                return Err(no_overload("has", &[of]));
            }
            Ok(Val::Bool(of.field(name).is_some()))
        }
        Expr::Steps(first, steps) => {
            let mut value = eval(first, names, budget)?;
            for each in steps {
                budget.spend(1)?;
                value = step(value, each, names, budget)?;
            }
            Ok(value)
        }
        Expr::Call(function, args) => {
            let args = values(None, args, names, budget)?;
            function.call(&args, budget)
        }
    }
}

fn mapped<'e, 'a>(entries: &'e [(Expr, Expr)], names: &mut Names<'e, 'a>, budget: &mut Budget) -> Found<'a> {
    budget.spend(MAP_STEPS)?;
    let mut map = BTreeMap::new();
    for (key, value) in entries {
        let key = eval(key, names, budget)?;
        let key = key.as_text().ok_or_else(|| Fail::error("unsupported key type"))?;
        budget.spend(key.len() / BYTES_PER_STEP)?;
        let key = key.to_owned();
        if map.insert(key, eval(value, names, budget)?).is_some() {
            return Err(Fail::error("a map has a key twice"));
        }
    }
    Ok(Val::Map(Rc::new(map)))
}

fn negated(value: Val<'_>) -> Found<'_> {
    match value {
        Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
        Val::Double(number) => Ok(Val::Double(-number)),
        other => Err(no_overload("-_", &[other])),
    }
}

fn of_literal<'a>(literal: &Literal, budget: &mut Budget) -> Found<'a> {
    Ok(match literal {
        Literal::Null => Val::Null,
        Literal::Bool(flag) => Val::Bool(*flag),
        Literal::Int(number) => Val::Int(*number),
        Literal::UInt(number) => Val::UInt(*number),
        Literal::Double(number) => Val::Double(*number),
        Literal::Text(text) => {
            budget.spend(text.len() / BYTES_PER_STEP)?;
            Val::text(text.as_str())
        }
        Literal::Bytes(bytes) => {
            budget.spend(bytes.len() / BYTES_PER_STEP)?;
            Val::Bytes(bytes.as_slice().into())
        }
    })
}

fn overflow() -> Fail {
    Fail::error("integer overflow")
}

fn values<'e, 'a>(
    target: Option<Val<'a>>,
    args: &'e [Expr],
    names: &mut Names<'e, 'a>,
    budget: &mut Budget,
) -> Result<Vec<Val<'a>>, Fail> {
    let mut values: Vec<Val<'a>> = target.into_iter().collect();
    for arg in args {
        values.push(eval(arg, names, budget)?);
    }
    Ok(values)
}

/// `&&` and `||`, and what `all` and `exists` make of a list. One term that decides, decides, even if others
/// have no value.
fn joined<'a>(decides: bool, terms: impl Iterator<Item = Found<'a>>) -> Found<'a> {
    let mut failed = None;
    for term in terms {
        match term {
            Ok(Val::Bool(flag)) if flag == decides => return Ok(Val::Bool(decides)),
            Ok(Val::Bool(_)) => {}
            Ok(other) => {
                failed = failed.or(Some(no_overload(if decides { "_||_" } else { "_&&_" }, &[other])))
            }
            Err(Fail::Exhausted) => return Err(Fail::Exhausted),
            Err(fail) => failed = failed.or(Some(fail)),
        }
    }
    failed.map_or(Ok(Val::Bool(!decides)), Err)
}

fn step<'e, 'a>(of: Val<'a>, step: &'e Step, names: &mut Names<'e, 'a>, budget: &mut Budget) -> Found<'a> {
    match step {
        Step::Field(name) => match of.field(name) {
            Some(value) => Ok(value),
            None if of.is_map() => Err(no_such_key(name)),
            None => Err(no_overload("select", &[of])),
        },
        Step::Index(index) => {
            let index = eval(index, names, budget)?;
            indexed(&of, &index, budget)
        }
        Step::Call(function, args) => {
            let args = values(Some(of), args, names, budget)?;
            function.call(&args, budget)
        }
        Step::Macro { which, name, condition, body } => {
            budget.spend(of.key_bytes() / BYTES_PER_STEP)?;
            let Some(items) = of.items().or_else(|| of.keys()) else {
                return Err(no_overload("comprehension", &[of]));
            };
            budget.spend(items.len())?;
            names.0.push((name, Val::Null));
            let made = over(*which, items, condition.as_ref(), body, names, budget);
            names.0.pop();
            made
        }
    }
}

/// The last name is the macro's variable.
fn over<'e, 'a>(
    which: Macro,
    items: Vec<Val<'a>>,
    condition: Option<&'e Expr>,
    body: &'e Expr,
    names: &mut Names<'e, 'a>,
    budget: &mut Budget,
) -> Found<'a> {
    let mut of = |item: &Val<'a>, expr: &'e Expr, budget: &mut Budget| {
        if let Some((_, value)) = names.0.last_mut() {
            value.clone_from(item);
        }
        eval(expr, names, budget)
    };
    let is_true = |value: Val<'a>| match value {
        Val::Bool(flag) => Ok(flag),
        other => Err(no_overload("_?_:_", &[other])),
    };
    match which {
        Macro::All => joined(false, items.iter().map(|item| of(item, body, budget))),
        Macro::Exists => joined(true, items.iter().map(|item| of(item, body, budget))),
        Macro::ExistsOne => {
            let mut count = 0_usize;
            for item in &items {
                count += usize::from(is_true(of(item, body, budget)?)?);
            }
            Ok(Val::Bool(count == 1))
        }
        Macro::Filter => {
            let mut kept = Vec::new();
            for item in items {
                if is_true(of(&item, body, budget)?)? {
                    kept.push(item);
                }
            }
            Ok(Val::list(kept))
        }
        Macro::Map => {
            let mut made = Vec::new();
            for item in &items {
                let is_wanted = match condition {
                    Some(condition) => is_true(of(item, condition, budget)?)?,
                    None => true,
                };
                if is_wanted {
                    made.push(of(item, body, budget)?);
                }
            }
            Ok(Val::list(made))
        }
    }
}

fn indexed<'a>(of: &Val<'a>, index: &Val<'a>, budget: &mut Budget) -> Found<'a> {
    if let (Some(size), Val::Int(at)) = (of.size().filter(|_| of.type_name() == "list"), index) {
        let at = usize::try_from(*at).ok().filter(|at| *at < size);
        let at = at.ok_or_else(|| Fail::error(format!("index out of bounds: {}", show(index))))?;
        return match of {
            Val::List(items) => Ok(items[at].clone()),
            of => {
                budget.spend(size)?;
                let found = of.items().and_then(|items| items.into_iter().nth(at));
                found.ok_or_else(|| Fail::error("index out of bounds"))
            }
        };
    }
    match (of.is_map(), index.as_text()) {
        (true, Some(name)) => {
            budget.spend(name.len() / BYTES_PER_STEP)?;
            of.field(name).ok_or_else(|| no_such_key(name))
        }
        _ => Err(no_overload("_[_]", &[of.clone(), index.clone()])),
    }
}

/// The name may be a text of any length.
fn no_such_key(name: &str) -> Fail {
    Fail::error(format!("no such key: {}", excerpt(name)))
}

fn show(value: &Val<'_>) -> String {
    match value {
        Val::Int(number) => number.to_string(),
        other => other.type_name().to_owned(),
    }
}

fn operated<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>, budget: &mut Budget) -> Found<'a> {
    use Operator::{
        Add, Divide, Equal, Greater, GreaterEqual, In, Less, LessEqual, Modulo, Multiply, NotEqual, Subtract,
    };
    match operator {
        Equal => left.equals(right, &mut |steps| budget.spend(steps)).map(Val::Bool),
        NotEqual => left.equals(right, &mut |steps| budget.spend(steps)).map(|is_equal| Val::Bool(!is_equal)),
        In => contained(left, right, budget),
        Less | LessEqual | Greater | GreaterEqual => ordered(operator, left, right, budget),
        Add => add(left, right, budget),
        Subtract | Multiply | Divide | Modulo => calculated(operator, left, right),
    }
}

fn wrong<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Fail {
    no_overload(&format!("_{}_", super::types::sign(operator)), &[left.clone(), right.clone()])
}

fn contained<'a>(left: &Val<'a>, right: &Val<'a>, budget: &mut Budget) -> Found<'a> {
    if right.is_list() {
        budget.spend(right.size().unwrap_or(0))?;
        for item in right.items().unwrap_or_default() {
            if left.equals(&item, &mut |steps| budget.spend(steps))? {
                return Ok(Val::Bool(true));
            }
        }
        return Ok(Val::Bool(false));
    }
    match (left.as_text(), right.is_map()) {
        (Some(name), true) => {
            budget.spend(name.len() / BYTES_PER_STEP)?;
            Ok(Val::Bool(right.field(name).is_some()))
        }
        (None, true) => Ok(Val::Bool(false)),
        _ => Err(wrong(Operator::In, left, right)),
    }
}

fn ordered<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>, budget: &mut Budget) -> Found<'a> {
    budget.spend(left.byte_len().min(right.byte_len()) / BYTES_PER_STEP)?;
    let is_number = |value: &Val<'_>| matches!(value, Val::Int(_) | Val::UInt(_) | Val::Double(_));
    let order = match left.compare(right) {
        Some(order) => order,
        // One of them is not a number, and so neither is before the other.
        None if is_number(left) && is_number(right) => return Ok(Val::Bool(false)),
        None => return Err(wrong(operator, left, right)),
    };
    Ok(Val::Bool(match operator {
        Operator::Less => order == Ordering::Less,
        Operator::LessEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

fn calculated<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Found<'a> {
    use Operator::{Divide, Modulo, Multiply, Subtract};
    if matches!((operator, right), (Divide | Modulo, Val::Int(0) | Val::UInt(0))) {
        let what = if operator == Divide { "division" } else { "modulus" };
        return Err(Fail::error(format!("{what} by zero")));
    }
    let made = match (operator, left, right) {
        (Subtract, Val::Int(one), Val::Int(other)) => one.checked_sub(*other).map(Val::Int),
        (Subtract, Val::UInt(one), Val::UInt(other)) => one.checked_sub(*other).map(Val::UInt),
        (Subtract, Val::Double(one), Val::Double(other)) => Some(Val::Double(one - other)),
        (Subtract, Val::Time(one), Val::Time(other)) => one.checked_sub(*other).map(Val::Span),
        (Subtract, Val::Time(one), Val::Span(other)) => one.checked_sub(*other).map(Val::Time),
        (Subtract, Val::Span(one), Val::Span(other)) => one.checked_sub(*other).map(Val::Span),
        (Multiply, Val::Int(one), Val::Int(other)) => one.checked_mul(*other).map(Val::Int),
        (Multiply, Val::UInt(one), Val::UInt(other)) => one.checked_mul(*other).map(Val::UInt),
        (Multiply, Val::Double(one), Val::Double(other)) => Some(Val::Double(one * other)),
        (Divide, Val::Int(one), Val::Int(other)) => one.checked_div(*other).map(Val::Int),
        (Divide, Val::UInt(one), Val::UInt(other)) => one.checked_div(*other).map(Val::UInt),
        (Divide, Val::Double(one), Val::Double(other)) => Some(Val::Double(one / other)),
        (Modulo, Val::Int(one), Val::Int(other)) => one.checked_rem(*other).map(Val::Int),
        (Modulo, Val::UInt(one), Val::UInt(other)) => one.checked_rem(*other).map(Val::UInt),
        _ => return Err(wrong(operator, left, right)),
    };
    made.ok_or_else(overflow)
}

pub fn add<'a>(left: &Val<'a>, right: &Val<'a>, budget: &mut Budget) -> Found<'a> {
    if let (Some(one), Some(other)) = (left.as_text(), right.as_text()) {
        budget.spend((one.len() + other.len()) / BYTES_PER_STEP)?;
        return Ok(Val::text(format!("{one}{other}")));
    }
    if let (Some(mut one), Some(other)) = (left.items(), right.items()) {
        if left.adds_specially() || right.adds_specially() {
            return Err(Fail::error("lists that are sets or maps cannot be added"));
        }
        budget.spend(one.len() + other.len())?;
        one.extend(other);
        return Ok(Val::list(one));
    }
    match (left, right) {
        (Val::Int(one), Val::Int(other)) => one.checked_add(*other).map(Val::Int).ok_or_else(overflow),
        (Val::UInt(one), Val::UInt(other)) => one.checked_add(*other).map(Val::UInt).ok_or_else(overflow),
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one + other)),
        (Val::Bytes(one), Val::Bytes(other)) => {
            budget.spend((one.len() + other.len()) / BYTES_PER_STEP)?;
            Ok(Val::Bytes([&**one, &**other].concat().into()))
        }
        (Val::Time(one), Val::Span(other)) | (Val::Span(other), Val::Time(one)) => {
            one.checked_add(*other).map(Val::Time).ok_or_else(overflow)
        }
        (Val::Span(one), Val::Span(other)) => one.checked_add(*other).map(Val::Span).ok_or_else(overflow),
        _ => Err(no_overload("_+_", &[left.clone(), right.clone()])),
    }
}
