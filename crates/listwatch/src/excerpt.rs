//! How a client's own words are shown back to it: not at length.
//!
//! A refusal must not be much larger than what it explains, whatever was sent.

use std::borrow::Cow;

const EXCERPT_BYTES_MAX: usize = 128;

pub(crate) fn excerpt(text: &str) -> Cow<'_, str> {
    if text.len() <= EXCERPT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let mut end = EXCERPT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}...", &text[..end]))
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
