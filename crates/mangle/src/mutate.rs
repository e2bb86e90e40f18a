//! One change to some bytes.

use rand::Rng;
use rand::rngs::StdRng;

/// No input grows beyond this by mutation.
const BYTES_MAX: usize = 1 << 16;

/// Numbers at which counters, lengths and varints go wrong.
const EDGES: [u64; 9] = [0, 1, 0x7f, 0x80, u32::MAX as u64, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

/// Bytes without a plan.
pub fn noise(random: &mut StdRng) -> Vec<u8> {
    let len = if random.random() { random.random_range(0..16) } else { random.random_range(0..300) };
    (0..len).map(|_| random.random()).collect()
}

/// Changes `input` in one way; `other` is another good sample.
pub fn once(random: &mut StdRng, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.random_range(0..=input.len());
    let end = random.random_range(at..=input.len());
    match random.random_range(0..9) {
        0 => flip(random, input),
        1 => input.truncate(at),
        2 => drop(input.drain(at..end)),
        3 => repeat(input, at, end),
        4 => drop(input.splice(at..end, part(random, other))),
        5 => drop(input.splice(at..at, noise(random))),
        6 => overwrite(input, at, &number(random)),
        7 => overwrite(input, at, &varint(random)),
        _ => overwrite(input, at, &[random.random()]),
    }
}

fn flip(random: &mut StdRng, input: &mut [u8]) {
    if !input.is_empty() {
        let bit = random.random_range(0..input.len() * 8);
        input[bit / 8] ^= 1 << (bit % 8);
    }
}

fn repeat(input: &mut Vec<u8>, at: usize, end: usize) {
    if input.len() + (end - at) <= BYTES_MAX {
        let again = input[at..end].to_vec();
        input.splice(end..end, again);
    }
}

fn part(random: &mut StdRng, other: &[u8]) -> Vec<u8> {
    let at = random.random_range(0..=other.len());
    other[at..random.random_range(at..=other.len())].to_vec()
}

/// Four or eight bytes, in either order.
fn number(random: &mut StdRng) -> Vec<u8> {
    let value = EDGES[random.random_range(0..EDGES.len())];
    match random.random_range(0..4) {
        0 => value.to_le_bytes().to_vec(),
        1 => value.to_be_bytes().to_vec(),
        2 => (value as u32).to_le_bytes().to_vec(),
        _ => (value as u32).to_be_bytes().to_vec(),
    }
}

/// As protobuf writes numbers and lengths.
fn varint(random: &mut StdRng) -> Vec<u8> {
    let mut value = EDGES[random.random_range(0..EDGES.len())];
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn overwrite(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = input.len().min(at + bytes.len());
    input.splice(at..end, bytes.iter().copied());
}
