//! The small hot set of keys, values and ranges that make requests meet one another.
//!
//! Few keys, so that puts, deletes, transactions and old reads touch the same ones; awkward bytes,
//! so that every place which might treat a key as text, or zero and 0xff as special, is visited.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::DeleteRangeRequest;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

const KEYS: &[&[u8]] = &[
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\x00\x00",
    b"a\x00b",
    b"a\x01",
    b"a\xff",
    b"a\xff\xff",
    b"aa",
    b"ab",
    b"ab/c",
    b"ab/d",
    b"b",
    b"k/1",
    b"k/10",
    b"k/2",
    b"k/3",
    "schl\u{fc}ssel".as_bytes(),
    "\u{6771}\u{4eac}".as_bytes(),
    b"\xc3",
    b"\xfe\xff",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
];

/// Few values, some equal, so that sorting by value meets ties.
const VALUES: &[&[u8]] = &[b"", b"\x00", b"1", b"2", b"2", b"10", b"\xff", b"\xff\xff", "\u{e9}".as_bytes()];

/// A key of the hot set.
pub fn key(random: &mut StdRng) -> Bytes {
    Bytes::from_static(KEYS.choose(random).expect("the set is not empty"))
}

/// A value, usually one of a few.
pub fn value(random: &mut StdRng) -> Bytes {
    if random.random_ratio(1, 4) {
        let length = random.random_range(0..40);
        return (0..length).map(|_| random.random::<u8>()).collect::<Vec<u8>>().into();
    }
    Bytes::from_static(VALUES.choose(random).expect("the set is not empty"))
}

/// A key and a range end: every way to name a range, empty and inverted ones included.
pub fn range(random: &mut StdRng) -> (Bytes, Bytes) {
    match random.random_range(0..12) {
        0..=4 => (key(random), Bytes::new()),
        5 | 6 => {
            let (one, other) = (key(random), key(random));
            if one <= other { (one, other) } else { (other, one) }
        }
        7 => {
            let prefix = key(random);
            let end = prefix_end(&prefix);
            (prefix, end)
        }
        8 => (key(random), Bytes::from_static(b"\0")),
        9 => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        10 => (key(random), key(random)),
        _ => {
            let (one, other) = (key(random), key(random));
            if one <= other { (other, one) } else { (one, other) }
        }
    }
}

/// A deletion. Whole stores are deleted rarely, or every read would find nothing.
pub fn deletion(random: &mut StdRng) -> DeleteRangeRequest {
    let (key, range_end) = loop {
        let (key, range_end) = range(random);
        if range_end.is_empty() || random.random_ratio(1, 6) {
            break (key, range_end);
        }
    };
    DeleteRangeRequest { key, range_end, prev_kv: random.random() }
}

/// The end of the range of keys that start with a prefix.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff);
    match kept {
        None => Bytes::from_static(b"\0"),
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_raisable_byte_is_raised() {
        assert_eq!(prefix_end(b"ab"), Bytes::from_static(b"ac"));
        assert_eq!(prefix_end(b"a\xff"), Bytes::from_static(b"b"));
        assert_eq!(prefix_end(b"\xff\xff"), Bytes::from_static(b"\0"));
    }
}
