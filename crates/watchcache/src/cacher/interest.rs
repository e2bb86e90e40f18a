//! Which watchers an event can concern: found by what the object is, never by asking every watcher.
//!
//! A watcher stands in the one place that the fewest objects come by: under a term of its selector, or
//! under its scope. An event looks into the places of its object as it was and as it is, since an object
//! that leaves must reach those it leaves. What is found are candidates: each is then asked by its
//! filter. The cost follows the object's labels and the watchers found, not the watchers there are.

use super::bucket;
use super::event::Event;
use super::filter::{Filter, Term, Test};
use super::park::FoundBy;
use super::store::Version;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId(pub u64);

/// A watcher that asks for one of more values than this stands under its scope.
const PLACES_MAX: usize = 16;

#[derive(Debug)]
pub struct Interests {
    fields: Arc<[Arc<str>]>,
    buckets: HashMap<Box<str>, BTreeSet<WatcherId>>,
    places: HashMap<WatcherId, Vec<String>>,
}

/// Who may be concerned, each once.
#[derive(Debug)]
pub struct Found {
    pub watchers: Vec<WatcherId>,
    /// Places and watchers that were looked at.
    pub visited: usize,
}

impl Interests {
    /// `fields`: the selectable ones of the resource.
    pub fn new(fields: Arc<[Arc<str>]>) -> Interests {
        Interests { fields, buckets: HashMap::new(), places: HashMap::new() }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// `now`: the objects, by which it is judged how many come by a place.
    pub fn add(&mut self, id: WatcherId, filter: &Filter, now: &Version) {
        self.remove(id);
        let places = self.choose(filter, now);
        for place in &places {
            match self.buckets.get_mut(place.as_str()) {
                Some(bucket) => drop(bucket.insert(id)),
                None => drop(self.buckets.insert(place.as_str().into(), [id].into())),
            }
        }
        self.places.insert(id, places);
    }

    /// Whether a watcher with `filter` would stand under a term.
    pub fn found_by(&self, filter: &Filter, now: &Version) -> FoundBy {
        let by_scope = bucket::name_of_scope(filter.scope());
        if self.choose(filter, now) == [by_scope] { FoundBy::Scope } else { FoundBy::Term }
    }

    pub fn remove(&mut self, id: WatcherId) {
        let Some(places) = self.places.remove(&id) else { return };
        for place in &places {
            if let Some(bucket) = self.buckets.get_mut(place.as_str()) {
                bucket.remove(&id);
                if bucket.is_empty() {
                    self.buckets.remove(place.as_str());
                }
            }
        }
    }

    fn choose(&self, filter: &Filter, now: &Version) -> Vec<String> {
        let scope = filter.scope();
        let by_scope = vec![bucket::name_of_scope(scope)];
        if scope.name.is_some() {
            return by_scope;
        }
        // What is expected to come by, and of equals the narrower by its nature.
        let scope_rank = (now.count(scope), if scope.namespace.is_some() { 2 } else { 4 });
        let by_term = filter.terms().iter().filter_map(|term| self.place(term, now));
        match by_term.min_by_key(|(rank, _)| *rank) {
            Some((rank, places)) if rank < scope_rank => places,
            _ => by_scope,
        }
    }

    fn place(&self, term: &Term, now: &Version) -> Option<((usize, u8), Vec<String>)> {
        let places = bucket::names_of_term(term, &self.fields)?;
        if places.len() > PLACES_MAX {
            return None;
        }
        let nature = match &term.test {
            Test::Equals(_) => 0,
            Test::In(_) => 1,
            _ => 3,
        };
        Some(((now.index().count(term)?, nature), places))
    }

    pub fn find(&self, event: &Event) -> Found {
        let mut found = Found { watchers: Vec::new(), visited: 0 };
        let mut look = |name: &str| {
            found.visited += 1;
            if let Some(bucket) = self.buckets.get(name) {
                found.watchers.extend(bucket);
            }
        };
        let (old, new) = (event.previous(), event.current());
        let has_moved = old.zip(new).is_some_and(|(old, new)| !old.same_terms(new));
        if let Some(entry) = new.or(old) {
            // Both sides have one key, and so the same scopes.
            bucket::each_scope_name(entry, &mut look);
            bucket::each_term_name(entry, &mut look);
        }
        if let Some(old) = old.filter(|_| has_moved) {
            bucket::each_term_name(old, &mut look);
        }
        found.visited += found.watchers.len();
        // One side has one value of each label and field, and so comes by a watcher once at most.
        if has_moved {
            found.watchers.sort_unstable();
            found.watchers.dedup();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::Entry;
    use crate::cacher::entry::tests::{pod, pods};
    use crate::cacher::filter::Scope;
    use crate::cacher::filter::tests::random_filter;
    use crate::cacher::label_index::Bounds;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn nothing() -> Version {
        Version::new(&pods(), Bounds::default(), vec![], 1)
    }

    fn equals(name: &str, value: &str) -> Term {
        Term::label(name, Test::Equals(value.into()))
    }

    fn random_pod(rng: &mut StdRng, key: &str, revision: u64) -> Entry {
        let labels = format!("app={},n={}", rng.random_range(0..5), rng.random_range(0..5));
        pod(key, &labels, ["", "n1", "n2"][rng.random_range(0..3)], revision)
    }

    #[test]
    fn who_stands_under_a_term_is_found_by_it() {
        let interests = Interests::new(pods().fields);
        let now = Version::new(&pods(), Bounds::default(), vec![pod("a/1", "app=web", "", 1)], 1);
        let by = |filter: &Filter| interests.found_by(filter, &now);
        assert_eq!(by(&Filter::default()), FoundBy::Scope);
        assert_eq!(by(&Filter::new(Scope::object("a", "1"), vec![equals("app", "web")])), FoundBy::Scope);
        assert_eq!(by(&Filter::new(Scope::all(), vec![equals("app", "web")])), FoundBy::Term);
        let negative = Term::label("app", Test::NotEquals("web".into()));
        assert_eq!(by(&Filter::new(Scope::all(), vec![negative])), FoundBy::Scope);
    }

    #[test]
    fn nobody_whom_an_event_concerns_is_left_out_and_nobody_is_found_twice() {
        let (mut told, mut visited, mut asked) = (0, 0, 0);
        for seed in 0..15 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut interests = Interests::new(pods().fields);
            let mut model: BTreeMap<WatcherId, Filter> = BTreeMap::new();
            let mut now = nothing();
            for revision in 2..400 {
                let id = WatcherId(rng.random_range(0..60));
                if rng.random_bool(0.4) {
                    let filter = random_filter(&mut rng);
                    interests.add(id, &filter, &now);
                    model.insert(id, filter);
                } else {
                    interests.remove(id);
                    model.remove(&id);
                }
                let key = format!("{}/{}", ["a", "ab", "b"][rng.random_range(0..3)], rng.random_range(0..30));
                let encodes = Arc::default();
                let event = if rng.random_bool(0.7) {
                    let new = random_pod(&mut rng, &key, revision);
                    Event::put(now.put(new.clone()), new, 0, &encodes)
                } else {
                    let Some(old) = now.delete(&key) else { continue };
                    Event::deleted(old, revision, 0, &encodes)
                };
                let found = interests.find(&event);
                let once: BTreeSet<WatcherId> = found.watchers.iter().copied().collect();
                assert_eq!(once.len(), found.watchers.len(), "each once");
                for (id, filter) in &model {
                    if !event.told(filter).is_empty() {
                        assert!(once.contains(id), "{filter:?}");
                        told += 1;
                    }
                }
                visited += found.watchers.len();
                asked += model.len();
                assert_eq!(interests.len(), model.len());
            }
            let ids: Vec<WatcherId> = model.keys().copied().collect();
            ids.into_iter().for_each(|id| interests.remove(id));
            assert!(interests.buckets.is_empty(), "nothing is left behind");
        }
        assert!(told > 1_000 && visited * 2 < asked, "{told} told, {visited} visited, {asked} there");
    }

    #[test]
    fn a_hundred_thousand_watchers_that_are_not_concerned_are_not_looked_at() {
        let mut interests = Interests::new(pods().fields);
        let now = nothing();
        for number in 0..100_000 {
            let filter = match number % 4 {
                0 => Filter::new(Scope::all(), vec![equals("job", &number.to_string())]),
                1 => Filter::new(Scope::object("ns", &number.to_string()), vec![]),
                2 => Filter::new(Scope::namespace(&number.to_string()), vec![]),
                _ => {
                    let node = Test::Equals(number.to_string().into());
                    Filter::new(Scope::namespace("ns"), vec![Term::field("spec.nodeName", node)])
                }
            };
            interests.add(WatcherId(number), &filter, &now);
        }
        let old = pod("ns/web", "app=web,job=none", "n1", 1);
        let event = Event::put(Some(old), pod("ns/web", "app=web,job=0", "n2", 2), 0, &Arc::default());
        let found = interests.find(&event);
        assert_eq!(found.watchers, [WatcherId(0)]);
        assert!(found.visited <= 20, "{} visited", found.visited);
    }

    #[test]
    fn a_watcher_stands_where_the_fewest_objects_come_by() {
        let entries = (0..100).map(|number| {
            let labels = format!("app=web,half={}", number % 2);
            pod(&format!("{}/{number}", if number < 10 { "few" } else { "many" }), &labels, "", 1)
        });
        let now = Version::new(&pods(), Bounds::default(), entries.collect(), 1);
        let interests = Interests::new(pods().fields);
        let place = |filter: Filter| interests.choose(&filter, &now);
        let many = || Scope::namespace("many");
        let name = |term: &Term| bucket::names_of_term(term, &pods().fields).expect("it has a name");
        let both = vec![equals("app", "web"), equals("half", "1")];
        assert_eq!(place(Filter::new(Scope::all(), both.clone())), name(&both[1]));
        assert_eq!(place(Filter::new(many(), both.clone())), name(&both[1]));
        let few = Scope::namespace("few");
        assert_eq!(place(Filter::new(few.clone(), both.clone())), [bucket::name_of_scope(&few)]);
        let one = Scope::object("many", "50");
        assert_eq!(place(Filter::new(one.clone(), both)), [bucket::name_of_scope(&one)]);
        let negative = vec![Term::label("app", Test::NotExists)];
        assert_eq!(place(Filter::new(Scope::all(), negative)), [bucket::name_of_scope(&Scope::all())]);
    }

    #[test]
    fn an_object_that_leaves_a_node_reaches_the_watchers_of_both() {
        let mut interests = Interests::new(pods().fields);
        for (number, node) in ["n1", "n2", "n3"].into_iter().enumerate() {
            let term = Term::field("spec.nodeName", Test::Equals(node.into()));
            interests.add(WatcherId(number as u64), &Filter::new(Scope::all(), vec![term]), &nothing());
        }
        let event = Event::put(Some(pod("a/1", "", "n1", 1)), pod("a/1", "", "n2", 2), 0, &Arc::default());
        assert_eq!(interests.find(&event).watchers, [WatcherId(0), WatcherId(1)]);
    }
}
