//! The resourceVersion of a request: unset, "0", or a revision of the store.
//!
//! One is a decimal number without a leading zero, so that two of the same resource can be compared by
//! their length and then by their bytes. "0" is no version but a wish: anything will do. Past this room
//! nobody spells either of the special cases as a number.

use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::status::Refusal;
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceVersion {
    /// The client named none. What that means depends on the verb, and is never "from the beginning".
    #[default]
    Unset,
    /// "0": whatever the cache holds, however old.
    Any,
    /// Never zero.
    At(u64),
}

impl ResourceVersion {
    pub fn parse(text: &str) -> Result<ResourceVersion, Refusal> {
        match text {
            "" => Ok(ResourceVersion::Unset),
            "0" => Ok(ResourceVersion::Any),
            _ => revision(text).map(ResourceVersion::At).ok_or_else(|| {
                Refusal::bad_request(format!(
                    "invalid resource version {:?}: it is empty, \"0\", or a decimal number without a leading zero",
                    excerpt(text)
                ))
            }),
        }
    }
}

/// As it stands in an object, a list or a bookmark.
impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResourceVersion::Unset => Ok(()),
            ResourceVersion::Any => f.write_str("0"),
            ResourceVersion::At(revision) => revision.fmt(f),
        }
    }
}

/// The revision that a well-formed version stands for. None for "0" and for garbage.
pub fn revision(text: &str) -> Option<u64> {
    // The number's own parser would take a plus sign.
    if is_well_formed(text) { text.parse().ok() } else { None }
}

fn is_well_formed(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_zero_and_a_number_are_told_apart() {
        for (text, expected) in [
            ("", ResourceVersion::Unset),
            ("0", ResourceVersion::Any),
            ("1", ResourceVersion::At(1)),
            ("18446744073709551615", ResourceVersion::At(u64::MAX)),
        ] {
            let parsed = ResourceVersion::parse(text).expect("well formed");
            assert_eq!(parsed, expected);
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn garbage_is_a_bad_request() {
        for text in ["a", "-1", "+1", "01", "00", " 1", "1 ", "1.0", "0x1", "18446744073709551616", "١"] {
            let refusal = ResourceVersion::parse(text).expect_err(text);
            assert_eq!(refusal.code(), 400, "{text}");
        }
    }
}
