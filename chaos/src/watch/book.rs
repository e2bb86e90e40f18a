//! What happened to a store shared with others, as several scribes are told it, revision by revision.
//!
//! Each scribe watches everything, on whichever member serves it. A revision is entered when the
//! first of them tells it; what the others tell of it must be the same. Revisions follow each other
//! without a gap, or somebody was silently skipped. Only keys under one prefix are kept.
//!
//! When compaction overtakes all scribes at once, nobody knows what happened in between: then a new
//! chapter begins. One also begins when there is too much to keep.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

use crate::checker::watch_history::WatchHistory;
use crate::record::watch::{Seen, Stored};

/// How many of the last revisions are remembered well enough to compare.
const PRINTS: usize = 20_000;
/// The first findings name the fault; the rest are its echoes.
const FINDINGS_MAX: usize = 50;

/// The book.
#[derive(Clone, Debug)]
pub struct Book {
    under: Vec<u8>,
    chapter: WatchHistory,
    last: i64,
    /// Of the last revisions, up to `last`.
    prints: VecDeque<u64>,
    /// Told by somebody, but not yet what comes before.
    ahead: BTreeMap<i64, Vec<Seen>>,
    /// For each scribe the next revision it may be told.
    nexts: Vec<i64>,
    /// What was wrong.
    pub findings: Vec<String>,
    /// Revisions that were told, each time they were.
    pub told: u64,
}

impl Book {
    /// Begins after a revision, with what was then there under the prefix.
    pub fn new(under: &str, scribes: usize, base: i64, state: BTreeMap<Bytes, Stored>) -> Self {
        Self {
            under: under.as_bytes().to_vec(),
            chapter: WatchHistory::of_part(base, state),
            last: base,
            prints: VecDeque::new(),
            ahead: BTreeMap::new(),
            nexts: vec![base + 1; scribes],
            findings: Vec::new(),
            told: 0,
        }
    }

    /// The present chapter.
    pub fn chapter(&self) -> &WatchHistory {
        &self.chapter
    }

    /// Everything is known up to this revision.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// What a scribe should ask for.
    pub fn next_of(&self, scribe: usize) -> i64 {
        self.nexts[scribe]
    }

    /// A scribe is told of whole revisions.
    pub fn tell(&mut self, scribe: usize, events: &[Seen]) {
        for of_one in events.chunk_by(|one, other| one.revision() == other.revision()) {
            let revision = of_one[0].revision();
            let expected = self.nexts[scribe];
            if revision != expected {
                self.found(format!(
                    "scribe {scribe} is told of revision {revision} where {expected} comes next: {:?}",
                    of_one[0]
                ));
            }
            self.nexts[scribe] = self.nexts[scribe].max(revision + 1);
            self.told += 1;
            self.enter(scribe, revision, of_one);
        }
    }

    /// A scribe is told that nothing before this revision is to be had any more.
    pub fn skip_to(&mut self, scribe: usize, revision: i64) {
        self.nexts[scribe] = self.nexts[scribe].max(revision);
    }

    /// The revisions that nobody will tell of, if the next one is among them.
    pub fn gap(&self) -> Option<(i64, i64)> {
        let next = self.last + 1;
        let known = self.ahead.keys().next().copied().unwrap_or(i64::MAX);
        let upto = self.nexts.iter().copied().min().unwrap_or(next).min(known);
        (next < upto).then(|| (next, upto - 1))
    }

    /// Begins a new chapter after a revision, with what was then there; the old one.
    pub fn turn(&mut self, base: i64, state: BTreeMap<Bytes, Stored>) -> WatchHistory {
        if self.last < base {
            self.prints.clear();
            self.last = base;
            self.ahead = self.ahead.split_off(&(base + 1));
        }
        let old = std::mem::replace(&mut self.chapter, WatchHistory::of_part(base, state));
        self.drain();
        old
    }

    fn found(&mut self, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(what);
        }
    }

    fn enter(&mut self, scribe: usize, revision: i64, events: &[Seen]) {
        if self.last + 1 < revision {
            let known = self.ahead.get(&revision).map(|known| print(known));
            match known {
                None => {
                    self.ahead.insert(revision, events.to_vec());
                }
                Some(known) if known != print(events) => self.differs(scribe, revision, events),
                Some(_) => {}
            }
        } else if revision == self.last + 1 {
            self.append(events);
            self.drain();
        } else {
            let back = usize::try_from(self.last - revision).unwrap_or(usize::MAX);
            let known = self.prints.len().checked_sub(1 + back).map(|at| self.prints[at]);
            if known.is_some_and(|known| known != print(events)) {
                self.differs(scribe, revision, events);
            }
        }
    }

    fn differs(&mut self, scribe: usize, revision: i64, events: &[Seen]) {
        self.found(format!("scribe {scribe} is told another revision {revision} than others: {events:?}"));
    }

    fn drain(&mut self) {
        while let Some(events) = self.ahead.remove(&(self.last + 1)) {
            self.append(&events);
        }
    }

    fn append(&mut self, events: &[Seen]) {
        self.last += 1;
        self.prints.push_back(print(events));
        if PRINTS < self.prints.len() {
            self.prints.pop_front();
        }
        for event in events {
            if event.key.starts_with(&self.under) {
                let findings = self.chapter.append(event.clone());
                findings.into_iter().for_each(|what| self.found(what));
            }
        }
        self.chapter.reach(self.last);
    }
}

fn print(events: &[Seen]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for event in events {
        let now = event.now;
        (event.kind, &event.key, now.create_revision, now.version, now.lease, now.value).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{Kind, ValuePrint};

    fn put(key: &str, revision: i64, create_revision: i64, version: i64) -> Seen {
        let value = ValuePrint::of(format!("{key}@{revision}").as_bytes());
        let now = Stored { create_revision, mod_revision: revision, version, lease: 0, value };
        Seen { kind: Kind::Put, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
    }

    fn new(revision: i64) -> Seen {
        put(&format!("w/{revision}"), revision, revision, 1)
    }

    fn book() -> Book {
        Book::new("w/", 2, 9, BTreeMap::new())
    }

    #[test]
    fn the_first_who_tells_is_believed_and_the_others_must_agree() {
        let mut book = book();
        book.tell(0, &[new(10), new(11)]);
        book.tell(1, &[new(10)]);
        assert_eq!((book.last(), book.chapter().events().len(), book.findings.len()), (11, 2, 0));
        book.tell(1, &[put("w/other", 11, 11, 1)]);
        assert_eq!(book.findings.len(), 1);
    }

    #[test]
    fn other_keys_count_but_are_not_kept() {
        let mut book = book();
        book.tell(0, &[put("x", 10, 3, 7), new(11)]);
        assert_eq!((book.last(), book.chapter().events().len(), book.findings.len()), (11, 1, 0));
    }

    #[test]
    fn a_revision_left_out_or_told_again_is_found() {
        let mut skipping = book();
        skipping.tell(0, &[new(10), new(12)]);
        assert_eq!((skipping.findings.len(), skipping.last()), (1, 10));
        let mut repeating = book();
        repeating.tell(0, &[new(10)]);
        repeating.tell(0, &[new(10)]);
        assert_eq!(repeating.findings.len(), 1);
    }

    #[test]
    fn what_one_missed_another_tells() {
        let mut book = book();
        book.skip_to(0, 12);
        book.tell(0, &[new(12)]);
        assert_eq!((book.last(), book.gap()), (9, None), "the other may still tell");
        book.tell(1, &[new(10), new(11)]);
        assert_eq!((book.last(), book.findings.len()), (12, 0));
    }

    #[test]
    fn what_all_missed_is_a_gap_and_ends_the_chapter() {
        let mut book = book();
        book.skip_to(0, 12);
        book.skip_to(1, 14);
        assert_eq!(book.gap(), Some((10, 11)));
        book.tell(0, &[new(12), new(13)]);
        let old = book.turn(12, BTreeMap::new());
        assert_eq!((old.last_revision(), book.last(), book.gap()), (9, 13, None));
        assert_eq!((book.chapter().events().len(), book.findings.len()), (1, 0));
    }

    #[test]
    fn a_history_that_cannot_be_is_found() {
        let mut book = book();
        book.tell(0, &[put("w/a", 10, 10, 2)]);
        assert_eq!(book.findings.len(), 1);
    }
}
