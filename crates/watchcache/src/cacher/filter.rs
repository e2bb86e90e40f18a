//! Which objects a list or a watch is about: a scope, and terms that all hold.
//!
//! The parsed selectors of a request become terms here. What a term says of an object that lacks its
//! label or its field is said here and nowhere else: `!=` and `notin` hold without the label; a missing
//! field is the empty string.

use super::entry::Entry;
use std::collections::BTreeSet;

/// What a term looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Label(Box<str>),
    Field(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Equals(Box<str>),
    In(BTreeSet<Box<str>>),
    Exists,
    NotEquals(Box<str>),
    NotIn(BTreeSet<Box<str>>),
    NotExists,
    /// Holds for whole numbers only.
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub subject: Subject,
    pub test: Test,
}

impl Term {
    pub fn label(name: &str, test: Test) -> Term {
        Term { subject: Subject::Label(name.into()), test }
    }

    pub fn field(path: &str, test: Test) -> Term {
        Term { subject: Subject::Field(path.into()), test }
    }

    pub fn matches(&self, entry: &Entry) -> bool {
        let value = match &self.subject {
            Subject::Label(name) => entry.label(name),
            Subject::Field(path) => Some(entry.field(path)),
        };
        match &self.test {
            Test::Equals(wanted) => value == Some(&**wanted),
            Test::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Test::Exists => value.is_some(),
            Test::NotEquals(unwanted) => value != Some(&**unwanted),
            Test::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Test::NotExists => value.is_none(),
            Test::Greater(bound) => number(value).is_some_and(|number| *bound < number),
            Test::Less(bound) => number(value).is_some_and(|number| number < *bound),
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// The part of a resource that a path names. `None`: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub namespace: Option<Box<str>>,
    pub name: Option<Box<str>>,
}

impl Scope {
    pub fn all() -> Scope {
        Scope::default()
    }

    pub fn namespace(namespace: &str) -> Scope {
        Scope { namespace: Some(namespace.into()), name: None }
    }

    pub fn object(namespace: &str, name: &str) -> Scope {
        Scope { namespace: Some(namespace.into()), name: Some(name.into()) }
    }

    fn contains(&self, entry: &Entry) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| **namespace == *entry.namespace())
            && self.name.as_ref().is_none_or(|name| **name == *entry.name())
    }

    /// The keys that can be in scope.
    pub fn keys(&self, namespaced: bool) -> KeyRange {
        match (&self.namespace, &self.name) {
            (None, None) => KeyRange { first: String::new(), end: None },
            (Some(namespace), Some(name)) if namespaced => KeyRange::one(&format!("{namespace}/{name}")),
            // The slash belongs to the prefix, or namespace `a` would be shown what is in `ab`. What
            // comes after all keys with a slash is the same with a zero.
            (Some(namespace), None) if namespaced => {
                KeyRange { first: format!("{namespace}/"), end: Some(format!("{namespace}0")) }
            }
            (_, Some(name)) if !namespaced => KeyRange::one(name),
            _ => KeyRange { first: String::new(), end: None },
        }
    }
}

/// Keys from `first` on, and below `end` if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub first: String,
    pub end: Option<String>,
}

impl KeyRange {
    fn one(key: &str) -> KeyRange {
        KeyRange { first: key.to_owned(), end: Some(format!("{key}\0")) }
    }

    /// Without the keys below `first`: where a list goes on.
    pub fn starting_at(mut self, first: &str) -> KeyRange {
        if self.first.as_str() < first {
            first.clone_into(&mut self.first);
        }
        self
    }

    pub fn contains(&self, key: &str) -> bool {
        *self.first <= *key && self.end.as_ref().is_none_or(|end| key < end.as_str())
    }
}

/// A scope and terms, all of which hold for what is wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    scope: Scope,
    terms: Vec<Term>,
    has_selector: bool,
}

impl Filter {
    pub fn new(scope: Scope, terms: Vec<Term>) -> Filter {
        let has_selector = !terms.is_empty();
        let mut filter = Filter { scope, terms: Vec::with_capacity(terms.len()), has_selector };
        for term in terms {
            filter.add(term);
        }
        filter
    }

    /// A name that a selector asks for narrows the scope. One that contradicts it stays a term, which
    /// nothing in scope meets.
    fn add(&mut self, term: Term) {
        let narrowed = match (&term.subject, &term.test) {
            (Subject::Field(path), Test::Equals(value)) => match &**path {
                "metadata.namespace" => narrow(&mut self.scope.namespace, value),
                "metadata.name" => narrow(&mut self.scope.name, value),
                _ => false,
            },
            _ => false,
        };
        if !narrowed {
            self.terms.push(term);
        }
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether the request had a selector, even one that only narrowed the scope.
    pub fn has_selector(&self) -> bool {
        self.has_selector
    }

    pub fn matches(&self, entry: &Entry) -> bool {
        self.scope.contains(entry) && self.terms.iter().all(|term| term.matches(entry))
    }
}

fn narrow(part: &mut Option<Box<str>>, value: &str) -> bool {
    match part {
        Some(already) => **already == *value,
        None => {
            *part = Some(value.into());
            true
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cacher::entry::tests::pod;
    use rand::Rng;
    use rand::rngs::StdRng;

    fn set(values: &[&str]) -> BTreeSet<Box<str>> {
        values.iter().map(|value| Box::from(*value)).collect()
    }

    /// A term about one of few labels, fields and values, so that it often matches something.
    pub(crate) fn random_term(rng: &mut StdRng) -> Term {
        let label = ["app", "tier", "n"][rng.random_range(0..3)];
        let value = rng.random_range(0..5).to_string();
        let values = || set(&["1", &value, "never"]);
        match rng.random_range(0..10) {
            0 | 1 => Term::label(label, Test::Equals(value.as_str().into())),
            2 => Term::label(label, Test::In(values())),
            3 => Term::label(label, Test::Exists),
            4 => Term::label(label, Test::NotEquals(value.as_str().into())),
            5 => Term::label(label, Test::NotIn(values())),
            6 => Term::label(label, Test::NotExists),
            7 => Term::label(label, Test::Greater(rng.random_range(0..5))),
            8 => Term::field("spec.nodeName", Test::Equals(["", "n1", "n2"][rng.random_range(0..3)].into())),
            _ => Term::field("spec.nodeName", Test::NotEquals("n1".into())),
        }
    }

    pub(crate) fn random_scope(rng: &mut StdRng) -> Scope {
        match rng.random_range(0..6) {
            0 => Scope::object(["a", "ab"][rng.random_range(0..2)], &rng.random_range(0..30).to_string()),
            1 => Scope { namespace: None, name: Some(rng.random_range(0..30).to_string().into()) },
            2 | 3 => Scope::namespace(["a", "ab", "b", "none"][rng.random_range(0..4)]),
            _ => Scope::all(),
        }
    }

    pub(crate) fn random_filter(rng: &mut StdRng) -> Filter {
        let terms = (0..rng.random_range(0..4)).map(|_| random_term(rng)).collect();
        Filter::new(random_scope(rng), terms)
    }

    #[test]
    fn each_term_says_what_it_wants() {
        let entry = pod("ns/a", "app=web,n=5,empty=", "n1", 1);
        let label = Term::label;
        let field = Term::field;
        let rows = [
            (label("app", Test::Equals("web".into())), true),
            (label("app", Test::Equals("db".into())), false),
            (label("empty", Test::Equals("".into())), true),
            (label("gone", Test::Equals("".into())), false),
            (label("app", Test::In(set(&["db", "web"]))), true),
            (label("gone", Test::In(set(&["db", "web"]))), false),
            (label("app", Test::Exists), true),
            (label("gone", Test::Exists), false),
            (label("gone", Test::NotExists), true),
            (label("app", Test::NotEquals("web".into())), false),
            (label("gone", Test::NotEquals("web".into())), true),
            (label("app", Test::NotIn(set(&["web"]))), false),
            (label("gone", Test::NotIn(set(&["web"]))), true),
            (label("n", Test::Greater(4)), true),
            (label("n", Test::Greater(5)), false),
            (label("n", Test::Less(6)), true),
            (label("app", Test::Less(6)), false),
            (label("gone", Test::Less(6)), false),
            (field("spec.nodeName", Test::Equals("n1".into())), true),
            (field("status.phase", Test::Equals("".into())), true),
            (field("status.phase", Test::NotEquals("".into())), false),
            (field("metadata.name", Test::NotEquals("b".into())), true),
        ];
        for (term, expected) in rows {
            assert_eq!(term.matches(&entry), expected, "{term:?}");
        }
    }

    #[test]
    fn a_namespace_does_not_leak_into_its_longer_namesake() {
        let range = Scope::namespace("a").keys(true);
        assert!(range.contains("a/x"));
        assert!(!range.contains("ab/x") && !range.contains("a-b/x") && !range.contains("a"));
    }

    #[test]
    fn a_name_in_a_selector_narrows_the_scope_to_one_key() {
        let name = |value: &str| Term::field("metadata.name", Test::Equals(value.into()));
        let filter = Filter::new(Scope::namespace("ns"), vec![name("a")]);
        assert_eq!(filter.scope(), &Scope::object("ns", "a"));
        assert!(filter.terms().is_empty() && filter.has_selector());
        assert_eq!(filter.scope().keys(true), KeyRange::one("ns/a"));
        let contradiction = Filter::new(Scope::object("ns", "b"), vec![name("a")]);
        for key in ["ns/a", "ns/b"] {
            assert!(!contradiction.matches(&pod(key, "", "", 1)));
        }
    }

    #[test]
    fn all_that_matches_is_in_the_range_of_keys() {
        use rand::SeedableRng;
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..2_000 {
            let scope = random_scope(&mut rng);
            let namespace = ["a", "ab", "b"][rng.random_range(0..3)];
            let entry = pod(&format!("{namespace}/{}", rng.random_range(0..30)), "", "", 1);
            if scope.contains(&entry) {
                assert!(scope.keys(true).contains(entry.key()), "{scope:?} {}", entry.key());
            }
        }
    }
}
