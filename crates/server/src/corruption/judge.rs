//! Who differs, from what members said of themselves.
//!
//! The majority is right: a member whose answer is not that of more than half of the members is
//! accused. If no answer has such a majority nobody can tell who is right, and all who answered are
//! accused. Members that did not answer are neither right nor wrong.

use meerkat_raft::{DigestMark, StoredAnswer};
use meerkat_types::{LogPosition, MemberId, Revision};
use std::collections::BTreeMap;

/// What members said of themselves; who did not answer is not in it.
pub(super) type Said<T> = BTreeMap<MemberId, T>;

/// Members whose digests differ from the others' at some place of the log that both have.
pub(super) fn differing_digests(said: &Said<Vec<DigestMark>>, members: usize) -> Vec<MemberId> {
    let mut places: BTreeMap<LogPosition, Said<[u8; 16]>> = BTreeMap::new();
    for (member, marks) in said {
        for mark in marks {
            places.entry(mark.at).or_default().insert(*member, mark.digest);
        }
    }
    let mut accused: Vec<MemberId> = places.values().flat_map(|said| outvoted(said, members)).collect();
    accused.sort_unstable();
    accused.dedup();
    accused
}

/// Members whose stored data differs from the others', or cannot be read.
pub(super) fn differing_hashes(said: &Said<StoredAnswer>, members: usize) -> Vec<MemberId> {
    let (mut present, mut histories) = (Said::new(), BTreeMap::<Option<Revision>, Said<u32>>::new());
    let mut accused = Vec::new();
    for (member, answer) in said {
        match answer {
            StoredAnswer::Hash(hash) => {
                present.insert(*member, hash.present);
                histories.entry(hash.history.compacted).or_default().insert(*member, hash.history.hash);
            }
            StoredAnswer::NotComparable(_) => {}
            StoredAnswer::Unreadable(_) => accused.push(*member),
        }
    }
    accused.extend(outvoted(&present, members));
    // History is comparable between those that have compacted equally far.
    accused.extend(histories.values().flat_map(|said| outvoted(said, members)));
    accused.sort_unstable();
    accused.dedup();
    accused
}

/// Those whose word is not that of the majority; nobody, if all say the same.
fn outvoted<T: Ord>(said: &Said<T>, members: usize) -> Vec<MemberId> {
    let mut votes: BTreeMap<&T, usize> = BTreeMap::new();
    for word in said.values() {
        *votes.entry(word).or_default() += 1;
    }
    if votes.len() < 2 {
        return Vec::new();
    }
    let right = votes.iter().find(|(_, votes)| members < 2 * **votes).map(|(word, _)| *word);
    said.iter().filter(|(_, word)| Some(*word) != right).map(|(member, _)| *member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_state::{HashKv, StoredHash};
    use meerkat_types::{LogIndex, Term};

    fn ids(numbers: &[u64]) -> Vec<MemberId> {
        numbers.iter().copied().map(MemberId).collect()
    }

    /// Each member with its digests as (index, digest).
    fn check_digests(said: &[(u64, &[(u64, u8)])], members: usize, expected: &[u64]) {
        let mark = |(index, digest): &(u64, u8)| DigestMark {
            at: LogPosition { term: Term(1), node: MemberId(1), index: LogIndex(*index) },
            digest: [*digest; 16],
        };
        let said: Said<Vec<DigestMark>> =
            said.iter().map(|(id, marks)| (MemberId(*id), marks.iter().map(mark).collect())).collect();
        assert_eq!(differing_digests(&said, members), ids(expected), "{said:?}");
    }

    fn hash(history: u32, compacted: i64, present: u32) -> StoredAnswer {
        let (hash_revision, compacted) = (Revision::new(9), Revision::compacted_from_wire(compacted));
        StoredAnswer::Hash(StoredHash {
            history: HashKv { hash: history, hash_revision, compacted },
            present,
        })
    }

    fn check_hashes(said: &[(u64, StoredAnswer)], members: usize, expected: &[u64]) {
        let said: Said<StoredAnswer> = said.iter().map(|(id, said)| (MemberId(*id), said.clone())).collect();
        assert_eq!(differing_hashes(&said, members), ids(expected), "{said:?}");
    }

    #[test]
    fn the_one_that_differs_from_a_majority_is_accused() {
        check_digests(&[(1, &[(128, 7)]), (2, &[(128, 7)]), (3, &[(128, 8)])], 3, &[3]);
        check_digests(&[(1, &[(128, 7)]), (2, &[(128, 7)]), (3, &[(128, 7)])], 3, &[]);
    }

    #[test]
    fn members_are_compared_where_both_have_been_and_nowhere_else() {
        check_digests(&[(1, &[(128, 7), (256, 9)]), (2, &[(128, 7), (300, 1)]), (3, &[(384, 5)])], 3, &[]);
        check_digests(&[(1, &[(128, 7), (256, 9)]), (2, &[(256, 9)]), (3, &[(256, 1)])], 3, &[3]);
    }

    #[test]
    fn without_a_majority_all_that_answered_are_accused() {
        check_digests(&[(1, &[(128, 7)]), (2, &[(128, 8)])], 2, &[1, 2]);
        check_digests(&[(1, &[(128, 7)]), (2, &[(128, 8)])], 3, &[1, 2]);
        check_digests(&[(1, &[(128, 7)]), (2, &[(128, 7)]), (3, &[(128, 8)])], 5, &[1, 2, 3]);
    }

    #[test]
    fn stored_data_that_differs_or_cannot_be_read_is_found() {
        check_hashes(&[(1, hash(1, -1, 2)), (2, hash(1, -1, 2)), (3, hash(1, -1, 9))], 3, &[3]);
        check_hashes(&[(1, hash(1, -1, 2)), (2, hash(1, -1, 2)), (3, hash(8, -1, 2))], 3, &[3]);
        let bad = StoredAnswer::Unreadable("a bad block".into());
        check_hashes(&[(1, hash(1, -1, 2)), (2, hash(1, -1, 2)), (3, bad.clone())], 3, &[3]);
        check_hashes(&[(1, bad)], 1, &[1]);
    }

    #[test]
    fn who_compacted_less_or_says_nothing_comparable_is_not_accused() {
        check_hashes(&[(1, hash(1, 5, 2)), (2, hash(1, 5, 2)), (3, hash(7, 4, 2))], 3, &[]);
        let silent = StoredAnswer::NotComparable("compacted".into());
        check_hashes(&[(1, hash(1, 5, 2)), (2, hash(1, 5, 2)), (3, silent)], 3, &[]);
    }
}
