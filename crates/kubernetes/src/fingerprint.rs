//! A short name for some content: the same bytes have the same name on every member.
//!
//! FNV-1a over 128 bits. It tells content apart for caches (ETags, `?hash=`); it keeps no secret and
//! withstands no attacker, who could only confuse a cache of a document that he wrote himself.

use std::fmt;

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

#[derive(Clone, Debug)]
pub struct Fingerprint(u128);

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint(OFFSET)
    }
}

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(bytes);
        fingerprint
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

/// In hexadecimal.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032X}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_of_the_function() {
        assert_eq!(Fingerprint::of(b"").to_string(), "6C62272E07BB014262B821756295C58D");
        assert_eq!(Fingerprint::of(b"a").to_string(), "D228CB696F1A8CAF78912B704E4A8964");
    }

    #[test]
    fn pieces_count_as_one() {
        let mut pieces = Fingerprint::of(b"ab");
        pieces.add(b"c");
        assert_eq!(pieces.to_string(), Fingerprint::of(b"abc").to_string());
    }
}
