//! Every promise in `docs/guarantees.md` names a test that exists.
//!
//! The promises stand in tables. Each row names, as `` `room::test_name` ``, at least one test that
//! would fail if the promise broke; `room` is a directory under `crates/`, or `chaos`. A test that
//! is renamed or removed takes its promise with it, or tidy says so. A control does not count: it judges the
//! harness, and a run leaves it out while the harness is unchanged.

use std::path::Path;

use super::Violation;
use crate::source::{Source, find_words};
use crate::suite::is_control;

const DOCUMENT: &str = "docs/guarantees.md";

pub fn check(sources: &[Source]) -> Vec<Violation> {
    let Some(document) = sources.iter().find(|source| source.path == Path::new(DOCUMENT)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut at = 0;
    for line in document.text.split_inclusive('\n') {
        found.extend(check_line(document, at, line, sources));
        at += line.len();
    }
    found
}

fn check_line(document: &Source, at: usize, line: &str, sources: &[Source]) -> Vec<Violation> {
    let tests: Vec<(&str, &str)> = line.split('`').skip(1).step_by(2).filter_map(test_name).collect();
    if is_promise(line) && tests.iter().all(|(_, name)| is_control(name)) {
        return vec![Violation::at(document, at, "this promise names no test that would fail if it broke")];
    }
    let missing = tests.iter().filter(|(room, name)| !exists(room, name, sources));
    missing
        .map(|(room, name)| Violation::at(document, at, format!("there is no test {room}::{name}")))
        .collect()
}

/// A row of a table that is neither its head nor the rule under it.
fn is_promise(line: &str) -> bool {
    line.starts_with("| ") && !line.starts_with("| promise")
}

fn test_name(quoted: &str) -> Option<(&str, &str)> {
    let (room, name) = quoted.split_once("::")?;
    let plain = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    (plain(room) && plain(name)).then_some((room, name))
}

fn exists(room: &str, name: &str, sources: &[Source]) -> bool {
    let places = [Path::new("crates").join(room), Path::new(room).to_path_buf()];
    let function = format!("fn {name}");
    sources
        .iter()
        .filter(|source| places.iter().any(|place| source.path.starts_with(place)))
        .any(|source| find_words(&source.code, &function).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let test = Source::new("crates/state/src/mvcc/range.rs", "fn a_limit_is_kept() {}");
        let document = Source::new(DOCUMENT, format!("| promise | tests |\n|---|---|\n{document}"));
        check(&[test, document]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_promise_without_a_test_is_refused() {
        assert_eq!(found("| limits are kept | `state::a_limit_is_kept` |\n"), [""; 0]);
        let expected = ["docs/guarantees.md:3: this promise names no test that would fail if it broke"];
        assert_eq!(found("| limits are kept | the usual ones |\n"), expected);
        assert_eq!(found("| limits are kept | `state::the_limit_is_sound` |\n")[0], expected[0]);
    }

    #[test]
    fn a_test_that_does_not_exist_is_refused() {
        assert_eq!(
            found("| limits are kept | `state::a_limit_is_kept`, `raft::a_limit_is_kept` |\n"),
            ["docs/guarantees.md:3: there is no test raft::a_limit_is_kept"]
        );
        assert_eq!(found("| limits are kept | `state::a_limit` |\n").len(), 1);
    }
}
