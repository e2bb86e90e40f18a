//! Examples in documentation are compiled in the client only.
//!
//! Rustdoc reads a whole crate to find its examples, so `doctest = false` stands in the manifest of every
//! other library. A block of code there would never be compiled, and says `text` instead.

use super::Violation;
use crate::source::Source;

const WITH_EXAMPLES: &str = "crates/client/";

pub fn check(source: &Source) -> Vec<Violation> {
    if source.path.starts_with(WITH_EXAMPLES) {
        return Vec::new();
    }
    let (mut found, mut at, mut is_open) = (Vec::new(), 0, false);
    for line in source.text.split_inclusive('\n') {
        let doc = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        if let Some(kind) = doc.and_then(|doc| doc.trim().strip_prefix("```")) {
            if !is_open && kind != "text" {
                let message = "this crate has doctest = false: mark the block as text, or move the example";
                found.push(Violation::at(source, at, message));
            }
            is_open = !is_open;
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_outside_the_client_is_found() {
        let found = |path: &str, text: &str| check(&Source::new(path, text)).len();
        let example = "/// ```\n/// let a = 1;\n/// ```\nfn a() {}\n";
        assert_eq!(found("crates/state/src/a.rs", example), 1);
        assert_eq!(found("crates/client/src/a.rs", example), 0);
        assert_eq!(found("crates/state/src/a.rs", &example.replacen("```", "```text", 1)), 0);
    }
}
