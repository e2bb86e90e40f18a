//! How a client's own words are shown back to it: not at length.
//!
//! A refusal must not be much larger than what it explains, whatever was sent.

use std::borrow::Cow;

const EXCERPT_BYTES_MAX: usize = 128;

pub fn excerpt(text: &str) -> Cow<'_, str> {
    excerpt_of(text, EXCERPT_BYTES_MAX)
}

/// As long as the place that it is for allows.
pub fn excerpt_of(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let whole = head(text, bytes_max);
    if whole.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(format!("{whole}...")) }
}

/// What fits, to the last whole character.
pub fn head(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_whole_and_long_ones_are_cut_between_characters() {
        let fits = "a".repeat(EXCERPT_BYTES_MAX);
        assert_eq!(excerpt(&fits), fits);
        assert_eq!(excerpt(&format!("{fits}b")), format!("{fits}..."));
        let cut = excerpt(&"é€".repeat(100)).into_owned();
        assert!(cut.ends_with("...") && cut.len() <= EXCERPT_BYTES_MAX + 3, "{cut}");
    }
}
