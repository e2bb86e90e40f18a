//! Label selectors: `app=web,tier in (a,b),!old,weight>5`.
//!
//! `!=` and `notin` also hold for an object that lacks the key; `=`, `in`, `<` and `>` never do. `=`,
//! `==` and `in` of one value are the same test, and so are `!=` and `notin` of one. The words `in` and
//! `notin` are operators only where one is expected: they can be keys and values too.

use super::{Lookup, SelectorError, check_count, check_length};
use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::names;
use std::collections::BTreeSet;
use std::fmt;

/// Holds for an object if all its terms do. Without terms it holds for every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// Sorted, and none twice.
    terms: Vec<LabelTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelTerm {
    pub key: String,
    pub test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelTest {
    /// The key is there, with one of these. Never empty.
    In(BTreeSet<String>),
    /// The key is not there, or has none of these. Never empty.
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    /// The key is there, and is a larger integer.
    Above(i64),
    /// The key is there, and is a smaller integer.
    Below(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        check_length(text)?;
        let mut terms = Parser { text, at: 0 }.terms()?;
        terms.sort();
        terms.dedup();
        Ok(LabelSelector { terms })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[LabelTerm] {
        &self.terms
    }

    pub fn matches(&self, labels: &impl Lookup) -> bool {
        self.terms.iter().all(|term| term.test.holds(labels.value(&term.key)))
    }
}

impl LabelTest {
    pub fn holds(&self, value: Option<&str>) -> bool {
        // A value that is no integer is neither above nor below one.
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelTest::Exists => value.is_some(),
            LabelTest::Absent => value.is_none(),
            LabelTest::Above(bound) => number().is_some_and(|number| *bound < number),
            LabelTest::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn only(values: &BTreeSet<String>) -> Option<&str> {
    let mut values = values.iter();
    values.next().filter(|_| values.next().is_none()).map(String::as_str)
}

/// The one spelling that all selectors of this meaning share. It parses to the same selector.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, term) in self.terms.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::In(values) => show_set(f, key, values, "=", "in"),
            LabelTest::NotIn(values) => show_set(f, key, values, "!=", "notin"),
            LabelTest::Exists => f.write_str(key),
            LabelTest::Absent => write!(f, "!{key}"),
            LabelTest::Above(bound) => write!(f, "{key}>{bound}"),
            LabelTest::Below(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn show_set(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    values: &BTreeSet<String>,
    sign: &str,
    word: &str,
) -> fmt::Result {
    if let Some(value) = only(values) {
        return write!(f, "{key}{sign}{value}");
    }
    write!(f, "{key} {word} (")?;
    for (nth, value) in values.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        write!(f, "{comma}{value}")?;
    }
    f.write_str(")")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Comma,
    Not,
    Equals,
    NotEquals,
    Above,
    Below,
    Open,
    Close,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    at: usize,
}

impl Token<'_> {
    fn expected(&self, what: &str) -> SelectorError {
        let found =
            if self.kind == Kind::End { "the end".to_owned() } else { format!("{:?}", excerpt(self.text)) };
        SelectorError::new(self.at, format!("found {found}, expected {what}"))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn terms(&mut self) -> Result<Vec<LabelTerm>, SelectorError> {
        let mut terms = Vec::new();
        if self.peek().kind == Kind::End {
            return Ok(terms);
        }
        loop {
            check_count(terms.len(), self.at)?;
            terms.push(self.term()?);
            let token = self.take();
            match token.kind {
                Kind::End => return Ok(terms),
                Kind::Comma => {}
                _ => return Err(token.expected("',' or the end")),
            }
        }
    }

    fn term(&mut self) -> Result<LabelTerm, SelectorError> {
        let negated = self.peek().kind == Kind::Not;
        if negated {
            self.take();
        }
        let key = self.take();
        if key.kind != Kind::Word {
            return Err(key.expected("a key"));
        }
        if let Some(why) = names::qualified(key.text) {
            let cause = format!("invalid key {:?}: {why}", excerpt(key.text));
            return Err(SelectorError::new(key.at, cause));
        }
        let test = if negated { LabelTest::Absent } else { self.test()? };
        Ok(LabelTerm { key: key.text.to_owned(), test })
    }

    fn test(&mut self) -> Result<LabelTest, SelectorError> {
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Ok(LabelTest::Exists);
        }
        let operator = self.take();
        match (operator.kind, operator.text) {
            (Kind::Equals, _) => Ok(LabelTest::In(BTreeSet::from([self.value()?.to_owned()]))),
            (Kind::NotEquals, _) => Ok(LabelTest::NotIn(BTreeSet::from([self.value()?.to_owned()]))),
            (Kind::Above, _) => self.integer().map(LabelTest::Above),
            (Kind::Below, _) => self.integer().map(LabelTest::Below),
            (Kind::Word, "in") => self.set().map(LabelTest::In),
            (Kind::Word, "notin") => self.set().map(LabelTest::NotIn),
            _ => Err(operator.expected("=, ==, !=, in, notin, <, >, ',' or the end")),
        }
    }

    /// A value, or nothing, which is the empty value.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        let token = self.peek();
        match token.kind {
            Kind::Word => {
                self.take();
                match names::label_value(token.text) {
                    None => Ok(token.text),
                    Some(why) => {
                        let cause = format!("invalid value {:?}: {why}", excerpt(token.text));
                        Err(SelectorError::new(token.at, cause))
                    }
                }
            }
            Kind::Comma | Kind::Close | Kind::End => Ok(""),
            _ => Err(token.expected("a value")),
        }
    }

    fn integer(&mut self) -> Result<i64, SelectorError> {
        let at = self.peek().at;
        let value = self.value()?;
        value.parse().map_err(|_| SelectorError::new(at, format!("found {value:?}, expected an integer")))
    }

    /// Values between parentheses. Between two commas, or between a comma and a parenthesis, stands the
    /// empty one.
    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.take();
        if open.kind != Kind::Open {
            return Err(open.expected("'('"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?.to_owned());
            let token = self.take();
            match token.kind {
                Kind::Comma => {}
                Kind::Close => return Ok(values),
                _ => return Err(token.expected("',' or ')'")),
            }
        }
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = token.at + token.text.len();
        token
    }

    fn peek(&self) -> Token<'a> {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start_matches(is_space);
        let at = self.at + (rest.len() - trimmed.len());
        let (kind, length) = match trimmed.as_bytes() {
            [] => (Kind::End, 0),
            [b',', ..] => (Kind::Comma, 1),
            [b'(', ..] => (Kind::Open, 1),
            [b')', ..] => (Kind::Close, 1),
            [b'<', ..] => (Kind::Below, 1),
            [b'>', ..] => (Kind::Above, 1),
            [b'!', b'=', ..] => (Kind::NotEquals, 2),
            [b'!', ..] => (Kind::Not, 1),
            [b'=', b'=', ..] => (Kind::Equals, 2),
            [b'=', ..] => (Kind::Equals, 1),
            _ => (Kind::Word, trimmed.find(ends_word).unwrap_or(trimmed.len())),
        };
        Token { kind, text: &trimmed[..length], at }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn ends_word(c: char) -> bool {
    is_space(c) || matches!(c, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use super::super::{SELECTOR_BYTES_MAX, TERMS_MAX};
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn parse(text: &str) -> LabelSelector {
        LabelSelector::parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"))
    }

    fn labels(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, canonical) in [
            ("", ""),
            (" \t\r\n", ""),
            ("x", "x"),
            ("!x", "!x"),
            ("! x ", "!x"),
            ("x=a", "x=a"),
            ("x==a", "x=a"),
            ("x = a ", "x=a"),
            ("x in (a)", "x=a"),
            ("x!=a", "x!=a"),
            ("x notin (a)", "x!=a"),
            ("x=", "x="),
            ("x==", "x="),
            ("x!=", "x!="),
            ("x=,y", "x=,y"),
            ("x in ()", "x="),
            ("x in (,)", "x="),
            ("x in (b,a,b)", "x in (a,b)"),
            ("x in(a,b)", "x in (a,b)"),
            ("x in (a,,c)", "x in (,a,c)"),
            ("x in (a,)", "x in (,a)"),
            ("x notin ( a , b )", "x notin (a,b)"),
            ("x>5", "x>5"),
            ("x < 007", "x<7"),
            ("in", "in"),
            ("!notin", "!notin"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("x=in,y==notin", "x=in,y=notin"),
            ("b,a,b", "a,b"),
            ("y=1,x=1", "x=1,y=1"),
            ("app.kubernetes.io/name=web", "app.kubernetes.io/name=web"),
        ] {
            let selector = parse(text);
            assert_eq!(selector.to_string(), canonical, "{text:?}");
            assert_eq!(parse(canonical), selector, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, at, cause) in [
            (",", 0, "found \",\", expected a key"),
            ("x,", 2, "found the end, expected a key"),
            ("x,,y", 2, "found \",\""),
            ("!", 1, "found the end"),
            ("!!x", 1, "found \"!\""),
            ("!x=a", 2, "expected ',' or the end"),
            ("=a", 0, "expected a key"),
            ("x===a", 3, "expected a value"),
            ("x=!a", 2, "expected a value"),
            ("x=(a)", 2, "expected a value"),
            ("x=a b", 4, "expected ',' or the end"),
            ("x a", 2, "expected =, =="),
            ("x in", 4, "found the end, expected '('"),
            ("x in a", 5, "expected '('"),
            ("x in (a", 7, "found the end"),
            ("x in (a b)", 8, "expected ',' or ')'"),
            ("x in (a))", 8, "expected ',' or the end"),
            ("x in ((a))", 6, "expected a value"),
            ("x>", 2, "expected an integer"),
            ("x>a", 2, "expected an integer"),
            ("x<1.5", 2, "expected an integer"),
            ("x>-1", 2, "invalid value"),
            ("x>9223372036854775808", 2, "expected an integer"),
            ("x=a/b", 2, "invalid value"),
            ("x in (a,-)", 8, "invalid value"),
            ("y,-x", 2, "invalid key"),
            ("a/b/c", 0, "invalid key"),
            ("x\0y", 0, "invalid key"),
            ("ü=1", 0, "invalid key"),
        ] {
            let error = LabelSelector::parse(text).expect_err(text);
            assert_eq!(error.at, at, "{text:?}: {error}");
            assert!(error.cause.contains(cause), "{text:?}: {error}");
        }
        let refusal = LabelSelector::parse("x in").expect_err("cut short").refusal("labelSelector");
        assert_eq!(refusal.code(), 400);
    }

    #[test]
    fn a_selector_is_bounded() {
        let many = vec!["x"; TERMS_MAX].join(",");
        assert_eq!(parse(&many).to_string(), "x");
        assert!(LabelSelector::parse(&format!("{many},x")).is_err());
        assert!(LabelSelector::parse(&" ".repeat(SELECTOR_BYTES_MAX + 1)).is_err());
        assert_eq!(parse(&format!("x in ({})", ",".repeat(SELECTOR_BYTES_MAX - 10))).to_string(), "x=");
    }

    #[test]
    fn each_operator_matches_what_it_says() {
        for (text, on, expected) in [
            ("", "", true),
            ("x", "x=", true),
            ("x", "y=1", false),
            ("!x", "y=1", true),
            ("!x", "x=1", false),
            ("x=1", "x=1", true),
            ("x=1", "x=2", false),
            ("x=", "x=", true),
            ("x=", "y=1", false),
            ("x!=1", "x=1", false),
            ("x!=1", "x=2", true),
            ("x!=1", "y=1", true),
            ("x in (1,2)", "x=2", true),
            ("x in (1,2)", "y=2", false),
            ("x notin (1,2)", "x=2", false),
            ("x notin (1,2)", "y=2", true),
            ("x>5", "x=6", true),
            ("x>5", "x=5", false),
            ("x>5", "x=a", false),
            ("x>5", "y=6", false),
            ("x<5", "x=4", true),
            ("x<5", "x=5", false),
            ("x<5", "y=4", false),
            ("x=1,y=2", "x=1,y=2", true),
            ("x=1,y=2", "x=1,y=3", false),
        ] {
            assert_eq!(parse(text).matches(&labels(on)), expected, "{text:?} on {on:?}");
        }
        let none: Option<&BTreeMap<String, String>> = None;
        assert!(parse("!x").matches(&none) && !parse("x").matches(&none));
    }

    /// A term as it was meant, with the naive answer to whether it holds.
    struct Meant {
        key: &'static str,
        operator: &'static str,
        values: Vec<&'static str>,
    }

    impl Meant {
        fn random(rng: &mut StdRng) -> Meant {
            let operators = ["", "!", "=", "==", "!=", "in", "notin", ">", "<"];
            let mut pick = |from: &[&'static str]| *from.choose(rng).expect("not empty");
            let (key, operator) = (pick(&["x", "y", "in", "p.q/z"]), pick(&operators));
            let values = match operator {
                "" | "!" => vec![],
                ">" | "<" => vec![pick(&["0", "5", "10"])],
                "in" | "notin" => vec![pick(&["", "a", "5"]), pick(&["a", "in", "10"])],
                _ => vec![pick(&["", "a", "5", "notin"])],
            };
            Meant { key, operator, values }
        }

        fn text(&self, rng: &mut StdRng) -> String {
            let mut space = || if rng.random_bool(0.3) { " " } else { "" };
            let (key, values) = (self.key, self.values.join(","));
            match self.operator {
                "" => format!("{}{key}{}", space(), space()),
                "!" => format!("{}!{}{key}", space(), space()),
                "in" | "notin" => format!("{key} {}{}({}{values})", self.operator, space(), space()),
                sign => format!("{key}{}{sign}{}{values}{}", space(), space(), space()),
            }
        }

        fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
            let value = labels.get(self.key).map(String::as_str);
            let listed = value.is_some_and(|value| self.values.contains(&value));
            let number = value.and_then(|value| value.parse::<i64>().ok());
            let bound = || self.values[0].parse::<i64>().expect("an integer");
            match self.operator {
                "" => value.is_some(),
                "!" => value.is_none(),
                "=" | "==" | "in" => listed,
                "!=" | "notin" => !listed,
                ">" => number.is_some_and(|number| number > bound()),
                _ => number.is_some_and(|number| number < bound()),
            }
        }
    }

    #[test]
    fn parsed_selectors_match_what_was_meant() {
        let mut rng = StdRng::seed_from_u64(8);
        let mut matched = 0;
        for _ in 0..4_000 {
            let meant: Vec<Meant> = (0..rng.random_range(0..4)).map(|_| Meant::random(&mut rng)).collect();
            let text: Vec<String> = meant.iter().map(|term| term.text(&mut rng)).collect();
            let selector = parse(&text.join(","));
            assert_eq!(parse(&selector.to_string()), selector);
            let mut labels = BTreeMap::new();
            for key in ["x", "y", "in", "p.q/z"] {
                if rng.random_bool(0.5) {
                    let value = ["", "a", "5", "7", "in"].choose(&mut rng).expect("not empty");
                    labels.insert(key.to_owned(), (*value).to_owned());
                }
            }
            let expected = meant.iter().all(|term| term.holds(&labels));
            assert_eq!(selector.matches(&labels), expected, "{selector} on {labels:?}");
            matched += u32::from(expected);
        }
        assert!((500..3_500).contains(&matched), "{matched} of 4000 matched: the test tells nothing");
    }

    #[test]
    fn noise_is_refused_or_has_a_canonical_form() {
        let mut rng = StdRng::seed_from_u64(9);
        let alphabet =
            ["x", "a", "in", "notin", " ", "=", "!", "(", ")", ",", "<", ">", "5", "/", "-", "é", "\0"];
        let mut parsed = 0;
        for _ in 0..20_000 {
            let text: String =
                (0..rng.random_range(0..9)).map(|_| *alphabet.choose(&mut rng).expect("not empty")).collect();
            if let Ok(selector) = LabelSelector::parse(&text) {
                parsed += 1;
                assert_eq!(parse(&selector.to_string()), selector, "{text:?}");
            }
        }
        assert!(1_000 < parsed);
    }
}
