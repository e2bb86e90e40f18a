//! Nothing in the tree knows the machine it was written on.

use super::Violation;
use crate::source::Source;

/// Where people and build machines keep their own things. Without slashes here, so that this file
/// does not hold what it looks for.
const HOMES: &[&str] = &["root", "home", "work", "Users"];

pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for home in HOMES {
        let path = format!("/{home}/");
        for (at, _) in source.text.match_indices(&path) {
            if begins_a_path(&source.text[..at]) {
                found.push(Violation::at(source, at, format!("{path} is a path of one machine")));
            }
        }
    }
    found
}

/// Whether a slash after `before` is the start of an absolute path, not the middle of a relative one
/// or of a URL.
fn begins_a_path(before: &str) -> bool {
    !before.ends_with(|last: char| last.is_ascii_alphanumeric() || "_./-*}".contains(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_refused() {
        for home in HOMES {
            let source = Source::new("scripts/run", format!("cd /tmp\nexec /{home}/someone/bin/it"));
            assert_eq!(check(&source).len(), 1, "{home}");
            assert_eq!(check(&source)[0].line, Some(2));
        }
    }

    #[test]
    fn a_relative_path_or_a_url_is_not() {
        for text in ["target/{}/x", "https://example.org/{}/x", "./{}/x", "$HOME/{}/x", "/v1/{}/x"] {
            let source = Source::new("a.md", text.replace("{}", HOMES[0]));
            assert_eq!(check(&source), [], "{text}");
        }
    }
}
