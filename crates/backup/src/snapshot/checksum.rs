//! The SHA-256 that ends a snapshot, taken as its bytes go by.

use sha2::{Digest, Sha256};

pub const CHECKSUM_BYTES: usize = 32;

/// Takes a stream in pieces of any size and tells, at its end, whether it closes with the checksum of
/// what came before. It cannot know which bytes are the last 32 until there are no more, so it holds
/// that many back.
#[derive(Clone, Default)]
pub struct Checksum {
    hash: Sha256,
    held: Vec<u8>,
    taken: u64,
}

impl Checksum {
    pub fn update(&mut self, bytes: &[u8]) {
        self.taken += bytes.len() as u64;
        self.held.extend_from_slice(bytes);
        let safe = self.held.len().saturating_sub(CHECKSUM_BYTES);
        self.hash.update(&self.held[..safe]);
        self.held.drain(..safe);
    }

    /// Bytes seen so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The checksum that the bytes should close with, and the one that they do.
    pub fn of_stream(self) -> ([u8; CHECKSUM_BYTES], Vec<u8>) {
        (self.hash.finalize().into(), self.held)
    }

    /// The checksum of every byte.
    pub fn of_all(mut self) -> [u8; CHECKSUM_BYTES] {
        self.hash.update(&self.held);
        self.hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_sum() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut whole = Checksum::default();
        whole.update(&text);
        let sum = whole.of_all();
        for piece in [1, 31, 32, 33, 999] {
            let mut stream = Checksum::default();
            for bytes in [text.as_slice(), &sum].concat().chunks(piece) {
                stream.update(bytes);
            }
            assert_eq!(stream.taken(), 1032);
            let (expected, found) = stream.of_stream();
            assert_eq!((expected, found), (sum, sum.to_vec()), "pieces of {piece}");
        }
    }
}
