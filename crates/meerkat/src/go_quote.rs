//! Byte strings between double quotes, as Go's `%q` writes and reads them.
//!
//! What is written can be read back, whatever the bytes. Reading takes a quoted string from the
//! front of a text and gives the rest back, so that it fits into any grammar.

/// The quoted form of bytes: printable text as it is, the rest escaped.
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_char(&mut quoted, c));
        chunk.invalid().iter().for_each(|byte| quoted.push_str(&format!("\\x{byte:02x}")));
    }
    quoted.push('"');
    quoted
}

fn push_char(quoted: &mut String, c: char) {
    match c {
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        '\x07' => quoted.push_str("\\a"),
        '\x08' => quoted.push_str("\\b"),
        '\x0c' => quoted.push_str("\\f"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        '\x0b' => quoted.push_str("\\v"),
        c if c < ' ' || c == '\x7f' => quoted.push_str(&format!("\\x{:02x}", c as u32)),
        c if is_printable(c) => quoted.push(c),
        c if (c as u32) < 0x1_0000 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
        c => quoted.push_str(&format!("\\U{:08x}", c as u32)),
    }
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space. The standard library knows,
/// but says so only by what it escapes; a mark is left alone after a letter.
fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && !format!("a{c}").escape_debug().any(|c| c == '\\'))
}

/// Reads one quoted string from the front of `text`, and gives it back with what follows it.
pub fn unquote_front(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut bytes = Vec::new();
    loop {
        match rest {
            [b'"', tail @ ..] => return Some((bytes, tail)),
            [b'\\', tail @ ..] => rest = unescape_front(tail, &mut bytes)?,
            [byte, tail @ ..] => {
                bytes.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

/// Reads what follows a backslash.
fn unescape_front<'t>(text: &'t [u8], bytes: &mut Vec<u8>) -> Option<&'t [u8]> {
    let (kind, tail) = text.split_first()?;
    let plain = match kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' | b'"' | b'\'' => *kind,
        b'x' => return push_byte(digits(tail, 2, 16)?, bytes),
        b'0'..=b'7' => return push_byte(digits(text, 3, 8)?, bytes),
        b'u' => return push_scalar(digits(tail, 4, 16)?, bytes),
        b'U' => return push_scalar(digits(tail, 8, 16)?, bytes),
        _ => return None,
    };
    bytes.push(plain);
    Some(tail)
}

fn digits(text: &[u8], count: usize, radix: u32) -> Option<(u32, &[u8])> {
    let (digits, tail) = text.split_at_checked(count)?;
    if digits.iter().any(|digit| !(*digit as char).is_digit(radix)) {
        return None;
    }
    let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?;
    Some((number, tail))
}

fn push_byte<'t>((number, tail): (u32, &'t [u8]), bytes: &mut Vec<u8>) -> Option<&'t [u8]> {
    bytes.push(u8::try_from(number).ok()?);
    Some(tail)
}

fn push_scalar<'t>((number, tail): (u32, &'t [u8]), bytes: &mut Vec<u8>) -> Option<&'t [u8]> {
    let scalar = char::from_u32(number)?;
    bytes.extend_from_slice(scalar.encode_utf8(&mut [0; 4]).as_bytes());
    Some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quoted_as_in_go() {
        let rows: [(&[u8], &str); 8] = [
            (b"foo", r#""foo""#),
            (b"bin\xfe", r#""bin\xfe""#),
            (b"a\x00\xffb", r#""a\x00\xffb""#),
            ("zü\"\\n\n".as_bytes(), r#""zü\"\\n\n""#),
            ("\u{feff}\u{200b}".as_bytes(), r#""\ufeff\u200b""#),
            ("e\u{301}\u{a0}".as_bytes(), "\"e\u{301}\\u00a0\""),
            (b"\x07\x08\x0c\x0b\r\t\x7f", r#""\a\b\f\v\r\t\x7f""#),
            (b"", r#""""#),
        ];
        for (bytes, expected) in rows {
            assert_eq!(quote(bytes), expected);
        }
    }

    #[test]
    fn what_is_quoted_reads_back_byte_for_byte() {
        let every_byte: Vec<u8> = (0..=255).collect();
        for bytes in [&every_byte[..], "ü\u{10ffff}\u{1f600}".as_bytes(), b"\"\\\""] {
            let quoted = quote(bytes);
            assert_eq!(unquote_front(quoted.as_bytes()), Some((bytes.to_vec(), &b""[..])));
        }
    }

    #[test]
    fn reading_stops_at_the_closing_quote() {
        assert_eq!(unquote_front(br#""a\"b") > "0""#), Some((b"a\"b".to_vec(), &br#") > "0""#[..])));
        assert_eq!(unquote_front(br#""\101\u00fc""#), Some(("Aü".as_bytes().to_vec(), &b""[..])));
    }

    #[test]
    fn what_is_not_quoted_is_not_read() {
        for text in [&b"abc"[..], b"\"abc", b"\"\\q\"", b"\"\\x4\"", b"\"\\ud800\"", b""] {
            assert_eq!(unquote_front(text), None, "{text:?}");
        }
    }
}
