//! The objects of one resource at one revision, and at those before it.
//!
//! A [`Version`] is one revision's objects with their index. It never changes, its copy costs nothing,
//! and whoever holds one lists from it without holding anybody up. [`Versions`] keeps those of recent
//! revisions, each sharing with its neighbours all that did not change between them.

use super::consistency::Digest;
use super::entry::{Entry, Shape};
use super::filter::{Filter, Scope};
use super::label_index::{Bounds, Entries, LabelIndex, count_in};
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Version {
    revision: u64,
    namespaced: bool,
    entries: Entries,
    index: LabelIndex,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    pub revision: u64,
    /// Where the next page starts, if there is one: right after the last key of this.
    pub next: Option<String>,
    /// How many objects there are from there on. Not told of a list with a selector.
    pub remaining: Option<usize>,
    /// How many objects were looked at.
    pub visited: usize,
}

impl Listed {
    /// In the order in which they were last written, as a watch tells them at its beginning: a client
    /// that keeps the last revision it saw has then missed nothing.
    pub fn by_revision(mut self) -> Vec<Entry> {
        self.entries.sort_by_key(Entry::revision);
        self.entries
    }
}

impl Version {
    /// `entries`: in any order; of one key the last counts.
    pub fn new(shape: &Shape, bounds: Bounds, entries: Vec<Entry>, revision: u64) -> Version {
        let mut rows: Vec<(Arc<str>, Entry)> =
            entries.into_iter().map(|entry| (entry.key().clone(), entry)).collect();
        // Stable, so that the last of one key is still the last.
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        rows.reverse();
        rows.dedup_by(|(one, _), (other, _)| one == other);
        rows.reverse();
        let entries = Entries::from_sorted(rows);
        let index = LabelIndex::build(shape.fields.clone(), bounds, &entries);
        Version { revision, namespaced: shape.namespaced, entries, index }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// In the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// To compare with the store's at the same revision.
    pub fn digest(&self) -> Digest {
        Digest::of(self.iter().map(|entry| (&**entry.key(), entry.revision())))
    }

    pub fn index(&self) -> &LabelIndex {
        &self.index
    }

    /// How many objects can be in `scope`.
    pub fn count(&self, scope: &Scope) -> usize {
        count_in(&self.entries, &scope.keys(self.namespaced))
    }

    /// `first`: the key where an earlier page said that this one starts.
    pub fn list(&self, filter: &Filter, first: Option<&str>, limit: Option<NonZeroUsize>) -> Listed {
        let range = filter.scope().keys(self.namespaced).starting_at(first.unwrap_or_default());
        let in_range = count_in(&self.entries, &range);
        let mut page = Page { filter, limit, visited: 0, entries: Vec::new(), is_full: false };
        if let Some(candidates) = self.index.candidates(filter.terms(), &range, in_range) {
            page.fill(candidates.filter_map(|key| self.entries.get(&**key)));
        } else {
            let entries = self.entries.iter_from(range.first.as_str()).take(in_range);
            page.fill(entries.map(|(_, entry)| entry));
        }
        let last = page.entries.last().map(Entry::key).filter(|_| page.is_full);
        let next = last.map(|key| format!("{key}\0"));
        // Only then is all that is in range in the list, too.
        let is_whole = !filter.has_selector() && filter.scope().name.is_none();
        let remaining = match &next {
            Some(next) if is_whole => Some(count_in(&self.entries, &range.starting_at(next))),
            _ => None,
        };
        Listed { entries: page.entries, revision: self.revision, next, remaining, visited: page.visited }
    }

    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        let old = self.entries.insert(entry.key().clone(), entry.clone());
        self.index.update(old.as_ref(), Some(&entry), &self.entries);
        old
    }

    pub(super) fn delete(&mut self, key: &str) -> Option<Entry> {
        let old = self.entries.remove(key)?;
        self.index.update(Some(&old), None, &self.entries);
        Some(old)
    }

    pub(super) fn at(mut self, revision: u64) -> Version {
        self.revision = revision;
        self
    }
}

struct Page<'a> {
    filter: &'a Filter,
    limit: Option<NonZeroUsize>,
    visited: usize,
    entries: Vec<Entry>,
    /// There is one more that belongs to the list but not to the page.
    is_full: bool,
}

impl Page<'_> {
    fn fill<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        for entry in entries {
            self.visited += 1;
            if !self.filter.matches(entry) {
                continue;
            }
            if self.limit.is_some_and(|limit| limit.get() == self.entries.len()) {
                self.is_full = true;
                return;
            }
            self.entries.push(entry.clone());
        }
    }
}

/// The versions of recent revisions, oldest first, without a gap: between two of them nothing changed.
#[derive(Clone, Debug)]
pub struct Versions {
    kept: VecDeque<Version>,
    /// The revision up to which the newest is known to be current.
    current: u64,
    /// What is below was compacted away in the store.
    compacted: u64,
}

/// A revision that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No longer here; the store may have it.
    Dropped { oldest: u64 },
    /// Nowhere any more.
    Compacted { oldest: u64 },
    /// Not yet here.
    Future { current: u64 },
}

impl Versions {
    pub fn new(first: Version) -> Versions {
        let current = first.revision;
        Versions { kept: VecDeque::from([first]), current, compacted: 0 }
    }

    pub fn current(&self) -> u64 {
        self.current
    }

    /// How many there are.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn newest(&self) -> &Version {
        self.kept.back().expect("the newest version is never dropped")
    }

    /// The objects as they are now.
    pub fn latest(&self) -> Version {
        self.newest().clone().at(self.current)
    }

    /// The objects as they were at `revision`, exactly.
    pub fn exact(&self, revision: u64) -> Result<Version, Missing> {
        if self.current < revision {
            return Err(Missing::Future { current: self.current });
        }
        if revision < self.compacted {
            return Err(Missing::Compacted { oldest: self.compacted });
        }
        let after = self.kept.partition_point(|version| version.revision <= revision);
        match after.checked_sub(1) {
            Some(at) => Ok(self.kept[at].clone().at(revision)),
            None => Err(Missing::Dropped { oldest: self.kept[0].revision }),
        }
    }

    pub(super) fn push(&mut self, version: Version) {
        assert!(self.current < version.revision, "revisions rise");
        self.current = version.revision;
        self.kept.push_back(version);
    }

    /// Nothing changed up to `revision`.
    pub(super) fn advance(&mut self, revision: u64) {
        self.current = self.current.max(revision);
    }

    /// Nobody will ask for what was before `revision`.
    pub(super) fn trim(&mut self, revision: u64) {
        while self.kept.get(1).is_some_and(|second| second.revision <= revision) {
            self.kept.pop_front();
        }
    }

    pub(super) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
        self.trim(revision);
    }

    /// Keeps the newest only.
    pub(super) fn drop_past(&mut self) {
        self.trim(u64::MAX);
    }

    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        super::counted::tests::distinct_nodes(self.kept.iter().map(|version| &version.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::{pod, pods};
    use crate::cacher::filter::tests::random_filter;
    use crate::cacher::filter::{Term, Test};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn keys(listed: &Listed) -> Vec<&str> {
        listed.entries.iter().map(|entry| &**entry.key()).collect()
    }

    fn version(keys: &[&str]) -> Version {
        let entries = keys.iter().map(|key| pod(key, "", "", 1)).collect();
        Version::new(&pods(), Bounds::default(), entries, 9)
    }

    #[test]
    fn pages_follow_each_other_and_say_what_remains() {
        let version = version(&["b/1", "a/1", "a/3", "a/2", "ab/1"]);
        let all = Filter::default();
        let limit = NonZeroUsize::new(2);
        let first = version.list(&all, None, limit);
        assert_eq!((keys(&first), first.remaining), (vec!["a/1", "a/2"], Some(3)));
        let second = version.list(&all, first.next.as_deref(), limit);
        assert_eq!((keys(&second), second.remaining), (vec!["a/3", "ab/1"], Some(1)));
        let third = version.list(&all, second.next.as_deref(), limit);
        assert_eq!((keys(&third), third.remaining, &third.next), (vec!["b/1"], None, &None));
    }

    #[test]
    fn a_page_that_is_just_full_is_the_last() {
        let version = version(&["a/1", "a/2", "b/1"]);
        let listed = version.list(&Filter::new(Scope::namespace("a"), vec![]), None, NonZeroUsize::new(2));
        assert_eq!((keys(&listed), &listed.next), (vec!["a/1", "a/2"], &None));
    }

    #[test]
    fn what_remains_is_not_told_of_a_list_with_a_selector() {
        let version = version(&["a/1", "a/2", "a/3"]);
        let filter = Filter::new(Scope::all(), vec![Term::label("x", Test::NotExists)]);
        let listed = version.list(&filter, None, NonZeroUsize::new(1));
        assert_eq!((listed.next.as_deref(), listed.remaining), (Some("a/1\0"), None));
    }

    #[test]
    fn a_list_by_label_looks_at_what_matches_only() {
        let entry = |number: usize| {
            let labels = if number.is_multiple_of(100) { "rare=yes" } else { "rare=no" };
            pod(&format!("ns/{number:05}"), labels, "n1", 1)
        };
        let version = Version::new(&pods(), Bounds::default(), (0..10_000).map(entry).collect(), 1);
        let list = |value: &str| {
            let term = Term::label("rare", Test::Equals(value.into()));
            version.list(&Filter::new(Scope::all(), vec![term]), None, None)
        };
        assert_eq!((list("yes").entries.len(), list("yes").visited), (100, 100));
        assert_eq!((list("never").entries.len(), list("never").visited), (0, 0));
        assert_eq!((list("no").entries.len(), list("no").visited), (9_900, 10_000));
        let one = version.list(&Filter::new(Scope::object("ns", "00007"), vec![]), None, None);
        assert_eq!((one.entries.len(), one.visited), (1, 1));
    }

    #[test]
    fn of_one_key_the_last_entry_counts() {
        let entries = vec![pod("a/1", "", "", 1), pod("a/0", "", "", 1), pod("a/1", "", "", 2)];
        let version = Version::new(&pods(), Bounds::default(), entries, 2);
        assert_eq!(version.iter().map(Entry::revision).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn objects_at_the_beginning_of_a_watch_come_in_the_order_of_their_writing() {
        let entries = vec![pod("a/1", "", "", 8), pod("a/2", "", "", 3), pod("a/3", "", "", 5)];
        let version = Version::new(&pods(), Bounds::default(), entries, 8);
        let told = version.list(&Filter::default(), None, None).by_revision();
        assert_eq!(told.iter().map(Entry::revision).collect::<Vec<_>>(), [3, 5, 8]);
    }

    #[test]
    fn every_kept_revision_lists_as_the_model_did_in_pages_of_any_size() {
        let bounds = Bounds { frequent_objects: 5, frequent_percent: 20, labels_max: 3 };
        for seed in 0..10 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut model: BTreeMap<String, Entry> = BTreeMap::new();
            let mut past: BTreeMap<u64, BTreeMap<String, Entry>> = [(1, model.clone())].into();
            let mut versions = Versions::new(Version::new(&pods(), bounds, vec![], 1));
            let mut revision = 1;
            for _ in 0..300 {
                revision += rng.random_range(1..4);
                let key = format!("{}/{}", ["a", "ab", "b"][rng.random_range(0..3)], rng.random_range(0..30));
                let mut next = versions.latest().at(revision);
                let old = if rng.random_bool(0.7) {
                    let labels = format!("app={},n={}", rng.random_range(0..5), rng.random_range(0..5));
                    let entry = pod(&key, &labels, ["", "n1", "n2"][rng.random_range(0..3)], revision);
                    let old = next.put(entry.clone());
                    assert_eq!(old, model.insert(key, entry));
                    old
                } else {
                    let old = next.delete(&key);
                    assert_eq!(old, model.remove(&key));
                    old
                };
                drop(old);
                versions.push(next);
                past.insert(revision, model.clone());
            }
            versions.compact(revision / 4);
            for _ in 0..300 {
                let asked = rng.random_range(1..revision + 3);
                let version = match versions.exact(asked) {
                    Ok(version) => version,
                    Err(Missing::Compacted { .. }) => {
                        assert!(asked < revision / 4);
                        continue;
                    }
                    Err(Missing::Future { .. }) => {
                        assert!(revision < asked);
                        continue;
                    }
                    Err(missing) => panic!("{asked}: {missing:?}"),
                };
                assert_eq!(version.revision(), asked);
                let then = past.range(..=asked).next_back().expect("the first is at 1").1;
                let filter = random_filter(&mut rng);
                let wanted: Vec<&Entry> = then.values().filter(|entry| filter.matches(entry)).collect();
                let limit = NonZeroUsize::new(rng.random_range(0..7));
                let (mut got, mut first) = (Vec::new(), None);
                loop {
                    let page = version.list(&filter, first.as_deref(), limit);
                    got.extend(page.entries);
                    if let Some(remaining) = page.remaining {
                        assert_eq!(got.len() + remaining, wanted.len());
                    }
                    first = page.next;
                    if first.is_none() {
                        break;
                    }
                }
                assert_eq!(got.iter().collect::<Vec<_>>(), wanted, "{filter:?} at {asked}");
            }
        }
    }
}
