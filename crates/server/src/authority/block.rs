//! Finds the `:authority` that a frame of headers spells out, and puts a name in its place if it is no host.
//!
//! Headers come shortened (RFC 7541): by their number in a table that both ends keep, or as a name and a
//! value of which either may be such a number. Only what is spelt out is looked at: what comes by number was
//! spelt out before, and put right then. Of a block that goes on in further frames the first one counts,
//! which is where clients put it.

use super::frames::HEAD_BYTES;
use super::{FRAME_BYTES, huffman};
use http::uri::Authority;
use std::ops::Range;

const NAME: &[u8] = b":authority";
const NAME_SHORTENED: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];

/// The number of that name in the table that every connection begins with.
const NAME_NUMBER: usize = 1;

const PADDED: u8 = 0x08;
const WITH_PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// The frame with a host, if it spells out an `:authority` that is none.
pub(super) fn with_a_host(frame: &[u8]) -> Option<Vec<u8>> {
    let block = block_of(frame)?;
    let (value, text) = Reader { bytes: &frame[..block.end], at: block.start }.authority()?;
    let host = host_for(&text)?;
    let mut mended = frame[..value.start].to_vec();
    push_string(&mut mended, &host);
    mended.extend_from_slice(&frame[value.end..]);
    let length = mended.len() - HEAD_BYTES;
    if FRAME_BYTES < length {
        return None;
    }
    mended[..3].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes()[1..]);
    Some(mended)
}

/// Where in a frame its headers are.
fn block_of(frame: &[u8]) -> Option<Range<usize>> {
    let flags = *frame.get(4)?;
    let (mut start, mut end) = (HEAD_BYTES, frame.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    if flags & WITH_PRIORITY != 0 {
        start += PRIORITY_BYTES;
    }
    (start <= end).then_some(start..end)
}

/// A name just as long; nothing, if it is a host already, or says nothing at all.
fn host_for(text: &[u8]) -> Option<Vec<u8>> {
    let is_fine = text.is_empty() || Authority::try_from(text).is_ok();
    (!is_fine).then(|| vec![b'x'; text.len()])
}

/// Spelt out as it is.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    const ALL_ONES: usize = 0x7f;
    let Some(mut rest) = text.len().checked_sub(ALL_ONES) else {
        out.push(u8::try_from(text.len()).unwrap_or(0));
        out.extend_from_slice(text);
        return;
    };
    out.push(0x7f);
    while 0x80 <= rest {
        out.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap_or(0));
    out.extend_from_slice(text);
}

/// Goes through the headers of a block. Nothing comes of one that is malformed: the library that reads it
/// next says so.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Where the first `:authority` has its value, and what that says.
    fn authority(mut self) -> Option<(Range<usize>, Vec<u8>)> {
        while let Some(&first) = self.bytes.get(self.at) {
            let bits = match first {
                // Both by one number; and a new size for the table.
                0x80.. => {
                    self.number(7)?;
                    continue;
                }
                0x20..0x40 => {
                    self.number(5)?;
                    continue;
                }
                0x40..0x80 => 6,
                0x00..0x20 => 4,
            };
            let is_authority = match self.number(bits)? {
                0 => {
                    let (name, shortened) = self.string()?;
                    name == if shortened { NAME_SHORTENED } else { NAME }
                }
                number => number == NAME_NUMBER,
            };
            let start = self.at;
            let (value, shortened) = self.string()?;
            if is_authority {
                let text = if shortened { huffman::decode(value)? } else { value.to_vec() };
                return Some((start..self.at, text));
            }
        }
        None
    }

    /// A number that begins in the last bits of a byte, and goes on behind it if these are all ones.
    fn number(&mut self, bits: u32) -> Option<usize> {
        /// More than any length or number within a frame has.
        const FURTHER_BYTES: u32 = 3;
        let all_ones = (1_usize << bits) - 1;
        let mut number = usize::from(self.byte()?) & all_ones;
        if number < all_ones {
            return Some(number);
        }
        for further in 0..FURTHER_BYTES {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << (7 * further);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A string as it is written, and whether it is shortened.
    fn string(&mut self) -> Option<(&'a [u8], bool)> {
        let shortened = self.bytes.get(self.at)? & 0x80 != 0;
        let length = self.number(7)?;
        let string = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some((string, shortened))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const URL_SHORTENED: &[u8] =
        &[0x9d, 0x29, 0xae, 0xe3, 0x0c, 0x04, 0x4e, 0xae, 0x05, 0xc0, 0xb8, 0x6e, 0x09, 0x97, 0x5f];

    /// A frame of headers, its stream the first.
    pub(in super::super) fn frame(flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([1, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// `:method POST` and `:scheme http` by number, then this as a header to remember, then one more.
    pub(in super::super) fn headers(authority: &[u8]) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x41];
        push_string(&mut block, authority);
        block.extend(b"\x40\x02te\x08trailers");
        block
    }

    #[test]
    fn hosts_stay_and_what_is_none_becomes_one_of_the_same_length() {
        let long = vec![b'/'; 500];
        let table: &[(&[u8], bool)] = &[
            (b"127.0.0.1:2379", true),
            (b"localhost", true),
            (b"[::1]:2379", true),
            (b"", true),
            (b"http://127.0.0.1:2379", false),
            (b"https://m1.example:2379/", false),
            (b"https://m1.example/a/path/of/many/parts", false),
            (b"/run/m.sock", false),
            (b"http://", false),
            (&long, false),
        ];
        for (given, is_host) in table {
            let name = String::from_utf8_lossy(given);
            let mended = with_a_host(&frame(4, &headers(given)));
            assert_eq!(mended.is_none(), *is_host, "{name}");
            let Some(mended) = mended else { continue };
            let (_, host) = Reader { bytes: &mended, at: HEAD_BYTES }.authority().expect("one is there");
            assert_eq!(host.len(), given.len(), "as long as {name}");
            assert!(Authority::try_from(host.as_slice()).is_ok(), "a host for {name}");
            assert_eq!(mended, frame(4, &headers(&host)), "nothing else than {name}");
        }
    }

    #[test]
    fn it_is_found_however_it_is_written() {
        let shortened = [&[0x0f], URL_SHORTENED].concat();
        assert_eq!(huffman::decode(NAME_SHORTENED).as_deref(), Some(NAME));
        let length = 0x80 | u8::try_from(URL_SHORTENED.len()).expect("short");
        let value = [&[length], URL_SHORTENED].concat();
        let host = b"\x15xxxxxxxxxxxxxxxxxxxxx";
        assert_eq!(huffman::decode(URL_SHORTENED).map(|url| url.len()), Some(host.len() - 1));
        // To remember, not to, and never to; the name by number, as it is, and shortened.
        for name in [
            b"\x41".to_vec(),
            b"\x01".to_vec(),
            b"\x11".to_vec(),
            [b"\x40\x0a", NAME].concat(),
            [b"\x00\x88", NAME_SHORTENED].concat(),
        ] {
            let before = b"\x82\x3f\xe1\x1f\x44\x02/a".as_slice();
            let given = [before, &name, &value, b"\xbe"].concat();
            let expected = [before, &name, host, b"\xbe"].concat();
            assert_eq!(with_a_host(&frame(4, &given)), Some(frame(4, &expected)), "{name:x?}");
            // With priority, and with padding.
            let framed = |block: &[u8]| [b"\x03\0\0\0\0\x10", block, b"\0\0\0"].concat();
            let padded = with_a_host(&frame(4 | PADDED | WITH_PRIORITY, &framed(&given)));
            assert_eq!(padded, Some(frame(4 | PADDED | WITH_PRIORITY, &framed(&expected))), "{name:x?}");
        }
        assert_eq!(with_a_host(&frame(4, &shortened)), None, "another header than that one");
    }

    #[test]
    fn what_is_malformed_is_left_to_who_reads_it_next() {
        let whole = frame(4, &headers(b"http://127.0.0.1:2379"));
        assert!(with_a_host(&whole).is_some());
        for length in 0..HEAD_BYTES + 3 + 1 + 21 {
            assert_eq!(with_a_host(&whole[..length]), None, "{length} bytes of it");
        }
        for payload in
            [b"\x41\xff\xff\xff\xff\xff".as_slice(), b"\x41\x7f\xff\xff\x7f", b"\x41\x84\xff\xff\xff\xff"]
        {
            assert_eq!(with_a_host(&frame(4, payload)), None, "{payload:x?}");
        }
        assert_eq!(with_a_host(&frame(4 | PADDED, b"\xff")), None);
    }
}
