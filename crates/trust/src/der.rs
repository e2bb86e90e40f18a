//! The encoding that certificates have, as far as it is read here: one element after the other.
//!
//! Never panics, whatever the bytes.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BITS: u8 = 0x03;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OBJECT_ID: u8 = 0x06;
pub(crate) const BMP_STRING: u8 = 0x1e;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// One element after the other: tag and content. Ends at the first that is malformed.
pub(crate) struct Elements<'d>(pub(crate) &'d [u8]);

impl<'d> Elements<'d> {
    /// The next with its whole encoding: tag, content, all of it.
    pub(crate) fn next_whole(&mut self) -> Option<(u8, &'d [u8], &'d [u8])> {
        let before = self.0;
        let (&tag, rest) = before.split_first()?;
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content, &before[..before.len() - rest.len()]))
    }
}

impl<'d> Iterator for Elements<'d> {
    type Item = (u8, &'d [u8]);

    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        self.next_whole().map(|(tag, content, _)| (tag, content))
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((usize::from(first), rest));
    }
    let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    if digits.is_empty() || size_of::<u32>() < digits.len() {
        return None;
    }
    Some((digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest))
}

/// An element of that tag and content, in the shortest form, which is the only one allowed.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut made = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => made.push(short),
        _ => {
            let digits = content.len().to_be_bytes();
            let zeros = digits.iter().take_while(|digit| **digit == 0).count();
            // At most eight digits.
            made.push(0x80 | (digits.len() - zeros) as u8);
            made.extend_from_slice(&digits[zeros..]);
        }
    }
    made.extend_from_slice(content);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_back() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7_u8; length];
            let made = element(SEQUENCE, &content);
            let mut elements = Elements(&made);
            assert_eq!(elements.next_whole(), Some((SEQUENCE, &content[..], &made[..])), "{length}");
            assert_eq!(elements.next(), None);
        }
    }
}
