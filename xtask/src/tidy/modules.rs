//! A file says what it promises, is named for its subject, and has one subject.

use super::Violation;
use crate::source::Source;

/// A thing with no home has no name yet.
const NAMELESS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc"];

/// Past this, a file has a second subject.
const LINES_MAX: usize = 900;

pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let first = source.text.lines().map(str::trim).find(|line| !line.is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        let message = "the first line must be a module doc (//!): what it is for, what is always true of it, what a \
                       caller must never do";
        found.push(Violation::whole(&source.path, message));
    }
    for part in source.path.with_extension("").components() {
        let name = part.as_os_str().to_string_lossy();
        if NAMELESS.contains(&name.as_ref()) {
            found.push(Violation::whole(
                &source.path,
                format!("no module is called {name}: name its subject"),
            ));
        }
    }
    found.extend(inline_modules(source));
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines, over {LINES_MAX}: what is its second subject?");
        found.push(Violation::whole(&source.path, message));
    }
    found
}

/// `mod utils { … }` needs no file of its own.
fn inline_modules(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in source.code.split_inclusive('\n') {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mod").skip(1);
        let name = words.next().unwrap_or_default().trim_end_matches([';', '{']);
        if NAMELESS.contains(&name) {
            found.push(Violation::at(source, at, format!("no module is called {name}: name its subject")));
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_without_a_module_doc_is_refused() {
        assert_eq!(found("a.rs", "//! Says what it is for.\n"), [""; 0]);
        assert_eq!(found("a.rs", "use std::fmt;\n").len(), 1);
        assert_eq!(found("a.rs", "// Not a module doc.\n").len(), 1);
        assert_eq!(found("a.rs", "").len(), 1);
    }

    #[test]
    fn a_module_without_a_subject_is_refused() {
        assert_eq!(found("crates/state/src/utils.rs", "//! Doc.\n").len(), 1);
        assert_eq!(found("crates/common/src/lib.rs", "//! Doc.\n").len(), 1);
        assert_eq!(
            found("a.rs", "//! Doc.\npub mod helpers;\n"),
            ["a.rs:2: no module is called helpers: name its subject"]
        );
        assert_eq!(found("a.rs", "//! Doc.\n// mod misc\nmod miscible;\n"), [""; 0]);
    }

    #[test]
    fn a_file_too_long_for_one_subject_is_refused() {
        let text = |lines: usize| format!("//! Doc.\n{}", "\n".repeat(lines - 1));
        assert_eq!(found("a.rs", &text(LINES_MAX)), [""; 0]);
        assert_eq!(found("a.rs", &text(LINES_MAX + 1)).len(), 1);
    }
}
