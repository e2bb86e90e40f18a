//! The functions that rules can call: CEL's own, and Kubernetes' for texts, lists and patterns. Those for URLs,
//! quantities, addresses, formats, sets and optional values are not there; a rule that calls one is refused.

use super::eval::{Budget, Fail};
use super::value::{Val, span, time};
use crate::schema::pattern::Pattern;
use crate::timestamp::Timestamp;
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    CharAt,
    IndexOf,
    LastIndexOf,
    LowerAscii,
    UpperAscii,
    Replace,
    Split,
    Substring,
    Trim,
    Join,
    Find,
    FindAll,
    IsSorted,
    Sum,
    Min,
    Max,
    Dyn,
    TypeOf,
    Int,
    UInt,
    Double,
    Text,
    Bool,
    Time,
    Span,
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

use Function as F;

/// By name, with the least and the most arguments beside the target.
const METHODS: [(&str, Function, usize, usize); 31] = [
    ("size", F::Size, 0, 0),
    ("contains", F::Contains, 1, 1),
    ("startsWith", F::StartsWith, 1, 1),
    ("endsWith", F::EndsWith, 1, 1),
    ("matches", F::Matches, 1, 1),
    ("charAt", F::CharAt, 1, 1),
    ("indexOf", F::IndexOf, 1, 2),
    ("lastIndexOf", F::LastIndexOf, 1, 2),
    ("lowerAscii", F::LowerAscii, 0, 0),
    ("upperAscii", F::UpperAscii, 0, 0),
    ("replace", F::Replace, 2, 3),
    ("split", F::Split, 1, 2),
    ("substring", F::Substring, 1, 2),
    ("trim", F::Trim, 0, 0),
    ("join", F::Join, 0, 1),
    ("find", F::Find, 1, 1),
    ("findAll", F::FindAll, 1, 2),
    ("isSorted", F::IsSorted, 0, 0),
    ("sum", F::Sum, 0, 0),
    ("min", F::Min, 0, 0),
    ("max", F::Max, 0, 0),
    ("getFullYear", F::FullYear, 0, 0),
    ("getMonth", F::Month, 0, 0),
    ("getDate", F::Date, 0, 0),
    ("getDayOfMonth", F::DayOfMonth, 0, 0),
    ("getDayOfWeek", F::DayOfWeek, 0, 0),
    ("getDayOfYear", F::DayOfYear, 0, 0),
    ("getHours", F::Hours, 0, 0),
    ("getMinutes", F::Minutes, 0, 0),
    ("getSeconds", F::Seconds, 0, 0),
    ("getMilliseconds", F::Milliseconds, 0, 0),
];

const GLOBALS: [(&str, Function, usize, usize); 11] = [
    ("size", F::Size, 1, 1),
    ("matches", F::Matches, 2, 2),
    ("dyn", F::Dyn, 1, 1),
    ("type", F::TypeOf, 1, 1),
    ("int", F::Int, 1, 1),
    ("uint", F::UInt, 1, 1),
    ("double", F::Double, 1, 1),
    ("string", F::Text, 1, 1),
    ("bool", F::Bool, 1, 1),
    ("timestamp", F::Time, 1, 1),
    ("duration", F::Span, 1, 1),
];

/// What a text is charged for by the byte: one step for so many.
pub const BYTES_PER_STEP: usize = 8;
/// Steps that a pattern costs before it is matched, if the rule does not spell it out: a large one takes some
/// milliseconds to compile.
const COMPILE_STEPS: usize = 50_000;

impl Function {
    pub fn method(name: &str, args: usize) -> Result<Function, String> {
        find(&METHODS, name, args)
    }

    pub fn global(name: &str, args: usize) -> Result<Function, String> {
        find(&GLOBALS, name, args)
    }

    pub fn name(self) -> &'static str {
        METHODS
            .iter()
            .chain(&GLOBALS)
            .find(|(_, function, ..)| *function == self)
            .map_or("?", |(name, ..)| name)
    }

    /// `args`: the target first.
    pub fn call<'a>(self, args: &[Val<'a>], budget: &mut Budget) -> Result<Val<'a>, Fail> {
        let wrong = || no_overload(self.name(), args);
        if let Some(made) = self.call_on_list(args, budget)? {
            return Ok(made);
        }
        match self {
            F::Dyn => args.first().cloned().ok_or_else(wrong),
            F::TypeOf => args.first().map(|value| Val::Type(value.type_name())).ok_or_else(wrong),
            F::Size => {
                let bytes = args.first().and_then(Val::as_text).map_or(0, str::len);
                budget.spend(bytes / BYTES_PER_STEP)?;
                args.first().and_then(size).ok_or_else(wrong)
            }
            F::Int | F::UInt | F::Double | F::Text | F::Bool | F::Time | F::Span => {
                converted(self, args.first().ok_or_else(wrong)?, budget)
            }
            _ => match args.first() {
                Some(Val::Time(nanos)) => {
                    part_of_time(self, *nanos).and_then(whole).map(Val::Int).ok_or_else(wrong)
                }
                Some(Val::Span(nanos)) => {
                    part_of_span(self, *nanos).and_then(whole).map(Val::Int).ok_or_else(wrong)
                }
                _ => self.call_on_text(args, budget),
            },
        }
    }

    fn call_on_text<'a>(self, args: &[Val<'a>], budget: &mut Budget) -> Result<Val<'a>, Fail> {
        let wrong = || no_overload(self.name(), args);
        let text = args.first().and_then(Val::as_text).ok_or_else(wrong)?;
        let other = args.get(1).and_then(Val::as_text);
        let number = |at: usize| match args.get(at) {
            Some(Val::Int(number)) => Ok(Some(*number)),
            None => Ok(None),
            Some(_) => Err(wrong()),
        };
        budget.spend(1 + (text.len() + other.map_or(0, str::len)) / BYTES_PER_STEP)?;
        Ok(match self {
            F::Contains => Val::Bool(text.contains(other.ok_or_else(wrong)?)),
            F::StartsWith => Val::Bool(text.starts_with(other.ok_or_else(wrong)?)),
            F::EndsWith => Val::Bool(text.ends_with(other.ok_or_else(wrong)?)),
            F::Matches => {
                let pattern = pattern(other.ok_or_else(wrong)?, text, budget)?;
                Val::Bool(pattern.matches(text))
            }
            F::Find => {
                let pattern = pattern(other.ok_or_else(wrong)?, text, budget)?;
                Val::text(pattern.find_all(text).next().map_or("", |found| found.as_str()))
            }
            F::FindAll => {
                let pattern = pattern(other.ok_or_else(wrong)?, text, budget)?;
                let mut parts = Vec::new();
                for found in pattern.find_all(text).take(most(number(2)?)) {
                    // To find where it ends may have taken a look at all the rest.
                    let rest = text.len() - found.start();
                    budget.spend(1 + pattern.steps(rest) / BYTES_PER_STEP)?;
                    parts.push(Val::text(found.as_str()));
                }
                Val::list(parts)
            }
            F::LowerAscii => Val::text(text.to_ascii_lowercase()),
            F::UpperAscii => Val::text(text.to_ascii_uppercase()),
            F::Trim => Val::text(text.trim()),
            F::CharAt => {
                let at = number(1)?.ok_or_else(wrong)?;
                Val::text(slice(text, at, at.saturating_add(1).min(count(text)))?)
            }
            F::Substring => {
                let first = number(1)?.ok_or_else(wrong)?;
                Val::text(slice(text, first, number(2)?.unwrap_or_else(|| count(text)))?)
            }
            F::IndexOf | F::LastIndexOf => {
                Val::Int(place(text, other.ok_or_else(wrong)?, number(2)?, self == F::LastIndexOf)?)
            }
            F::Replace => {
                let with = args.get(2).and_then(Val::as_text).ok_or_else(wrong)?;
                let from = other.ok_or_else(wrong)?;
                let most = most(number(3)?);
                let count = text.matches(from).take(most).count();
                budget.spend(count.saturating_mul(with.len()) / BYTES_PER_STEP)?;
                Val::text(text.replacen(from, with, most))
            }
            F::Split => {
                let by = other.ok_or_else(wrong)?;
                budget.spend(text.len().saturating_mul(if by.is_empty() { 4 } else { 1 }))?;
                let parts: Vec<Val<'a>> = match (most(number(2)?), by) {
                    (0, _) => Vec::new(),
                    (most, "") => split_letters(text, most),
                    (most, by) => text.splitn(most, by).map(Val::text).collect(),
                };
                Val::list(parts)
            }
            _ => return Err(wrong()),
        })
    }

    /// `None`: the target is no list, or the function is for others too.
    fn call_on_list<'a>(self, args: &[Val<'a>], budget: &mut Budget) -> Result<Option<Val<'a>>, Fail> {
        let is_for_lists =
            matches!(self, F::Join | F::IsSorted | F::Sum | F::Min | F::Max | F::IndexOf | F::LastIndexOf);
        let Some(items) = args.first().filter(|_| is_for_lists).and_then(Val::items) else { return Ok(None) };
        budget.spend(1 + items.len())?;
        let order = |one: &Val<'a>, other: &Val<'a>, budget: &mut Budget| {
            budget.spend(one.byte_len().min(other.byte_len()) / BYTES_PER_STEP)?;
            one.compare(other).ok_or_else(|| no_overload(self.name(), args))
        };
        Ok(Some(match self {
            F::Join => {
                let between = args.get(1).and_then(Val::as_text).unwrap_or_default();
                let mut joined = String::new();
                for (at, item) in items.iter().enumerate() {
                    let text = item.as_text().ok_or_else(|| no_overload("join", args))?;
                    budget.spend((text.len() + between.len()) / BYTES_PER_STEP)?;
                    if 0 < at {
                        joined.push_str(between);
                    }
                    joined.push_str(text);
                }
                Val::text(joined)
            }
            F::IsSorted => {
                let mut is_sorted = true;
                for pair in items.windows(2) {
                    is_sorted &= order(&pair[0], &pair[1], budget)? != Ordering::Greater;
                }
                Val::Bool(is_sorted)
            }
            F::Min | F::Max => {
                let mut items = items.into_iter();
                let name = self.name();
                let mut found =
                    items.next().ok_or_else(|| Fail::error(format!("{name} called on empty list")))?;
                let wanted = if self == F::Min { Ordering::Less } else { Ordering::Greater };
                for item in items {
                    if order(&item, &found, budget)? == wanted {
                        found = item;
                    }
                }
                found
            }
            F::Sum => {
                let mut sum: Option<Val<'a>> = None;
                for item in items {
                    sum = Some(match sum {
                        None => item,
                        Some(sum) => super::eval::add(&sum, &item, budget)?,
                    });
                }
                sum.unwrap_or(Val::Int(0))
            }
            _ => {
                let wanted = args.get(1).ok_or_else(|| no_overload(self.name(), args))?;
                let mut found = -1;
                for (at, item) in items.iter().enumerate() {
                    if item.equals(wanted, &mut |steps| budget.spend(steps))? {
                        found = i64::try_from(at).unwrap_or(-1);
                        if self == F::IndexOf {
                            break;
                        }
                    }
                }
                Val::Int(found)
            }
        }))
    }
}

fn find(table: &[(&str, Function, usize, usize)], name: &str, args: usize) -> Result<Function, String> {
    match table.iter().find(|(known, ..)| *known == name) {
        Some((_, function, least, most)) if (*least..=*most).contains(&args) => Ok(*function),
        Some(_) => Err(format!("{name}() does not take {args} arguments")),
        None => Err(format!("the function {name}() is not supported")),
    }
}

pub fn no_overload(name: &str, args: &[Val<'_>]) -> Fail {
    let types: Vec<&str> = args.iter().map(Val::type_name).collect();
    Fail::error(format!("no such overload: {name}({})", types.join(", ")))
}

fn pattern(text: &str, on: &str, budget: &mut Budget) -> Result<Arc<Pattern>, Fail> {
    let pattern = budget.pattern(text, COMPILE_STEPS)?;
    budget.spend(pattern.steps(on.len()))?;
    Ok(pattern)
}

fn whole(number: i128) -> Option<i64> {
    i64::try_from(number).ok()
}

const MILLISECOND: i128 = 1_000_000;
const SECOND: i128 = 1_000 * MILLISECOND;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;

/// All of it in one unit.
fn part_of_span(part: Function, nanos: i128) -> Option<i128> {
    Some(match part {
        F::Hours => nanos / HOUR,
        F::Minutes => nanos / MINUTE,
        F::Seconds => nanos / SECOND,
        F::Milliseconds => nanos / MILLISECOND,
        _ => return None,
    })
}

/// In UTC. Months and days count from 0, but for `getDate`.
fn part_of_time(part: Function, nanos: i128) -> Option<i128> {
    let (seconds, below) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    let time = Timestamp::new(whole(seconds)?, u32::try_from(below).ok()?)?.civil();
    Some(match part {
        F::FullYear => time.year().into(),
        F::Month => i128::from(time.month()) - 1,
        F::Date => time.day().into(),
        F::DayOfMonth => i128::from(time.day()) - 1,
        F::DayOfWeek => time.weekday().to_sunday_zero_offset().into(),
        F::DayOfYear => i128::from(time.day_of_year()) - 1,
        F::Hours => time.hour().into(),
        F::Minutes => time.minute().into(),
        F::Seconds => time.second().into(),
        F::Milliseconds => time.millisecond().into(),
        _ => return None,
    })
}

fn size<'a>(value: &Val<'a>) -> Option<Val<'a>> {
    let size = match value.as_text() {
        Some(text) if matches!(value, Val::Encoded(_)) => {
            (text.len() / 4 * 3).saturating_sub(text.bytes().rev().take_while(|byte| *byte == b'=').count())
        }
        Some(text) => text.chars().count(),
        None => value.size()?,
    };
    i64::try_from(size).ok().map(Val::Int)
}

/// Letters, not bytes.
fn count(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn most(limit: Option<i64>) -> usize {
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

fn slice(text: &str, first: i64, end: i64) -> Result<String, Fail> {
    let (count, out_of_range) = (count(text), |at: i64| Fail::error(format!("index out of range: {at}")));
    if first < 0 || count < first {
        return Err(out_of_range(first));
    }
    if end < first || count < end {
        return Err(out_of_range(end));
    }
    let (skip, take) = (usize::try_from(first), usize::try_from(end - first));
    Ok(text.chars().skip(skip.unwrap_or(0)).take(take.unwrap_or(0)).collect())
}

fn place(text: &str, wanted: &str, from: Option<i64>, is_last: bool) -> Result<i64, Fail> {
    let count = count(text);
    if let Some(from) = from.filter(|from| !(0..=count).contains(from)) {
        return Err(Fail::error(format!("index out of range: {from}")));
    }
    let letters = |bytes: usize| self::count(text.get(..bytes).unwrap_or_default());
    let bytes_at =
        |at: i64| text.char_indices().nth(usize::try_from(at).unwrap_or(0)).map_or(text.len(), |(at, _)| at);
    let found = if is_last {
        // It may begin there at the latest.
        let end = from.map_or(text.len(), |from| text.len().min(bytes_at(from).saturating_add(wanted.len())));
        text.get(..end).unwrap_or(text).rfind(wanted)
    } else {
        let begin = bytes_at(from.unwrap_or(0));
        text.get(begin..).and_then(|rest| rest.find(wanted)).map(|at| begin + at)
    };
    Ok(found.map_or(-1, letters))
}

fn split_letters<'a>(text: &str, most: usize) -> Vec<Val<'a>> {
    let mut parts: Vec<Val<'a>> = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if parts.len() + 1 == most {
            parts.push(Val::text(rest));
            return parts;
        }
        let (first, tail) = rest.split_at(letter.len_utf8());
        parts.push(Val::text(first));
        rest = tail;
    }
    parts
}

fn converted<'a>(to: Function, value: &Val<'a>, budget: &mut Budget) -> Result<Val<'a>, Fail> {
    budget.spend(1 + value.byte_len() / BYTES_PER_STEP)?;
    let text = value.as_text();
    let out_of_range = || Fail::error(format!("{}: value out of range", to.name()));
    let found = match to {
        F::Int => match (value, text) {
            (Val::Int(_), _) => Some(value.clone()),
            (Val::UInt(number), _) => Some(Val::Int(i64::try_from(*number).map_err(|_| out_of_range())?)),
            // Towards zero; the borders themselves are no doubles.
            (Val::Double(number), _) if number.abs() < 9.2e18 => Some(Val::Int(*number as i64)),
            (Val::Double(_), _) => return Err(out_of_range()),
            (Val::Time(nanos), _) => i64::try_from(nanos.div_euclid(1_000_000_000)).ok().map(Val::Int),
            (_, Some(text)) => text.parse().ok().map(Val::Int),
            _ => None,
        },
        F::UInt => match (value, text) {
            (Val::UInt(_), _) => Some(value.clone()),
            (Val::Int(number), _) => Some(Val::UInt(u64::try_from(*number).map_err(|_| out_of_range())?)),
            (Val::Double(number), _) if (0.0..1.8e19).contains(number) => Some(Val::UInt(*number as u64)),
            (Val::Double(_), _) => return Err(out_of_range()),
            (_, Some(text)) => text.parse().ok().map(Val::UInt),
            _ => None,
        },
        F::Double => match (value, text) {
            (Val::Double(_), _) => Some(value.clone()),
            (Val::Int(number), _) => Some(Val::Double(*number as f64)),
            (Val::UInt(number), _) => Some(Val::Double(*number as f64)),
            (_, Some(text)) => text.parse().ok().map(Val::Double),
            _ => None,
        },
        F::Text => match (value, text) {
            (_, Some(_)) => Some(value.clone()),
            (Val::Int(number), _) => Some(Val::text(number.to_string())),
            (Val::UInt(number), _) => Some(Val::text(number.to_string())),
            (Val::Double(number), _) => Some(Val::text(number.to_string())),
            (Val::Bool(flag), _) => Some(Val::text(flag.to_string())),
            (Val::Bytes(bytes), _) => std::str::from_utf8(bytes).ok().map(Val::text),
            _ => None,
        },
        F::Bool => match (value, text) {
            (Val::Bool(_), _) => Some(value.clone()),
            (_, Some("true" | "TRUE" | "True" | "t" | "1")) => Some(Val::Bool(true)),
            (_, Some("false" | "FALSE" | "False" | "f" | "0")) => Some(Val::Bool(false)),
            _ => None,
        },
        F::Time => match value {
            Val::Time(_) => Some(value.clone()),
            _ => text.and_then(time).map(Val::Time),
        },
        F::Span => match value {
            Val::Span(_) => Some(value.clone()),
            _ => text.and_then(span).map(Val::Span),
        },
        _ => None,
    };
    found.ok_or_else(|| {
        Fail::error(format!("type conversion error from {} to {}", value.type_name(), to.name()))
    })
}
