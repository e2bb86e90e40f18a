//! Each word of the glossary lives in the file that the glossary names.

use super::Violation;
use crate::source::Source;
use std::path::Path;

const PAGE: &str = "docs/glossary.md";

pub fn check(sources: &[Source]) -> Vec<Violation> {
    let exists =
        |path: &str| sources.iter().any(|source| source.path.starts_with(Path::new("crates").join(path)));
    let pages = sources.iter().filter(|source| source.path.as_path() == Path::new(PAGE));
    pages
        .flat_map(|page| {
            let gone = paths(&page.text).filter(|(_, path)| !exists(path));
            gone.map(|(at, path)| Violation::at(page, at, format!("there is no crates/{path}")))
        })
        .collect()
}

/// What stands between backticks and has a slash in it.
fn paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let spans = text.split('`').enumerate().filter_map(move |(number, span)| {
        let begins = at;
        at += span.len() + 1;
        (number % 2 == 1).then_some((begins, span))
    });
    spans.filter(|(_, span)| span.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_in_a_file_that_is_gone_is_refused() {
        let page =
            "| ring | in memory | `watch/src/ring.rs`, `watch/src` |\n| desk | gone | `raft/src/desk.rs` |\n";
        let sources = [Source::new(PAGE, page), Source::new("crates/watch/src/ring.rs", "")];
        let found: Vec<String> = check(&sources).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["docs/glossary.md:2: there is no crates/raft/src/desk.rs"]);
    }
}
