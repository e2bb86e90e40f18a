//! Nothing unfinished is committed: no debugging print, no note to oneself, no test switched off.

use super::Violation;
use crate::source::{Source, find_words};

/// Written in two halves, so that this file does not hold what it looks for.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

const MACROS: &[&str] = &["dbg!", "todo!", "unimplemented!"];

pub fn check(source: &Source) -> Vec<Violation> {
    // A licence or a lock file is not ours to phrase.
    let prose = if source.is_rust() { &source.comments } else { &source.text };
    let mut found = Vec::new();
    for note in NOTES {
        for at in find_words(prose, note) {
            found.push(Violation::at(source, at, format!("{note}: finish it, or open an issue")));
        }
    }
    for name in MACROS {
        for at in find_words(&source.code, name) {
            found.push(Violation::at(source, at, format!("{name} is a leftover")));
        }
    }
    for (at, _) in source.code.match_indices("#[ignore") {
        found.push(Violation::at(
            source,
            at,
            "a test that does not run proves nothing: mend it or remove it",
        ));
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
    fn a_debugging_print_is_refused() {
        assert_eq!(found("a.rs", "fn f() {\n    dbg!(1);\n}"), ["a.rs:2: dbg! is a leftover"]);
        assert_eq!(found("a.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(found("a.rs", "fn f() { unimplemented!() }").len(), 1);
        assert_eq!(found("a.rs", "const NAME: &str = \"dbg!\";"), [""; 0]);
    }

    #[test]
    fn a_note_to_oneself_is_refused() {
        for note in NOTES {
            assert_eq!(found("a.rs", &format!("// {note}: later")).len(), 1);
            assert_eq!(found("scripts/run", &format!("# {note}")).len(), 1);
            assert_eq!(found("a.rs", &format!("const A: &str = \"{note}\";")), [""; 0]);
        }
    }

    #[test]
    fn a_test_that_is_switched_off_is_refused() {
        assert_eq!(found("a.rs", "#[test]\n#[ignore]\nfn a() {}").len(), 1);
        assert_eq!(found("a.rs", "#[ignore = \"slow\"]\nfn a() {}").len(), 1);
    }
}
