//! The files of the project, and Rust text with its comments and strings told apart from its code.
//!
//! A rule about code must not trip over a word in a string, nor a rule about comments over a word
//! in code. [`Source::code`] and [`Source::comments`] are as long as the text, line for line and
//! byte for byte, with everything else blanked; a position found in one is a position in the file.
//! The scanner knows Rust's tokens as far as it must, and no grammar: it never refuses a file.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Source {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub text: String,
    pub code: String,
    pub comments: String,
}

impl Source {
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Source {
        let (path, text) = (path.into(), text.into());
        let (code, comments) = if path.extension().is_some_and(|extension| extension == "rs") {
            split(&text)
        } else {
            (String::new(), String::new())
        };
        Source { path, text, code, comments }
    }

    pub fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether the file is a test rather than a part of something.
    pub fn is_test(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "tests")
            || self.path.file_name().is_some_and(|name| name == "tests.rs")
    }

    /// The code without the tests at its foot.
    pub fn code_without_tests(&self) -> &str {
        let heads = ["#[cfg(test)]\nmod tests", "#[cfg(test)]\npub(crate) mod tests"];
        let tests = heads.iter().filter_map(|head| self.code.find(head)).min();
        &self.code[..tests.unwrap_or(self.code.len())]
    }
}

/// Every text file that git tracks or would track.
pub fn load(root: &Path) -> Result<Vec<Source>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|err| format!("cannot start git: {err}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let mut sources = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that is deleted but not yet committed as such is still listed; a file that is not
        // text has no lines to judge.
        if let Ok(text) = std::fs::read_to_string(root.join(name)) {
            sources.push(Source::new(name, text));
        }
    }
    Ok(sources)
}

/// Where `word` stands in `text` with no letter, digit or underscore on either side.
pub fn find_words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        // A word that ends in punctuation, such as a path's `::`, ends by itself.
        let open_ended = word.ends_with(|last: char| !last.is_ascii_alphanumeric());
        !joins(before) && (open_ended || !joins(bytes.get(at + word.len())))
    })
}

/// Lines are counted from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut comments = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (kind, end) = token(bytes, at);
        for &byte in &bytes[at..end] {
            let blank = if byte == b'\n' { b'\n' } else { b' ' };
            code.push(if kind == Kind::Code { byte } else { blank });
            comments.push(if kind == Kind::Comment { byte } else { blank });
        }
        at = end;
    }
    let text = |bytes| String::from_utf8(bytes).expect("tokens end on character boundaries");
    (text(code), text(comments))
}

/// The token at `at`, as far as it matters here: what it is, and where it ends.
fn token(bytes: &[u8], at: usize) -> (Kind, usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return (Kind::Comment, at + length);
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, at + block_comment(rest));
    }
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if let Some(length) = raw_string(rest).filter(|_| !in_word) {
        return (Kind::Literal, at + length);
    }
    match rest[0] {
        b'"' => (Kind::Literal, at + quoted(rest, b'"')),
        b'\'' => match character(rest) {
            Some(length) => (Kind::Literal, at + length),
            None => (Kind::Code, at + 1),
        },
        first if first >= 0x80 => (Kind::Code, at + utf8_length(first)),
        _ => (Kind::Code, at + 1),
    }
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        _ => 2,
    }
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#` or `br"…"` at the start of `rest`, if one is there.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if rest.starts_with(b"br") { 2 } else { usize::from(rest.starts_with(b"r")) };
    if prefix == 0 {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close.as_slice());
    Some(end.map_or(rest.len(), |end| open + 1 + end + close.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal, or nothing where the quote begins a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let second = *rest.get(1)?;
    if second == b'\\' {
        return Some(quoted(rest, b'\''));
    }
    let end = 1 + if second < 0x80 { 1 } else { utf8_length(second) };
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, comments: &str) {
        let (found_code, found_comments) = split(text);
        assert_eq!(found_code, code, "code of {text:?}");
        assert_eq!(found_comments, comments, "comments of {text:?}");
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        check("a // b\nc", "a     \nc", "  // b\n ");
        check("a /* b /* c */ d */ e", "a                   e", "  /* b /* c */ d */  ");
        check(r#"f("x // y");"#, r#"f(        );"#, "            ");
        check("r#\"a\"b\"#;", "        ;", "         ");
        check(r#""\"{" {"#, r"      {", "       ");
    }

    #[test]
    fn a_lifetime_is_code_and_a_character_is_not() {
        check("&'a str '{' '\\''", "&'a str         ", "                ");
        check("'é' x", "     x".get(0..).expect("ascii"), "      ");
    }

    #[test]
    fn a_word_stands_alone() {
        let found = |text, word| find_words(text, word).collect::<Vec<_>>();
        assert_eq!(found("Status::new ExitStatus::x tonic::Status::y", "Status::"), [0, 33]);
        assert_eq!(found("todo todos atodo", "todo"), [0]);
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(line_of("a\nb\nc", 0), 1);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
