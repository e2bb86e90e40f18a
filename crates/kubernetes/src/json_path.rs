//! The paths by which columns, selectable fields and scales find a value in an object.
//!
//! `.spec.replicas`, `['a.b']`, `.metadata.annotations.a\.b`, `[0]`, `[-1]`, `[-1:]`, `[*]`,
//! `[?(@.type=="Ready")].status`; braces around the whole are allowed. Nothing else is: no descent of
//! unknown depth, no arithmetic. So the work is bounded by the length of the path, which is bounded, and
//! the number of matches, which is too.

use serde_json::Value;
use std::fmt;

const PATH_BYTES_MAX: usize = 1024;
const STEPS_MAX: usize = 64;
/// Matches kept between two steps. A cell that shows more helps nobody.
const MATCHES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end if negative.
    Index(i64),
    /// From the first to before the second; either may be left out, and counts from the end if negative.
    Slice(Option<i64>, Option<i64>),
    All,
    Where {
        fields: Vec<String>,
        equal: bool,
        to: Value,
    },
}

/// What is wrong with a path, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPath(&'static str);

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, BadPath> {
        if text.len() > PATH_BYTES_MAX {
            return Err(BadPath("the path is too long"));
        }
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner);
        let mut parser = Parser { rest: inner.strip_prefix('$').unwrap_or(inner) };
        let mut steps = Vec::new();
        while !parser.rest.is_empty() {
            if steps.len() == STEPS_MAX {
                return Err(BadPath("the path has too many steps"));
            }
            steps.extend(parser.step()?);
        }
        Ok(JsonPath { text: text.to_owned(), steps })
    }

    /// Everything that the path leads to, in the order of the object.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        find(&self.steps, object)
    }

    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut value = object;
        for (at, step) in self.steps.iter().enumerate() {
            // Most paths are made of names, which lead to one value at most.
            match step {
                Step::Field(name) => value = value.get(name)?,
                _ => return find(&self.steps[at..], value).into_iter().next(),
            }
        }
        Some(value)
    }

    /// The names on the way, if the path is made of nothing else. Only such a path can be written to.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps.iter().map(Step::as_field).collect()
    }
}

fn find<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| step.apply(value)).take(MATCHES_MAX).collect();
    }
    found
}

/// As it was given.
impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Step {
    fn as_field(&self) -> Option<&str> {
        match self {
            Step::Field(name) => Some(name),
            Step::Index(_) | Step::Slice(..) | Step::All | Step::Where { .. } => None,
        }
    }

    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => at(value, *index).into_iter().collect(),
            Step::Slice(from, end) => slice(value, *from, *end).iter().take(MATCHES_MAX).collect(),
            Step::All => children(value).take(MATCHES_MAX).collect(),
            Step::Where { fields, equal, to } => {
                let chosen = |item: &&'a Value| (reach(item, fields) == Some(to)) == *equal;
                children(value).filter(chosen).take(MATCHES_MAX).collect()
            }
        }
    }
}

fn slice(value: &Value, from: Option<i64>, end: Option<i64>) -> &[Value] {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let place = |index: i64| {
        let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 { items.len().saturating_sub(distance) } else { distance.min(items.len()) }
    };
    let (from, end) = (from.map_or(0, place), end.map_or(items.len(), place));
    items.get(from..end).unwrap_or_default()
}

fn at(value: &Value, index: i64) -> Option<&Value> {
    let items = value.as_array()?;
    let back = usize::try_from(index.unsigned_abs()).ok()?;
    let index = if index < 0 { items.len().checked_sub(back)? } else { back };
    items.get(index)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn reach<'a>(value: &'a Value, fields: &[String]) -> Option<&'a Value> {
    fields.iter().try_fold(value, |value, field| value.get(field))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// The next step; none for a dot that only introduces a bracket.
    fn step(&mut self) -> Result<Option<Step>, BadPath> {
        if self.eat("..") {
            return Err(BadPath("descent ('..') is not supported"));
        }
        if self.eat("[") {
            return self.bracket().map(Some);
        }
        if !self.eat(".") {
            return Err(BadPath("a step must begin with '.' or '['"));
        }
        if self.rest.is_empty() || self.rest.starts_with('[') {
            return Ok(None);
        }
        match self.name(&['.', '['])? {
            name if name == "*" => Ok(Some(Step::All)),
            name => Ok(Some(Step::Field(name))),
        }
    }

    fn bracket(&mut self) -> Result<Step, BadPath> {
        if self.eat("?(@") {
            return self.condition();
        }
        if self.eat("*]") {
            return Ok(Step::All);
        }
        if self.rest.starts_with(['\'', '"']) {
            let name = self.quoted()?;
            return self.close("]").map(|()| Step::Field(name));
        }
        let end = self.rest.find(']').ok_or(BadPath("a bracket is not closed"))?;
        let (index, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number = |text: &str| text.trim().parse::<i64>().map_err(|_| BadPath("a bracket holds no index"));
        let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
        let step = match index.split_once(':') {
            Some((from, end)) => Step::Slice(bound(from)?, bound(end)?),
            None => Step::Index(number(index)?),
        };
        self.close("]").map(|()| step)
    }

    /// After `?(@`.
    fn condition(&mut self) -> Result<Step, BadPath> {
        let mut fields = Vec::new();
        while self.eat(".") {
            if fields.len() == STEPS_MAX {
                return Err(BadPath("the path has too many steps"));
            }
            fields.push(self.name(&['.', '=', '!', ' ', ')', '<', '>'])?);
        }
        self.trim();
        let equal = match (self.eat("=="), self.rest.starts_with("!=")) {
            (true, _) => true,
            (false, true) => !self.eat("!="),
            (false, false) => return Err(BadPath("a condition compares with '==' or '!='")),
        };
        self.trim();
        let to = self.literal()?;
        self.trim();
        self.close(")]").map(|()| Step::Where { fields, equal, to })
    }

    fn literal(&mut self) -> Result<Value, BadPath> {
        if self.rest.starts_with(['\'', '"']) {
            return self.quoted().map(Value::String);
        }
        let end = self.rest.find([')', ' ']).ok_or(BadPath("a condition is not closed"))?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => text
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_| BadPath("a condition compares with no value")),
        }
    }

    /// Up to one of `ends`, where a backslash makes the next character a plain one.
    fn name(&mut self, ends: &[char]) -> Result<String, BadPath> {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, character)) = characters.next() {
            if character == '\\' {
                let (_, escaped) = characters.next().ok_or(BadPath("a backslash ends the path"))?;
                name.push(escaped);
            } else if ends.contains(&character) {
                end = at;
                break;
            } else {
                name.push(character);
            }
        }
        self.rest = &self.rest[end..];
        if name.is_empty() { Err(BadPath("a name is empty")) } else { Ok(name) }
    }

    fn quoted(&mut self) -> Result<String, BadPath> {
        let mut characters = self.rest.char_indices();
        let (_, quote) = characters.next().ok_or(BadPath("a quotation is not closed"))?;
        let mut text = String::new();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.rest = &self.rest[at + 1..];
                return Ok(text);
            }
            let plain =
                if character == '\\' { characters.next().map(|(_, next)| next) } else { Some(character) };
            text.extend(plain);
        }
        Err(BadPath("a quotation is not closed"))
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn close(&mut self, token: &'static str) -> Result<(), BadPath> {
        if self.eat(token) { Ok(()) } else { Err(BadPath("a bracket is not closed")) }
    }

    fn trim(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": { "annotations": { "a.b/c": "dotted" } },
            "spec": { "replicas": 3, "list": [1, 2, 3] },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "n": 1 },
                { "type": "Synced", "status": "False", "n": 2, "deep": { "x": true } },
            ] },
        })
    }

    fn check(path: &str, expected: Value) {
        let object = object();
        let found: Vec<Value> =
            JsonPath::parse(path).expect(path).find(&object).into_iter().cloned().collect();
        assert_eq!(JsonPath::parse(path).expect(path).first(&object), found.first(), "{path}");
        assert_eq!(Value::Array(found), expected, "{path}");
    }

    #[test]
    fn what_a_path_leads_to() {
        check(".spec.replicas", json!([3]));
        check("{.spec.replicas}", json!([3]));
        check("$.spec.replicas", json!([3]));
        check(".spec['replicas']", json!([3]));
        check(".spec.missing.more", json!([]));
        check(".metadata.annotations.a\\.b/c", json!(["dotted"]));
        check(".metadata.annotations['a.b/c']", json!(["dotted"]));
        check(".metadata.annotations[\"a.b/c\"]", json!(["dotted"]));
        check(".spec.list[0]", json!([1]));
        check(".spec.list[-1]", json!([3]));
        check(".spec.list[7]", json!([]));
        check(".spec.list[-4]", json!([]));
        check(".spec.list[*]", json!([1, 2, 3]));
        check(".spec.list[-1:]", json!([3]));
        check(".spec.list[0:2]", json!([1, 2]));
        check(".spec.list[2:1]", json!([]));
        check(".spec.list[-9:9]", json!([1, 2, 3]));
        check(".spec.*", json!([[1, 2, 3], 3]));
        check(".status.conditions[?(@.type==\"Ready\")].status", json!(["True"]));
        check(".status.conditions[?(@.type == 'Synced')].status", json!(["False"]));
        check(".status.conditions[?(@.type!='Ready')].type", json!(["Synced"]));
        check(".status.conditions[?(@.n==2)].type", json!(["Synced"]));
        check(".status.conditions[?(@.deep.x==true)].type", json!(["Synced"]));
        check(".", json!([object()]));
    }

    #[test]
    fn what_is_no_path() {
        let long = format!(".{}", "a".repeat(PATH_BYTES_MAX));
        let many = ".a".repeat(STEPS_MAX + 1);
        for bad in [
            "spec",
            "..spec",
            ".spec..x",
            ".a[",
            ".a[x]",
            ".a['x]",
            ".a[?(@.x)]",
            ".a[?(@.x=='y'",
            ".a[?(@.x<1)]",
            ".a\\",
            ".a[1:2:3]",
            &long,
            &many,
        ] {
            assert!(JsonPath::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_names_can_be_written_to() {
        assert_eq!(JsonPath::parse(".spec.a\\.b").expect("good").fields(), Some(vec!["spec", "a.b"]));
        assert_eq!(JsonPath::parse(".spec.list[0]").expect("good").fields(), None);
    }

    #[test]
    fn no_text_makes_the_parser_fail_otherwise_than_by_refusing() {
        let mut random = StdRng::seed_from_u64(7);
        let letters = [
            ".", "[", "]", "a", "'", "\"", "\\", "?(@", ":", ")", "==", "!=", "*", "1", "-", "é", " ", "$",
            "{",
        ];
        let object = object();
        let mut parsed = 0;
        for _ in 0..20_000 {
            let text: String = (0..random.random_range(0..12))
                .map(|_| letters[random.random_range(0..letters.len())])
                .collect();
            if let Ok(path) = JsonPath::parse(&text) {
                parsed += 1;
                assert!(path.find(&object).len() <= MATCHES_MAX);
            }
        }
        assert!(parsed > 100, "{parsed} were paths");
    }
}
