//! A set of keys as intervals in ascending order that neither overlap nor touch.
//!
//! So whether a range is wholly inside is one search: it must lie in a single interval, since two
//! that together cover it would have been made one.

use bytes::Bytes;
use meerkat_types::KeyRange;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet {
    intervals: Vec<Interval>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    first: Bytes,
    /// `None`: all keys from `first` on.
    end: Option<Bytes>,
}

impl KeySet {
    pub(crate) fn of<'a>(ranges: impl Iterator<Item = &'a KeyRange>) -> KeySet {
        let mut all: Vec<Interval> = ranges
            .filter(|range| !range.is_empty())
            .map(|range| Interval { first: range.first().bytes().clone(), end: range.end() })
            .collect();
        all.sort_unstable_by(|a, b| a.first.cmp(&b.first));
        let mut intervals: Vec<Interval> = Vec::with_capacity(all.len());
        for next in all {
            match intervals.last_mut() {
                Some(last) if reaches(last.end.as_ref(), &next.first) => {
                    if !ends_by(next.end.as_ref(), last.end.as_ref()) {
                        last.end = next.end;
                    }
                }
                _ => intervals.push(next),
            }
        }
        KeySet { intervals }
    }

    /// Whether every key of the range is in the set. A range without keys counts as its first.
    pub(crate) fn covers(&self, range: &KeyRange) -> bool {
        let first = range.first().as_bytes();
        let behind = self.intervals.partition_point(|interval| interval.first.as_ref() <= first);
        let Some(interval) = behind.checked_sub(1).map(|at| &self.intervals[at]) else { return false };
        if range.is_empty() || matches!(range, KeyRange::One(_)) {
            return interval.end.as_ref().is_none_or(|end| first < end.as_ref());
        }
        ends_by(range.end().as_ref(), interval.end.as_ref())
    }

    pub(crate) fn covers_key(&self, key: &[u8]) -> bool {
        let behind = self.intervals.partition_point(|interval| interval.first.as_ref() <= key);
        behind
            .checked_sub(1)
            .is_some_and(|at| self.intervals[at].end.as_ref().is_none_or(|end| key < end.as_ref()))
    }
}

/// Whether an interval with this end overlaps or touches one that begins at `first`.
fn reaches(end: Option<&Bytes>, first: &Bytes) -> bool {
    end.is_none_or(|end| first <= end)
}

/// Whether `end` is not above `bound`.
fn ends_by(end: Option<&Bytes>, bound: Option<&Bytes>) -> bool {
    match (end, bound) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(end), Some(bound)) => end <= bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::Key;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// A key and a range's end.
    type Wire<'a> = (&'a [u8], &'a [u8]);

    fn range(first: &'static [u8], end: &'static [u8]) -> KeyRange {
        KeyRange::from_wire(Key::new(Bytes::from_static(first)).expect("key"), Bytes::from_static(end))
    }

    #[test]
    fn a_range_is_covered_only_as_a_whole() {
        let (one, open) = (&b""[..], &b"\0"[..]);
        // Granted; asked; covered.
        let table: &[(&[Wire<'_>], Wire<'_>, bool)] = &[
            (&[], (b"a", one), false),
            (&[(b"a", one)], (b"a", one), true),
            (&[(b"a", one)], (b"b", one), false),
            (&[(b"a", one)], (b"a", b"b"), false),
            (&[(b"a", one)], (b"a", open), false),
            (&[(b"a", one)], (b"a", b"a\0"), true),
            (&[(b"a", b"c")], (b"b", one), true),
            (&[(b"a", b"c")], (b"c", one), false),
            (&[(b"a", b"c")], (b"b", b"d"), false),
            // Neighbours are one.
            (&[(b"a", b"c"), (b"c", b"e")], (b"a", b"e"), true),
            (&[(b"a", b"c"), (b"d", b"e")], (b"a", b"e"), false),
            (&[(b"a", one), (b"a\0", b"b")], (b"a", b"b"), true),
            (&[(b"a", b"e"), (b"b", b"c")], (b"a", b"e"), true),
            (&[(b"b", open)], (b"c", open), true),
            (&[(b"b", open)], (b"a", open), false),
            (&[(b"b", b"c")], (b"b", open), false),
            (&[(b"\0", open)], (b"\0", open), true),
            // A range without keys counts as its first.
            (&[(b"a", b"c")], (b"b", b"a"), true),
            (&[(b"a", b"c")], (b"d", b"a"), false),
        ];
        for (granted, (first, end), covered) in table {
            let granted: Vec<KeyRange> = granted.iter().map(|(first, end)| range(first, end)).collect();
            let asked = range(first, end);
            assert_eq!(KeySet::of(granted.iter()).covers(&asked), *covered, "{granted:?} {asked:?}");
        }
    }

    /// Keys of one or two letters out of three: every boundary is met often.
    fn any_key(random: &mut StdRng) -> Vec<u8> {
        (0..random.random_range(1..3)).map(|_| b"abc"[random.random_range(0..3)]).collect()
    }

    fn any_range(random: &mut StdRng) -> KeyRange {
        let first = Key::new(any_key(random).into()).expect("not empty");
        match random.random_range(0..4) {
            0 => KeyRange::One(first),
            1 => KeyRange::From(first),
            _ => KeyRange::Span { first, end: any_key(random).into() },
        }
    }

    /// Every key that can tell two sets apart which are made of the keys above.
    fn all_keys() -> Vec<Vec<u8>> {
        let letters = [0, b'a', b'b', b'c', b'd'];
        let mut keys: Vec<Vec<u8>> = letters.iter().map(|letter| vec![*letter]).collect();
        for a in letters {
            keys.extend(letters.iter().map(|b| vec![a, *b]));
            keys.extend(letters.iter().flat_map(|b| letters.iter().map(move |c| vec![a, *b, *c])));
        }
        keys
    }

    #[test]
    fn merged_intervals_hold_what_the_ranges_hold_one_by_one() {
        let mut random = StdRng::seed_from_u64(7);
        let keys = all_keys();
        for _ in 0..3_000 {
            let granted: Vec<KeyRange> =
                (0..random.random_range(0..5)).map(|_| any_range(&mut random)).collect();
            let set = KeySet::of(granted.iter());
            let holds = |key: &[u8]| granted.iter().any(|range| range.contains(key));
            for key in &keys {
                assert_eq!(set.covers_key(key), holds(key), "{granted:?} {key:?}");
            }
            let asked = any_range(&mut random);
            let naive = if asked.is_empty() {
                holds(asked.first().as_bytes())
            } else {
                keys.iter().filter(|key| asked.contains(key)).all(|key| holds(key))
            };
            assert_eq!(set.covers(&asked), naive, "{granted:?} {asked:?}");
            for pair in set.intervals.windows(2) {
                assert!(!reaches(pair[0].end.as_ref(), &pair[1].first), "{set:?}");
            }
        }
    }
}
