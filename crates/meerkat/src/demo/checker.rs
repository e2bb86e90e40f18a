//! What a watcher was told, judged against what the store holds.
//!
//! Every write of the demo is a new key, and nothing else writes: so the list of keys at the end,
//! ordered by revision, is the whole history, and each revision holds exactly one of its numbers.
//! While the demo runs the same fact shows a gap at once: the next revision is always the last one
//! plus one. The judgement at the end trusts none of that and compares in full.

use std::collections::BTreeMap;

use meerkat_types::Revision;

/// The number a write carries in its key and its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

/// One event, as a watcher was told it; or one key, as the store lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub revision: Revision,
    pub number: Number,
}

/// All that one watcher was told, in the order in which it was told.
#[derive(Clone, Debug)]
pub struct Record {
    seen: Vec<Seen>,
    /// The first revision this watcher asked for.
    first: Revision,
    highest: Option<Revision>,
    /// Revisions skipped so far and not told late either.
    pub gaps: u64,
    pub repeats: u64,
    pub late: u64,
}

impl Record {
    pub fn new(first: Revision) -> Record {
        Record { seen: Vec::new(), first, highest: None, gaps: 0, repeats: 0, late: 0 }
    }

    pub fn see(&mut self, seen: Seen) {
        let expected = self.highest.map_or(self.first, Revision::next);
        if expected <= seen.revision {
            self.gaps += seen.revision.get().abs_diff(expected.get());
            self.highest = Some(seen.revision);
        } else if self.seen.iter().any(|earlier| earlier.revision == seen.revision) {
            self.repeats += 1;
        } else {
            self.late += 1;
            self.gaps = self.gaps.saturating_sub(1);
        }
        self.seen.push(seen);
    }

    pub fn highest(&self) -> Option<Revision> {
        self.highest
    }

    pub fn len(&self) -> usize {
        self.seen.len()
    }
}

/// All that the store holds, as it listed it at the end.
#[derive(Clone, Debug)]
pub struct History {
    /// The revision of the list. Of what came later it says nothing.
    pub at: Revision,
    pub numbers: BTreeMap<Revision, Number>,
}

/// How one watcher's record differs from the history. All zero is the only good one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub lost: u64,
    pub repeated: u64,
    pub reordered: u64,
    /// Told of, but not in the history, or not with that number.
    pub invented: u64,
}

impl Judgement {
    pub fn is_clean(&self) -> bool {
        *self == Judgement::default()
    }
}

impl std::ops::Add for Judgement {
    type Output = Judgement;

    fn add(self, other: Judgement) -> Judgement {
        Judgement {
            lost: self.lost + other.lost,
            repeated: self.repeated + other.repeated,
            reordered: self.reordered + other.reordered,
            invented: self.invented + other.invented,
        }
    }
}

/// Compares a record with the whole history, event by event.
pub fn judge(history: &History, record: &Record) -> Judgement {
    let mut judgement = Judgement::default();
    let mut told: BTreeMap<Revision, u64> = BTreeMap::new();
    let mut highest = None;
    for seen in record.seen.iter().filter(|seen| seen.revision <= history.at) {
        if history.numbers.get(&seen.revision) != Some(&seen.number) {
            judgement.invented += 1;
            continue;
        }
        let times = told.entry(seen.revision).or_default();
        *times += 1;
        if *times > 1 {
            judgement.repeated += 1;
        } else if highest.is_some_and(|highest| seen.revision < highest) {
            judgement.reordered += 1;
        }
        highest = highest.max(Some(seen.revision));
    }
    let owed = history.numbers.range(record.first..).filter(|(revision, _)| !told.contains_key(revision));
    judgement.lost = owed.count() as u64;
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: i64) -> Seen {
        Seen { revision: Revision::new(revision), number: Number(revision.unsigned_abs() * 10) }
    }

    fn record(revisions: &[i64]) -> Record {
        let mut record = Record::new(Revision::new(2));
        revisions.iter().for_each(|revision| record.see(seen(*revision)));
        record
    }

    /// Gaps, repeats and late ones as they show while running; then lost, repeated and reordered of
    /// the judgement, against a history of the revisions 2 to 6.
    fn check(revisions: &[i64], running: [u64; 3], judged: [u64; 3]) {
        let numbers = (2..=6).map(|at| (seen(at).revision, seen(at).number)).collect();
        let history = History { at: Revision::new(6), numbers };
        let record = record(revisions);
        assert_eq!([record.gaps, record.repeats, record.late], running, "{revisions:?}");
        let found = judge(&history, &record);
        assert_eq!([found.lost, found.repeated, found.reordered], judged, "{revisions:?}");
        assert_eq!(found.is_clean(), judged == [0; 3]);
    }

    #[test]
    fn a_whole_record_is_clean() {
        check(&[2, 3, 4, 5, 6], [0, 0, 0], [0, 0, 0]);
    }

    #[test]
    fn a_skipped_revision_is_lost() {
        check(&[2, 3, 5, 6], [1, 0, 0], [1, 0, 0]);
        check(&[4, 5, 6], [2, 0, 0], [2, 0, 0]);
    }

    #[test]
    fn a_missing_end_is_lost_though_no_gap_shows() {
        check(&[2, 3, 4], [0, 0, 0], [2, 0, 0]);
        check(&[], [0, 0, 0], [5, 0, 0]);
    }

    #[test]
    fn a_second_telling_is_a_repeat() {
        check(&[2, 3, 3, 4, 5, 6], [0, 1, 0], [0, 1, 0]);
        check(&[2, 3, 4, 5, 6, 4, 5, 6], [0, 3, 0], [0, 3, 0]);
    }

    #[test]
    fn a_late_telling_is_out_of_order_and_not_lost() {
        check(&[2, 4, 3, 5, 6], [0, 0, 1], [0, 0, 1]);
    }

    #[test]
    fn what_came_after_the_list_is_not_judged_by_it() {
        check(&[2, 3, 4, 5, 6, 7], [0, 0, 0], [0, 0, 0]);
    }

    #[test]
    fn what_the_store_never_held_is_invented() {
        let numbers = BTreeMap::from([(Revision::new(2), Number(20))]);
        let history = History { at: Revision::new(2), numbers };
        let mut record = Record::new(Revision::new(2));
        record.see(Seen { revision: Revision::new(2), number: Number(21) });
        let found = judge(&history, &record);
        assert_eq!((found.invented, found.lost), (1, 1));
    }
}
