//! A regular expression as CRDs write it, matched in linear time.
//!
//! CRDs are written for an engine of the same family with three differences that matter: its `\d`, `\w`,
//! `\s` and `\b` know ASCII only, and inside a class an opening bracket and doubled signs are themselves.
//! They are written out here, so that a pattern means what its author tested.

use regex::{Match, Regex, RegexBuilder};

/// Bytes of a compiled pattern, and the steps that matching one byte of text costs with a pattern of that size. The
/// machine may be in all its states at once, so a large pattern with a short text, as `a[ab]{2000}`, is slow.
const SIZES: [(usize, usize); 4] = [(4 << 10, 1), (16 << 10, 4), (64 << 10, 16), (COMPILED_BYTES_MAX, 64)];
/// Bytes of one compiled pattern: one that repeats repetitions is refused, not stored.
const COMPILED_BYTES_MAX: usize = 256 << 10;
/// Levels of groups in a pattern.
const NESTING_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: String,
    regex: Regex,
    steps_per_byte: usize,
}

impl Pattern {
    pub fn compile(text: &str) -> Result<Pattern, String> {
        let mut builder = RegexBuilder::new(&translate(text));
        builder.dfa_size_limit(COMPILED_BYTES_MAX).nest_limit(NESTING_MAX);
        for (bytes, steps_per_byte) in SIZES {
            match builder.size_limit(bytes).build() {
                Ok(regex) => return Ok(Pattern { text: text.to_owned(), regex, steps_per_byte }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => return Err("must be a valid regular expression".to_owned()),
            }
        }
        Err("is too large when compiled".to_owned())
    }

    /// What matching a text of this length costs. At worst a step is some hundred nanoseconds, mostly one or two.
    pub fn steps(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.steps_per_byte)
    }

    /// Anywhere in `value`, unless the pattern says otherwise.
    pub fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }

    /// All parts of `value` that match, which do not overlap.
    pub fn find_all<'v>(&self, value: &'v str) -> impl Iterator<Item = Match<'v>> {
        self.regex.find_iter(value)
    }
}

fn translate(text: &str) -> String {
    let (mut out, mut letters) = (String::with_capacity(text.len() + 16), text.chars().peekable());
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => escape(&mut out, letters.next(), in_class),
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A closing bracket that comes first is a member.
                if letters.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            '[' if letters.peek() == Some(&':') => {
                // A named class such as [:alpha:], up to its own bracket.
                out.push('[');
                for letter in letters.by_ref() {
                    out.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(letter);
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            _ => out.push(letter),
        }
    }
    out
}

fn escape(out: &mut String, letter: Option<char>, in_class: bool) {
    match letter {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str(r"[\t\n\f\r ]"),
        Some('S') => out.push_str(r"[^\t\n\f\r ]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some(letter) => {
            out.push('\\');
            out.push(letter);
        }
        None => out.push('\\'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_their_authors_mean() {
        for (pattern, value, expected) in [
            ("b", "abc", true),
            ("^b$", "abc", false),
            (r"^\d+$", "123", true),
            (r"^\d+$", "\u{661}\u{662}", false),
            (r"^[\d.]+$", "1.2", true),
            (r"^[^\d]+$", "1", false),
            (r"^\w+$", "\u{e9}", false),
            (r"^[\w-]+$", "a-b_1", true),
            (r"^[[]$", "[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]]$", "a", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^\.$", ".", true),
            (r"^a\[b\]$", "a[b]", true),
            (r"^(([a-z0-9]([-a-z0-9]*[a-z0-9])?)\.)+x$", "a-b.c.x", true),
        ] {
            let compiled = Pattern::compile(pattern).expect("a good pattern");
            assert_eq!(compiled.matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn short_text_with_a_large_machine_is_charged_for_it() {
        let steps = |text| Pattern::compile(text).expect("a good pattern").steps(1_000);
        assert_eq!(steps("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), 1_000);
        assert_eq!(steps("a[ab]{2000}[^ab]"), 64_000);
    }

    #[test]
    fn what_is_no_pattern_or_too_large_a_one_is_refused() {
        let nested = format!("{}a{}", "(".repeat(1000), ")".repeat(1000));
        for bad in ["(", "[a", "a**b(", "\\", r"(?=a)", "((a{1000}){1000}){1000}", &nested] {
            assert!(Pattern::compile(bad).is_err(), "{bad}");
        }
    }
}
