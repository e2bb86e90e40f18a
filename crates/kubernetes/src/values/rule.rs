//! What one value may be.

use super::cron;
use crate::names;
use crate::object::check::shown;
use crate::status::Cause;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PORT: std::ops::RangeInclusive<i64> = 1..=65_535;
const PORT_NAME_BYTES_MAX: usize = 15;
const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Neither absent nor empty.
    Required,
    /// The same; the message says why.
    RequiredAs(&'static str),
    /// Pods of a job end: `Always`, which is what others have by default, is as good as none.
    JobRestart,
    OneOf(&'static [&'static str]),
    /// At least this; the message says it in words.
    Least(i64, &'static str),
    NonNegative,
    /// Zero is as good as none.
    Port,
    RequiredPort,
    /// Absent counts as zero, which is none.
    ServicePort,
    PortOrName,
    PortName,
    /// A name that is a DNS label.
    Label,
    /// A subdomain, or all of one: `*.example.com`.
    Host,
    IntOrPercent,
    Quantity,
    EnvName,
    /// No two elements of the list have this field in common.
    Unique(&'static str),
    Schedule,
}

impl Rule {
    /// `value`: `None` if it is absent or null.
    pub fn judge(self, value: Option<&Value>, at: &str, causes: &mut Vec<Cause>) {
        match (self, value) {
            (Rule::Required, value) if is_empty(value) => causes.push(Cause::required(at, "")),
            (Rule::RequiredAs(why), value) if is_empty(value) => causes.push(Cause::required(at, why)),
            (Rule::JobRestart, value) if is_empty(value) || value.is_some_and(|value| value == "Always") => {
                causes.push(Cause::required(at, r#"valid values: "OnFailure", "Never""#));
            }
            (Rule::JobRestart, value) => Rule::OneOf(&["OnFailure", "Never"]).judge(value, at, causes),
            (Rule::OneOf(words), Some(Value::String(word)))
                if !word.is_empty() && !words.contains(&word.as_str()) =>
            {
                causes.push(Cause::not_supported(at, &shown(word), words));
            }
            (Rule::Least(least, why), Some(value)) if value.as_i64().is_some_and(|number| number < least) => {
                causes.push(Cause::invalid(at, value, why));
            }
            (Rule::NonNegative, value) => {
                Rule::Least(0, "must be greater than or equal to 0").judge(value, at, causes);
            }
            (Rule::RequiredPort, value) if is_zero(value) => causes.push(Cause::required(at, "")),
            (Rule::ServicePort, None) => port(&json!(0), at, causes),
            (Rule::Port | Rule::PortOrName, value) if is_zero(value) => {}
            (Rule::PortOrName, Some(Value::String(name))) => port_name(name, at, causes),
            (Rule::Port | Rule::RequiredPort | Rule::ServicePort | Rule::PortOrName, Some(value)) => {
                port(value, at, causes);
            }
            (Rule::PortName, Some(Value::String(name))) if !name.is_empty() => port_name(name, at, causes),
            (Rule::Label, Some(Value::String(name))) if !name.is_empty() => {
                causes.extend(names::label(name).map(|why| Cause::invalid(at, &shown(name), &why)));
            }
            (Rule::Host, Some(Value::String(name))) if !name.is_empty() => {
                let domain = name.strip_prefix("*.").unwrap_or(name);
                causes.extend(names::subdomain(domain).map(|why| Cause::invalid(at, &shown(name), &why)));
            }
            (Rule::IntOrPercent, Some(Value::String(text))) => {
                let digits = text.strip_suffix('%').unwrap_or_default();
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    let why = "a valid percent string must be a numeric string followed by an ending '%'";
                    causes.push(Cause::invalid(at, &shown(text), why));
                }
            }
            (Rule::IntOrPercent, value) => Rule::NonNegative.judge(value, at, causes),
            (Rule::Quantity, Some(Value::String(text))) if !is_quantity(text) => {
                causes.push(Cause::invalid(at, &shown(text), QUANTITY));
            }
            (Rule::EnvName, Some(Value::String(name))) if !is_env_name(name) => {
                let why = "a valid environment variable name must consist only of printable ASCII characters \
                           other than '='";
                causes.push(Cause::invalid(at, &shown(name), why));
            }
            (Rule::Unique(field), Some(Value::Array(list))) => unique(field, list, at, causes),
            (Rule::Schedule, value) if is_empty(value) => causes.push(Cause::required(at, "")),
            (Rule::Schedule, Some(Value::String(line))) => {
                causes.extend(cron::wrong(line).map(|why| Cause::invalid(at, &shown(line), &why)));
            }
            _ => {}
        }
    }
}

fn is_env_name(name: &str) -> bool {
    name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn is_zero(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.as_i64() == Some(0))
}

fn port(value: &Value, at: &str, causes: &mut Vec<Cause>) {
    if value.as_i64().is_some_and(|port| !PORT.contains(&port)) {
        causes.push(Cause::invalid(at, value, "must be between 1 and 65535, inclusive"));
    }
}

fn port_name(name: &str, at: &str, causes: &mut Vec<Cause>) {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    for (is_wrong, why) in [
        (PORT_NAME_BYTES_MAX < name.len(), "must be no more than 15 characters"),
        (
            !name.bytes().all(is_known) || name.is_empty(),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ] {
        if is_wrong {
            causes.push(Cause::invalid(at, &shown(name), why));
        }
    }
}

/// Digits with at most one dot, and a suffix: `n`, `u`, `m`, `k`, `M` and on, `Ki` and on, or an exponent.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() < 2;
    let is_suffix = match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" => true,
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        _ => suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i32>().is_ok()),
    };
    is_number && is_suffix
}

fn unique(field: &str, list: &[Value], at: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        let Some(value) = item.get(field).filter(|value| !is_empty(Some(value)) && !value.is_null()) else {
            continue;
        };
        if !seen.insert(value.to_string()) {
            causes.push(Cause::duplicate(format!("{at}[{index}].{field}"), value));
        }
    }
}
