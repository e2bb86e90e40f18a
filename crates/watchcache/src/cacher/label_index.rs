//! Which objects carry a label or a field's value: so that a list costs what matches, not what exists.
//!
//! The index is part of a version of the store and copied with it for nothing, so that it answers for
//! each kept revision. It names candidates only, in the order of their keys: whoever asks looks at each
//! object itself, so an index can make an answer slow but never wrong by naming too many. What it must
//! never do is to leave one out.
//!
//! Memory is bounded by the labels of objects, about a hundred bytes each. A value that one object has
//! takes no set. A value that many have is only counted, since a scan is as quick; when it has become
//! rare, its set is made again. An object with very many labels is not indexed but kept in a list of
//! its own, and is a candidate always.

use super::bucket;
use super::counted::{CountedMap, Iter};
use super::entry::Entry;
use super::filter::{KeyRange, Term};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

pub type Keys = CountedMap<Arc<str>, ()>;
pub type Entries = CountedMap<Arc<str>, Entry>;

/// Where the index stops to keep sets.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A value that more objects have than this, and than the share, is only counted.
    pub frequent_objects: usize,
    pub frequent_percent: usize,
    /// An object with more labels than this is a candidate always.
    pub labels_max: usize,
}

impl Default for Bounds {
    /// A fifth of all objects: above it a walk through the store costs as little as one through a set.
    fn default() -> Bounds {
        Bounds { frequent_objects: 1_000, frequent_percent: 20, labels_max: 64 }
    }
}

#[derive(Clone, Debug)]
enum Members {
    One(Arc<str>),
    Many(Keys),
    /// Too many to be kept: how many.
    Frequent(usize),
}

#[derive(Clone, Debug)]
pub struct LabelIndex {
    fields: Arc<[Arc<str>]>,
    bounds: Bounds,
    names: CountedMap<Arc<str>, Members>,
    /// Objects with too many labels.
    heavy: Keys,
    /// The names of which members are only counted.
    frequent: Keys,
    /// At this many objects all that is frequent is looked at again.
    review_at: usize,
}

impl LabelIndex {
    /// `fields`: those that entries are named by.
    pub fn build(fields: Arc<[Arc<str>]>, bounds: Bounds, entries: &Entries) -> LabelIndex {
        let mut heavy = Vec::new();
        let mut members: BTreeMap<String, Vec<(Arc<str>, ())>> = BTreeMap::new();
        for (key, entry) in entries.iter() {
            if entry.labels().len() > bounds.labels_max {
                heavy.push((key.clone(), ()));
                continue;
            }
            bucket::each_term_name(entry, |name| match members.get_mut(name) {
                Some(keys) => keys.push((key.clone(), ())),
                None => drop(members.insert(name.to_owned(), vec![(key.clone(), ())])),
            });
        }
        let mut index = LabelIndex {
            fields,
            bounds,
            names: CountedMap::default(),
            heavy: CountedMap::from_sorted(heavy),
            frequent: CountedMap::default(),
            review_at: next_review(entries.len()),
        };
        let mut rows = Vec::with_capacity(members.len());
        for (name, keys) in members {
            let name: Arc<str> = name.into();
            let members = index.members(&name, keys, entries.len());
            rows.push((name, members));
        }
        index.names = CountedMap::from_sorted(rows);
        index
    }

    fn members(&mut self, name: &Arc<str>, mut keys: Vec<(Arc<str>, ())>, total: usize) -> Members {
        if self.is_frequent(keys.len(), total) {
            self.frequent.insert(name.clone(), ());
            return Members::Frequent(keys.len());
        }
        if keys.len() == 1
            && let Some((only, ())) = keys.pop()
        {
            return Members::One(only);
        }
        Members::Many(CountedMap::from_sorted(keys))
    }

    fn is_frequent(&self, count: usize, total: usize) -> bool {
        count > self.frequent_above(total)
    }

    /// Half of what made it frequent, so that a value at the limit does not come and go: between two
    /// makings of a set lie as many changes as the making costs.
    fn is_rare_again(&self, count: usize, total: usize) -> bool {
        count <= self.frequent_above(total) / 2
    }

    fn frequent_above(&self, total: usize) -> usize {
        (total * self.bounds.frequent_percent / 100).max(self.bounds.frequent_objects)
    }

    /// Takes in one change. `entries`: as they are after it.
    pub fn update(&mut self, old: Option<&Entry>, new: Option<&Entry>, entries: &Entries) {
        if let (Some(old), Some(new)) = (old, new)
            && old.same_terms(new)
        {
            return;
        }
        let (gone, come) = (self.names_of(old), self.names_of(new));
        let Some(key) = new.or(old).map(Entry::key) else { return };
        match (old.is_some_and(|old| self.is_heavy(old)), new.is_some_and(|new| self.is_heavy(new))) {
            (false, true) => drop(self.heavy.insert(key.clone(), ())),
            (true, false) => drop(self.heavy.remove(key)),
            _ => {}
        }
        let mut rare = Vec::new();
        for name in gone.difference(&come) {
            if self.remove(name, key, entries.len()) {
                rare.push(name.as_str().into());
            }
        }
        for name in come.difference(&gone) {
            self.insert(name, key, entries.len());
        }
        if self.review_at <= entries.len() {
            self.review_at = next_review(entries.len());
            rare = self.rare_again(entries.len());
        }
        self.make_sets(rare, entries);
    }

    fn is_heavy(&self, entry: &Entry) -> bool {
        entry.labels().len() > self.bounds.labels_max
    }

    fn names_of(&self, entry: Option<&Entry>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if let Some(entry) = entry
            && !self.is_heavy(entry)
        {
            bucket::each_term_name(entry, |name| {
                names.insert(name.to_owned());
            });
        }
        names
    }

    fn insert(&mut self, name: &str, key: &Arc<str>, total: usize) {
        let limit = self.frequent_above(total);
        let Some(members) = self.names.get_mut(name) else {
            self.names.insert(name.into(), Members::One(key.clone()));
            return;
        };
        match members {
            Members::One(first) => {
                let mut keys = Keys::default();
                keys.insert(first.clone(), ());
                keys.insert(key.clone(), ());
                *members = Members::Many(keys);
            }
            Members::Many(keys) => drop(keys.insert(key.clone(), ())),
            Members::Frequent(count) => *count += 1,
        }
        if let Members::Many(keys) = members
            && keys.len() > limit
        {
            *members = Members::Frequent(keys.len());
            self.frequent.insert(name.into(), ());
        }
    }

    /// Whether the name has just become rare again.
    fn remove(&mut self, name: &str, key: &Arc<str>, total: usize) -> bool {
        let Some(members) = self.names.get_mut(name) else { return false };
        match members {
            Members::One(_) => drop(self.names.remove(name)),
            Members::Many(keys) => {
                keys.remove(key);
                if let (1, Some((last, ()))) = (keys.len(), keys.iter().next()) {
                    *members = Members::One(last.clone());
                }
            }
            Members::Frequent(count) => {
                *count -= 1;
                let count = *count;
                return self.is_rare_again(count, total);
            }
        }
        false
    }

    fn rare_again(&self, total: usize) -> Vec<Arc<str>> {
        let is_rare = |name: &&Arc<str>| match self.names.get(&***name) {
            Some(Members::Frequent(count)) => self.is_rare_again(*count, total),
            _ => false,
        };
        self.frequent.iter().map(|(name, ())| name).filter(is_rare).cloned().collect()
    }

    /// One walk through all objects for all `names`.
    fn make_sets(&mut self, names: Vec<Arc<str>>, entries: &Entries) {
        if names.is_empty() {
            return;
        }
        let mut sets: BTreeMap<Arc<str>, Vec<(Arc<str>, ())>> =
            names.into_iter().map(|name| (name, Vec::new())).collect();
        for (key, entry) in entries.iter().filter(|(_, entry)| !self.is_heavy(entry)) {
            bucket::each_term_name(entry, |name| {
                if let Some(keys) = sets.get_mut(name) {
                    keys.push((key.clone(), ()));
                }
            });
        }
        for (name, keys) in sets {
            self.frequent.remove(&name);
            if keys.is_empty() {
                self.names.remove(&name);
            } else {
                let members = self.members(&name, keys, entries.len());
                self.names.insert(name, members);
            }
        }
    }

    /// How many objects can meet `term`. `None` if only a scan can tell.
    pub fn count(&self, term: &Term) -> Option<usize> {
        let names = bucket::names_of_term(term, &self.fields)?;
        let count = |name: &String| match self.names.get(name.as_str()) {
            None => 0,
            Some(Members::One(_)) => 1,
            Some(Members::Many(keys)) => keys.len(),
            Some(Members::Frequent(count)) => *count,
        };
        Some(names.iter().map(count).sum::<usize>() + self.heavy.len())
    }

    /// The keys in `range` of all objects that can meet all `terms`, by way of the term that the fewest
    /// meet. `None` if no term is positive, or none is met by fewer than `scan`, the objects in range:
    /// to ask each of these is then the cheapest.
    ///
    /// The other terms are left to the objects: to ask an object is as cheap as to ask another set.
    pub fn candidates(&self, terms: &[Term], range: &KeyRange, scan: usize) -> Option<Candidates<'_>> {
        let paths = terms.iter().filter_map(|term| self.path(term, range));
        let best = paths.min_by_key(|path| path.count)?;
        (best.count < scan).then(|| Candidates::new(best.runs, range))
    }

    fn path(&self, term: &Term, range: &KeyRange) -> Option<Path<'_>> {
        let mut path = Path { count: count_in(&self.heavy, range), runs: vec![Run::Set(&self.heavy)] };
        for name in bucket::names_of_term(term, &self.fields)? {
            match self.names.get(name.as_str()) {
                None => {}
                Some(Members::One(key)) => {
                    path.count += usize::from(range.contains(key));
                    path.runs.push(Run::One(key));
                }
                Some(Members::Many(keys)) => {
                    path.count += count_in(keys, range);
                    path.runs.push(Run::Set(keys));
                }
                Some(Members::Frequent(_)) => return None,
            }
        }
        Some(path)
    }
}

fn next_review(total: usize) -> usize {
    total + total / 8 + 1
}

/// How many keys of a map are in `range`.
pub fn count_in<V>(keys: &CountedMap<Arc<str>, V>, range: &KeyRange) -> usize {
    let below_end = range.end.as_ref().map_or(keys.len(), |end| keys.rank(end.as_str()));
    below_end.saturating_sub(keys.rank(range.first.as_str()))
}

/// The sets that together hold all that meets one term. No key is in two of them.
struct Path<'a> {
    count: usize,
    runs: Vec<Run<'a>>,
}

enum Run<'a> {
    One(&'a Arc<str>),
    Set(&'a Keys),
}

/// Keys in their order, from several sets.
pub struct Candidates<'a> {
    iters: Vec<Iter<'a, Arc<str>, ()>>,
    /// The next key of each set, with its number; without one for a key that is in no set.
    heads: BinaryHeap<Reverse<(&'a Arc<str>, Option<usize>)>>,
    end: Option<String>,
}

impl<'a> Candidates<'a> {
    fn new(runs: Vec<Run<'a>>, range: &KeyRange) -> Candidates<'a> {
        let mut candidates =
            Candidates { iters: Vec::new(), heads: BinaryHeap::new(), end: range.end.clone() };
        for run in runs {
            match run {
                Run::One(key) if range.contains(key) => candidates.heads.push(Reverse((key, None))),
                Run::One(_) => {}
                Run::Set(keys) => {
                    candidates.iters.push(keys.iter_from(range.first.as_str()));
                    candidates.refill(candidates.iters.len() - 1);
                }
            }
        }
        candidates
    }

    fn refill(&mut self, number: usize) {
        if let Some((key, ())) = self.iters[number].next()
            && self.end.as_ref().is_none_or(|end| **key < **end)
        {
            self.heads.push(Reverse((key, Some(number))));
        }
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = &'a Arc<str>;

    fn next(&mut self) -> Option<&'a Arc<str>> {
        let Reverse((key, number)) = self.heads.pop()?;
        if let Some(number) = number {
            self.refill(number);
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::{pod, pods};
    use crate::cacher::filter::tests::random_filter;
    use crate::cacher::filter::{Filter, Scope, Test};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn everything() -> KeyRange {
        Scope::all().keys(true)
    }

    /// Says whether the index knew the way.
    fn assert_complete(index: &LabelIndex, entries: &Entries, filter: &Filter) -> bool {
        let range = filter.scope().keys(true);
        let scan: Vec<&Arc<str>> =
            entries.iter().filter(|(_, entry)| filter.matches(entry)).map(|(key, _)| key).collect();
        let Some(candidates) = index.candidates(filter.terms(), &range, usize::MAX) else { return false };
        let all: Vec<&Arc<str>> = candidates.collect();
        assert!(all.is_sorted_by(|one, next| one < next), "in order, each once");
        assert!(all.iter().all(|key| range.contains(key)));
        let wanted = |key: &&&Arc<str>| entries.get(&***key).is_some_and(|entry| filter.matches(entry));
        assert_eq!(all.iter().filter(wanted).copied().collect::<Vec<_>>(), scan, "{filter:?}");
        true
    }

    /// The sets that are kept, and the counts of the others, are those of the entries.
    fn assert_exact(index: &LabelIndex, entries: &Entries) {
        let fresh = LabelIndex::build(index.fields.clone(), index.bounds, entries);
        let counts = |index: &LabelIndex| -> Vec<(Arc<str>, usize)> {
            let count = |members: &Members| match members {
                Members::One(_) => 1,
                Members::Many(keys) => keys.len(),
                Members::Frequent(count) => *count,
            };
            index.names.iter().map(|(name, members)| (name.clone(), count(members))).collect()
        };
        assert_eq!(counts(index), counts(&fresh));
        let frequent = index.names.iter().filter(|(_, members)| matches!(members, Members::Frequent(_)));
        assert!(frequent.map(|(name, _)| name).eq(index.frequent.iter().map(|(name, ())| name)));
    }

    #[test]
    fn the_index_answers_as_a_scan_at_every_kept_version() {
        let bounds = Bounds { frequent_objects: 6, frequent_percent: 20, labels_max: 3 };
        let (mut by_index, mut turned_frequent, mut turned_rare) = (0, 0, 0);
        for seed in 0..12 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut entries = Entries::default();
            let mut index = LabelIndex::build(pods().fields, bounds, &entries);
            let mut kept = Vec::new();
            for revision in 1..400 {
                let namespace = ["a", "ab", "b"][rng.random_range(0..3)];
                let key = format!("{namespace}/{}", rng.random_range(0..30));
                // Grows, then shrinks, so that values become frequent and rare.
                let grows = rng.random_range(0..400) > revision;
                let new = grows.then(|| {
                    let mut labels = String::new();
                    for label in ["app", "tier", "n", "x"] {
                        if rng.random_bool(0.7) {
                            labels += &format!("{label}={},", rng.random_range(0..4));
                        }
                    }
                    pod(&key, &labels, ["", "n1", "n2"][rng.random_range(0..3)], revision)
                });
                let old = match &new {
                    Some(new) => entries.insert(new.key().clone(), new.clone()),
                    None => entries.remove(key.as_str()),
                };
                let before = index.frequent.len();
                index.update(old.as_ref(), new.as_ref(), &entries);
                turned_frequent += usize::from(before < index.frequent.len());
                turned_rare += usize::from(index.frequent.len() < before);
                if revision % 20 == 0 {
                    assert_exact(&index, &entries);
                    kept.push((index.clone(), entries.clone()));
                }
            }
            for _ in 0..400 {
                let (index, entries) = &kept[rng.random_range(0..kept.len())];
                let filter = random_filter(&mut rng);
                by_index += usize::from(assert_complete(index, entries, &filter));
            }
        }
        assert!(by_index > 500, "{by_index} answers by index");
        assert!(turned_frequent > 20 && turned_rare > 20, "{turned_frequent} {turned_rare}");
    }

    #[test]
    fn the_term_that_the_fewest_meet_leads() {
        let rows = (0..900).map(|number| {
            let labels = format!("all=1,third={},own={number}", number % 3);
            let entry = pod(&format!("a/{number:04}"), &labels, "n1", 1);
            (entry.key().clone(), entry)
        });
        let entries = Entries::from_sorted(rows.collect());
        let index = LabelIndex::build(pods().fields, Bounds::default(), &entries);
        let equals = |name: &str, value: &str| Term::label(name, Test::Equals(value.into()));
        let count = |terms: &[Term]| {
            index.candidates(terms, &everything(), entries.len()).map(|candidates| candidates.count())
        };
        assert_eq!(count(&[equals("third", "1")]), Some(300));
        assert_eq!(count(&[equals("third", "1"), equals("own", "7")]), Some(1));
        assert_eq!(count(&[equals("third", "1"), equals("own", "none")]), Some(0));
        let two = Test::In(["7".into(), "8".into()].into());
        assert_eq!(count(&[equals("third", "1"), Term::label("own", two)]), Some(2));
        assert_eq!(count(&[equals("all", "1")]), None, "a scan is as cheap");
        assert_eq!(count(&[Term::label("own", Test::NotExists)]), None, "nothing positive");
        assert_eq!(index.count(&equals("third", "1")), Some(300));
    }

    #[test]
    fn what_most_objects_have_is_counted_and_not_kept() {
        let rows = (0..3_000).map(|number| {
            let entry = pod(&format!("a/{number:04}"), "app=web", "", 1);
            (entry.key().clone(), entry)
        });
        let mut entries = Entries::from_sorted(rows.collect());
        let mut index = LabelIndex::build(pods().fields, Bounds::default(), &entries);
        let web = Term::label("app", Test::Equals("web".into()));
        assert!(index.candidates(std::slice::from_ref(&web), &everything(), usize::MAX).is_none());
        assert_eq!(index.count(&web), Some(3_000));
        for number in 0..2_500 {
            let old = entries.remove(format!("a/{number:04}").as_str());
            index.update(old.as_ref(), None, &entries);
        }
        let again = index.candidates(&[web], &everything(), usize::MAX).expect("it is rare again");
        assert_eq!(again.count(), 500);
    }

    #[test]
    fn an_object_with_very_many_labels_costs_one_key_and_is_found() {
        let mut entries = Entries::default();
        let mut index = LabelIndex::build(pods().fields, Bounds::default(), &entries);
        let labels: Vec<String> = (0..5_000).map(|number| format!("l{number}=v")).collect();
        let entry = pod("a/heavy", &labels.join(","), "", 1);
        entries.insert(entry.key().clone(), entry.clone());
        index.update(None, Some(&entry), &entries);
        assert!(index.names.is_empty());
        let term = Term::label("l4999", Test::Equals("v".into()));
        let found = index.candidates(&[term], &everything(), usize::MAX).map(|found| found.count());
        assert_eq!(found, Some(1));
        entries.remove("a/heavy");
        index.update(Some(&entry), None, &entries);
        assert!(index.heavy.is_empty());
    }
}
