//! Strings as the headers of HTTP/2 shorten them (RFC 7541, appendix B), as far as hosts are spelt with them.
//!
//! The code is canonical: among those of one length, the codes count up in the order of their characters.

/// Length in bits, the first code of that length, and the characters that have one. Those with longer codes
/// are in no host, no URL and no path that anybody has.
const CODES: &[(u32, u32, &[u8])] = &[
    (5, 0x0, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, b"&*,;XZ"),
    (10, 0x3f8, b"!\"()?"),
    (11, 0x7fa, b"'+|"),
    (12, 0xffa, b"#>"),
    (13, 0x1ff8, b"\0$@[]~"),
    (14, 0x3ffc, b"^}"),
    (15, 0x7ffc, b"<`{"),
];

const LONGEST: u32 = 15;

/// The string itself, unless it holds a character that is not among [`CODES`], or ends within one.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(coded.len() * 8 / 5);
    let (mut code, mut length) = (0, 0);
    for bit in coded.iter().flat_map(|byte| (0..8).rev().map(move |shift| u32::from(byte >> shift & 1))) {
        code = code << 1 | bit;
        length += 1;
        if let Some(character) = character(code, length) {
            text.push(character);
            (code, length) = (0, 0);
        } else if LONGEST <= length {
            return None;
        }
    }
    // What is left of the last byte is filled with ones.
    (length < 8 && code == (1 << length) - 1).then_some(text)
}

fn character(code: u32, length: u32) -> Option<u8> {
    let (_, first, characters) = CODES.iter().find(|(of_length, ..)| *of_length == length)?;
    characters.get(usize::try_from(code.checked_sub(*first)?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&host).as_deref(), Some(b"www.example.com".as_slice()));
        assert_eq!(decode(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).as_deref(), Some(b"no-cache".as_slice()));
        assert_eq!(decode(&[]).as_deref(), Some(b"".as_slice()));
    }

    #[test]
    fn what_does_not_end_as_it_should_is_not_read() {
        // A zero where ones fill the byte; a whole byte of filling; a code that is longer than any here.
        assert_eq!(decode(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbe]), None);
        assert_eq!(decode(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf, 0xff]), None);
        assert_eq!(decode(&[0xff; 4]), None);
    }

    #[test]
    fn no_code_begins_another() {
        let codes: Vec<(u32, u32)> = CODES
            .iter()
            .flat_map(|(length, first, characters)| {
                (0..).zip(*characters).map(move |(nth, _)| (*length, first + nth))
            })
            .collect();
        for (length, code) in &codes {
            let begun =
                codes.iter().filter(|(longer, other)| length < longer && other >> (longer - length) == *code);
            assert_eq!(begun.count(), 0, "{code:#x} of {length} bits");
        }
    }
}
