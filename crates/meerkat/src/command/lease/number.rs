//! Numbers on the command line, refused in the words that `etcdctl` has from Go.

use std::num::{IntErrorKind, ParseIntError};

use crate::go_quote::quote;

/// A lease's id.
pub fn parse_hex(text: &str) -> Result<i64, String> {
    i64::from_str_radix(text, 16).map_err(|error| reason(text, &error))
}

/// A member's id: without a sign, as Go reads such a number.
pub fn parse_unsigned_hex(text: &str) -> Result<u64, String> {
    match text.starts_with('+') {
        true => Err(format!("strconv.ParseUint: parsing {}: invalid syntax", quote(text.as_bytes()))),
        false => u64::from_str_radix(text, 16)
            .map_err(|error| reason(text, &error).replace("ParseInt", "ParseUint")),
    }
}

pub fn parse_decimal(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error| reason(text, &error))
}

fn reason(text: &str, error: &ParseIntError) -> String {
    let what = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.ParseInt: parsing {}: {what}", quote(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal_and_may_have_a_sign() {
        for (text, id) in [("0", 0), ("7fffffffffffffff", i64::MAX), ("-1", -1), ("+1F", 31), ("00a", 10)] {
            assert_eq!(parse_hex(text), Ok(id), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_from_what_is_too_large_a_one() {
        for (text, what) in [
            ("", "\"\": invalid syntax"),
            ("0x1", "\"0x1\": invalid syntax"),
            ("a\"b", "\"a\\\"b\": invalid syntax"),
            ("8000000000000000", "\"8000000000000000\": value out of range"),
        ] {
            assert_eq!(parse_hex(text), Err(format!("strconv.ParseInt: parsing {what}")));
        }
        assert_eq!(
            parse_decimal("99999999999999999999"),
            Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned())
        );
        assert_eq!(parse_decimal("-5"), Ok(-5));
    }
}
