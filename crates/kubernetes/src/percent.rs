//! Percent-decoding, for paths and for query strings.
//!
//! What cannot be decoded to UTF-8 is refused and never guessed at: a selector that was dropped for its
//! spelling would select everything.

/// A part of a path, where a plus sign is a plus sign. None if it is malformed.
pub fn decode_segment(text: &str) -> Option<String> {
    decode(text, b'+')
}

/// A name or a value in a query string, where a plus sign is a space. None if it is malformed.
pub(crate) fn decode_parameter(text: &str) -> Option<String> {
    decode(text, b' ')
}

fn decode(text: &str, plus: u8) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (digit(bytes.next()?)? << 4) | digit(bytes.next()?)?,
            b'+' => plus,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

fn digit(byte: u8) -> Option<u8> {
    // A hexadecimal digit is below 16.
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(decode_segment("a%2Fb%20c+d").as_deref(), Some("a/b c+d"));
        assert_eq!(decode_parameter("a%2Fb%20c+d%2B").as_deref(), Some("a/b c d+"));
        assert_eq!(decode_segment("%c3%BC").as_deref(), Some("ü"));
        assert_eq!(decode_segment("").as_deref(), Some(""));
    }

    #[test]
    fn what_is_malformed_is_not_guessed_at() {
        for text in ["%", "%2", "%zz", "a%", "%+1", "%-1", "%c3", "%ff"] {
            assert_eq!(decode_segment(text), None, "{text}");
            assert_eq!(decode_parameter(text), None, "{text}");
        }
    }
}
