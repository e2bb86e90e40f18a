//! The names of buckets: what an object can be found under, and a watcher be called by.
//!
//! Objects and watchers meet by name: an object that matches a term has the name of that term among its
//! own. Different terms never share a name, whatever bytes somebody put into a label: the length of the
//! first part stands in front of it.

use super::entry::Entry;
use super::filter::{Scope, Subject, Term, Test};
use std::fmt::Write;

/// Calls `each` with the name of every positive term that holds for `entry`: its labels with and
/// without their values, and its fields.
pub fn each_term_name(entry: &Entry, mut each: impl FnMut(&str)) {
    let mut name = String::new();
    for (label, value) in entry.labels() {
        write_pair(&mut name, 'l', label, value);
        each(&name);
        write_pair(&mut name, 'k', label, "");
        each(&name);
    }
    for (field, value) in entry.fields() {
        write_pair(&mut name, 'f', field, value);
        each(&name);
    }
}

/// The names of which every object that meets `term` has one. `None` if the term can hold for objects
/// that have nothing in common. `fields`: those that objects are named by.
pub fn names_of_term(term: &Term, fields: &[impl AsRef<str>]) -> Option<Vec<String>> {
    let (tag, subject) = match &term.subject {
        Subject::Label(label) => ('l', label),
        Subject::Field(path) if fields.iter().any(|field| field.as_ref() == &**path) => ('f', path),
        Subject::Field(_) => return None,
    };
    match &term.test {
        Test::Equals(value) => Some(vec![pair(tag, subject, value)]),
        Test::In(values) => Some(values.iter().map(|value| pair(tag, subject, value)).collect()),
        Test::Exists | Test::Greater(_) | Test::Less(_) if tag == 'l' => Some(vec![pair('k', subject, "")]),
        _ => None,
    }
}

pub fn name_of_scope(scope: &Scope) -> String {
    let mut name = String::new();
    write_scope(&mut name, scope.namespace.as_deref(), scope.name.as_deref());
    name
}

/// Calls `each` with the name of every scope that `entry` is in.
pub fn each_scope_name(entry: &Entry, mut each: impl FnMut(&str)) {
    let (namespace, own) = (Some(entry.namespace()), Some(entry.name()));
    let mut name = String::new();
    for (namespace, own) in [(namespace, own), (namespace, None), (None, own), (None, None)] {
        write_scope(&mut name, namespace, own);
        each(&name);
    }
}

fn write_scope(name: &mut String, namespace: Option<&str>, own: Option<&str>) {
    let tag = match (namespace, own) {
        (Some(_), Some(_)) => 'o',
        (Some(_), None) => 'n',
        (None, Some(_)) => 'm',
        (None, None) => 'a',
    };
    write_pair(name, tag, namespace.unwrap_or_default(), own.unwrap_or_default());
}

fn pair(tag: char, first: &str, second: &str) -> String {
    let mut name = String::new();
    write_pair(&mut name, tag, first, second);
    name
}

fn write_pair(name: &mut String, tag: char, first: &str, second: &str) {
    name.clear();
    write!(name, "{tag}{}:{first}{second}", first.len()).expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::{pod, pods};
    use crate::cacher::filter::tests::{random_scope, random_term};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn who_meets_a_term_has_one_of_its_names() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut met = 0;
        for _ in 0..2_000 {
            let labels = format!("app={},n={}", rng.random_range(0..5), rng.random_range(0..5));
            let node = ["", "n1"][rng.random_range(0..2)];
            let entry = pod(&format!("a/{}", rng.random_range(0..30)), &labels, node, 1);
            let mut names = Vec::new();
            each_term_name(&entry, |name| names.push(name.to_owned()));
            let term = random_term(&mut rng);
            if let Some(wanted) = names_of_term(&term, &pods().fields)
                && term.matches(&entry)
            {
                assert!(wanted.iter().any(|name| names.contains(name)), "{term:?}");
                met += 1;
            }
            let scope = random_scope(&mut rng);
            let mut scopes = Vec::new();
            each_scope_name(&entry, |name| scopes.push(name.to_owned()));
            let contains = crate::cacher::filter::Filter::new(scope.clone(), vec![]).matches(&entry);
            assert_eq!(scopes.contains(&name_of_scope(&scope)), contains, "{scope:?}");
        }
        assert!(met > 100, "{met} terms held");
    }

    #[test]
    fn parts_are_not_taken_for_each_other() {
        assert_ne!(pair('l', "a", "bc"), pair('l', "ab", "c"));
        assert_ne!(pair('l', "1:a", ""), pair('l', "1", ":a"));
        assert_ne!(name_of_scope(&Scope::namespace("a")), name_of_scope(&Scope::object("a", "")));
    }

    #[test]
    fn a_field_that_objects_are_not_named_by_has_no_name() {
        let term = Term::field("spec.other", Test::Equals("".into()));
        assert_eq!(names_of_term(&term, &pods().fields), None);
        let term = Term::field("spec.nodeName", Test::Exists);
        assert_eq!(names_of_term(&term, &pods().fields), None);
    }
}
