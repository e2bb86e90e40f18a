//! A revision is a `Revision`, and no bare integer: two numbers of different kinds never take each
//! other's place.
//!
//! Held in the crates between the wire and the disk: parameters, fields and what functions return.

use super::Violation;
use crate::source::{Source, find_words};

const ROOMS: &[&str] = &["crates/state/src", "crates/raft/src", "crates/watch/src"];

/// Last words of names, and the type for each.
const TYPES: &[(&str, &str)] = &[
    ("revision", "Revision"),
    ("term", "Term"),
    ("index", "LogIndex"),
    ("id", "the id's own type"),
    ("member", "MemberId"),
    ("leader", "MemberId"),
    ("voter", "MemberId"),
    ("cluster", "ClusterId"),
    ("lease", "LeaseId"),
];

pub fn check(source: &Source) -> Vec<Violation> {
    if source.is_test() || !ROOMS.iter().any(|room| source.path.starts_with(room)) {
        return Vec::new();
    }
    let code = source.code_without_tests();
    let functions = find_words(code, "fn").filter_map(|at| returned(code, at));
    let mut found: Vec<(usize, &str, &str)> = typed(code).chain(functions).collect();
    found.retain(|(_, _, written)| is_bare(written));
    let violations = found.into_iter().filter_map(|(at, name, written)| {
        let kind = kind_of(name, written)?;
        Some(Violation::at(source, at, format!("{name} is a bare number; make it {kind}")))
    });
    violations.collect()
}

/// Each name that a colon follows, and the type behind it.
fn typed(code: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let colons = code.match_indices(": ").map(|(at, _)| at);
    colons.map(move |at| {
        let name = &code[at - trailing_word(&code[..at])..at];
        (at, name, type_at(&code[at + 2..]))
    })
}

/// The name of the function at `at`, and what it returns.
fn returned(code: &str, at: usize) -> Option<(usize, &str, &str)> {
    let rest = code[at + "fn".len()..].trim_start();
    let name = &rest[..rest.find(|letter: char| !is_letter(letter))?];
    let signature = &rest[..rest.find(['{', ';'])?];
    let (_, written) = signature.rsplit_once("->")?;
    Some((at, name, written))
}

fn trailing_word(text: &str) -> usize {
    text.chars().rev().take_while(|letter| is_letter(*letter)).count()
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Up to the first comma, bracket, semicolon or equals sign that belongs to what encloses it.
fn type_at(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'<' => depth += 1,
            b')' | b']' | b'>' if depth == 0 => return &text[..at],
            b')' | b']' | b'>' => depth -= 1,
            b',' | b';' | b'=' | b'{' | b'}' if depth == 0 => return &text[..at],
            _ => {}
        }
    }
    text
}

/// Whether a 64-bit integer is in the type. `u64::MAX` and `as u64` are values.
fn is_bare(written: &str) -> bool {
    let is_type = |at: usize| !written[at + 3..].starts_with("::") && !written[..at].ends_with("as ");
    ["u64", "i64"].into_iter().flat_map(|word| find_words(written, word)).any(is_type)
}

/// A name in the plural is a count, unless there is a number for each.
fn kind_of(name: &str, written: &str) -> Option<&'static str> {
    let last = name.rsplit('_').next().unwrap_or(name);
    let counts = ["u64", "i64"].contains(&written.trim());
    let known =
        |(word, _): &&(&str, &str)| last == *word || (!counts && last.strip_suffix('s') == Some(word));
    TYPES.iter().find(known).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Source::new("crates/state/src/a.rs", text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bare_number_named_like_a_revision_is_refused() {
        for text in [
            "pub fn read(at_revision: i64) {}",
            "struct A {\n    pub term: u64,\n}",
            "fn applied_index(&self) -> Option<u64> {}",
            "fn f(members: &BTreeMap<u64, Node>) {}",
            "enum A { Of { lease: i64 } }",
            "fn f() { let id: u64 = 1; }",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        let refused = "crates/state/src/a.rs:1: index is a bare number; make it LogIndex";
        assert_eq!(found("fn f(index: u64);"), [refused]);
    }

    #[test]
    fn counts_sizes_and_values_are_numbers() {
        for text in [
            "fn f(revisions: u64, bytes: u64) -> u64 {}",
            "fn f(index: LogIndex) -> Result<u64, E> { A { term: u64::MAX, id: at as u64 } }",
            "struct A { granted: LogIndex, rounds: BTreeMap<MemberId, u64> }",
            "#[cfg(test)]\nmod tests {\n    fn f(index: u64) {}\n}",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
        let elsewhere = Source::new("crates/backup/src/a.rs", "fn f(revision: i64) {}");
        assert_eq!(check(&elsewhere), []);
    }
}
