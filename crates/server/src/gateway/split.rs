//! Cuts a body into the JSON values that it is made of, as they arrive.
//!
//! A value is cut out as soon as its last byte is there, so that what a client asks on an open stream is
//! asked at once. At most `bytes_max` bytes are ever kept for one value.

use super::Malformed;
use bytes::{Buf, Bytes, BytesMut};
use serde_json::Value;

pub(super) struct Split {
    buffer: BytesMut,
    bytes_max: usize,
    /// Bytes of the buffer that were looked at.
    seen: usize,
    inside: Inside,
    ended: bool,
}

/// Where in a value the first unseen byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// Before it.
    Nothing,
    /// A number, or one of the three words.
    Word,
    /// Brackets that are open, and whether a text is, and whether the byte before was a backslash.
    Brackets { depth: usize, text: bool, escaped: bool },
}

impl Split {
    pub(super) fn new(bytes_max: usize) -> Split {
        Split { buffer: BytesMut::new(), bytes_max, seen: 0, inside: Inside::Nothing, ended: false }
    }

    pub(super) fn push(&mut self, bytes: &Bytes) {
        self.buffer.extend_from_slice(bytes);
    }

    /// There will be no more bytes.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// The next value, if all of it is there. `None` after the end means that there is none.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Malformed> {
        while self.seen < self.buffer.len() {
            if matches!(self.inside, Inside::Brackets { text: true, escaped: false, .. }) {
                // Values are long texts of base64: nothing happens in them until they end.
                let rest = &self.buffer[self.seen..];
                let skipped = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                self.seen += skipped.unwrap_or(rest.len());
            }
            let Some(&byte) = self.buffer.get(self.seen) else { break };
            if self.inside == Inside::Nothing && byte.is_ascii_whitespace() {
                self.buffer.advance(self.seen + 1);
                self.seen = 0;
                continue;
            }
            let (inside, cut) = step(self.inside, byte);
            self.inside = inside;
            match cut {
                Cut::No => self.seen += 1,
                Cut::After => return self.cut(self.seen + 1).map(Some),
                Cut::Before => return self.cut(self.seen).map(Some),
            }
        }
        match self.inside {
            _ if self.bytes_max < self.buffer.len() => {
                Err(Malformed::too_large(self.buffer.len(), self.bytes_max))
            }
            Inside::Nothing => Ok(None),
            _ if !self.ended => Ok(None),
            Inside::Word => self.cut(self.buffer.len()).map(Some),
            Inside::Brackets { .. } => Err(Malformed::new("unexpected EOF".to_owned())),
        }
    }

    fn cut(&mut self, length: usize) -> Result<Value, Malformed> {
        let value = self.buffer.split_to(length);
        (self.seen, self.inside) = (0, Inside::Nothing);
        if self.bytes_max < length {
            return Err(Malformed::too_large(length, self.bytes_max));
        }
        serde_json::from_slice(&value).map_err(|error| Malformed::new(error.to_string()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    No,
    /// The value ends with this byte.
    After,
    /// The value ended with the byte before.
    Before,
}

fn step(inside: Inside, byte: u8) -> (Inside, Cut) {
    let brackets = |depth, text, escaped| (Inside::Brackets { depth, text, escaped }, Cut::No);
    match (inside, byte) {
        (Inside::Nothing, b'{' | b'[') => brackets(1, false, false),
        (Inside::Nothing, b'"') => brackets(0, true, false),
        (Inside::Nothing, _) => (Inside::Word, Cut::No),
        (Inside::Word, b'{' | b'[' | b'"' | b' ' | b'\t' | b'\r' | b'\n') => (Inside::Nothing, Cut::Before),
        (Inside::Word, _) => (Inside::Word, Cut::No),
        (Inside::Brackets { depth, text: true, escaped: true }, _) => brackets(depth, true, false),
        (Inside::Brackets { depth, text: true, .. }, b'\\') => brackets(depth, true, true),
        (Inside::Brackets { depth: 0, text: true, .. }, b'"') => (Inside::Nothing, Cut::After),
        (Inside::Brackets { depth, text: true, .. }, b'"') => brackets(depth, false, false),
        (Inside::Brackets { depth, text: true, .. }, _) => brackets(depth, true, false),
        (Inside::Brackets { depth, .. }, b'"') => brackets(depth, true, false),
        (Inside::Brackets { depth, .. }, b'{' | b'[') => brackets(depth + 1, false, false),
        (Inside::Brackets { depth: 0 | 1, .. }, b'}' | b']') => (Inside::Nothing, Cut::After),
        (Inside::Brackets { depth, .. }, b'}' | b']') => brackets(depth - 1, false, false),
        (Inside::Brackets { depth, .. }, _) => brackets(depth, false, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a text that arrives in pieces of `size`, and whether it ended badly.
    fn values(text: &str, size: usize) -> (Vec<String>, bool) {
        let mut split = Split::new(40);
        let mut found = Vec::new();
        let mut pieces = text.as_bytes().chunks(size);
        loop {
            match split.next() {
                Ok(Some(value)) => found.push(value.to_string()),
                Ok(None) => match pieces.next() {
                    Some(piece) => split.push(&Bytes::copy_from_slice(piece)),
                    None if split.ended => return (found, false),
                    None => split.end(),
                },
                Err(_) => return (found, true),
            }
        }
    }

    #[test]
    fn values_are_cut_where_they_end_however_they_arrive() {
        let cases: &[(&str, &[&str], bool)] = &[
            ("", &[], false),
            (" \n ", &[], false),
            ("{}", &["{}"], false),
            (r#"{"a":"}{\"["}[1,{"b":2}] null"#, &[r#"{"a":"}{\"["}"#, r#"[1,{"b":2}]"#, "null"], false),
            ("1 true{}", &["1", "true", "{}"], false),
            (r#""a\\""b""#, &[r#""a\\""#, r#""b""#], false),
            ("{}{", &["{}"], true),
            ("{]", &[], true),
            ("}", &[], true),
            ("x", &[], true),
            (r#"{"a":"0123456789012345678901234567890123456789"}"#, &[], true),
        ];
        for (text, expected, badly) in cases {
            for size in [1, 2, 3, 100] {
                let (found, ended_badly) = values(text, size);
                assert_eq!(
                    (found.as_slice(), ended_badly),
                    (&expected.map_to_strings()[..], *badly),
                    "{text}"
                );
            }
        }
    }

    trait MapToStrings {
        fn map_to_strings(&self) -> Vec<String>;
    }

    impl MapToStrings for &[&str] {
        fn map_to_strings(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn deep_nesting_is_refused_and_not_recursed_into() {
        let mut split = Split::new(1 << 20);
        split.push(&Bytes::from(vec![b'['; 100_000]));
        split.push(&Bytes::from(vec![b']'; 100_000]));
        assert!(split.next().is_err());
    }
}
