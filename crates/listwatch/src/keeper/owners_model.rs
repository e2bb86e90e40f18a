//! A store of nothing but owners, changed at random, of which the graph hears late.

use super::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

fn uid(number: u32) -> Uid {
    number.to_string().into()
}

fn spot(number: u32) -> Spot {
    Spot { place: format!("kind{}", number % 3).into(), key: number.to_string().into() }
}

fn owner(number: u32, blocks: bool) -> Owner {
    Owner { group: "".into(), kind: "Any".into(), name: "any".into(), uid: uid(number), blocks }
}

fn object(number: u32, owners: &[(u32, bool)]) -> Sighting {
    let owners = owners.iter().map(|(number, blocks)| owner(*number, *blocks)).collect();
    Sighting { spot: spot(number), uid: uid(number), owners, leaving: None, wish: None }
}

enum Told {
    Saw(Sighting),
    Gone(Uid),
}

/// What the collector does, against a store of its own.
struct World {
    stored: BTreeMap<Uid, Sighting>,
    /// What the graph has not been told yet, by place: in order there, in any order between them.
    untold: BTreeMap<Arc<str>, VecDeque<Told>>,
    graph: Owners,
    queue: BTreeSet<Uid>,
    /// In the order in which they went.
    removed: Vec<Uid>,
    rng: StdRng,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            stored: BTreeMap::new(),
            untold: BTreeMap::new(),
            graph: Owners::default(),
            queue: BTreeSet::new(),
            removed: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    fn put(&mut self, object: Sighting) {
        if self.stored.get(&object.uid) == Some(&object) {
            return;
        }
        self.stored.insert(object.uid.clone(), object.clone());
        self.untold.entry(object.spot.place.clone()).or_default().push_back(Told::Saw(object));
    }

    fn remove(&mut self, uid: &Uid) {
        if let Some(object) = self.stored.remove(uid) {
            self.removed.push(uid.clone());
            self.untold.entry(object.spot.place).or_default().push_back(Told::Gone(uid.clone()));
        }
    }

    fn delete(&mut self, uid: &Uid, propagation: Propagation) {
        let Some(mut object) = self.stored.get(uid).cloned() else { return };
        let leaving = match propagation {
            Propagation::Background => return self.remove(uid),
            Propagation::Foreground => Leaving::Foreground,
            Propagation::Orphan => Leaving::Orphan,
        };
        (object.leaving, object.wish) = (Some(leaving), Some(propagation));
        self.put(object);
    }

    /// One of the places tells one change.
    fn tell(&mut self) -> bool {
        let places: Vec<Arc<str>> = self
            .untold
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(place, _)| place.clone())
            .collect();
        let Some(place) = places.choose(&mut self.rng) else { return false };
        let told = self.untold.get_mut(place).and_then(VecDeque::pop_front).expect("it has one");
        self.queue.extend(match told {
            Told::Saw(object) => self.graph.saw(object),
            Told::Gone(uid) => self.graph.gone(&uid),
        });
        true
    }

    /// As the shell does it.
    fn look(&mut self) -> bool {
        let queue: Vec<Uid> = self.queue.iter().cloned().collect();
        let Some(uid) = queue.choose(&mut self.rng) else { return false };
        self.queue.remove(uid);
        if self.graph.spot(uid).is_none() {
            return true;
        }
        let Some(object) = self.stored.get(uid).cloned() else { return true };
        let state = |owner: &Owner| match self.stored.get(&owner.uid) {
            None => OwnerState::Absent,
            Some(found) if found.leaving == Some(Leaving::Foreground) => OwnerState::Waits,
            Some(_) => OwnerState::Alive,
        };
        let states: Vec<OwnerState> = object.owners.iter().map(state).collect();
        let around = self.graph.around(uid);
        if around.leaving != object.leaving {
            // It will be told, and named.
            return true;
        }
        match step(&object, &states, around) {
            Step::Nothing | Step::Undecided => {}
            Step::Delete(propagation) => self.delete(uid, propagation),
            Step::Disown(owners) => self.disown(uid, &owners),
            Step::Unblock => {
                let mut object = object;
                object.owners.iter_mut().for_each(|owner| owner.blocks = false);
                self.put(object);
            }
            Step::Orphan(dependents) => {
                for dependent in dependents {
                    self.disown(&dependent.uid, std::slice::from_ref(uid));
                }
                self.queue.insert(uid.clone());
            }
            Step::Release(_) => self.remove(uid),
        }
        true
    }

    fn disown(&mut self, uid: &Uid, owners: &[Uid]) {
        let Some(mut object) = self.stored.get(uid).cloned() else { return };
        object.owners.retain(|owner| !owners.contains(&owner.uid));
        self.put(object);
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            let told_first = self.rng.random_bool(0.5);
            let moved = (told_first && self.tell()) || self.look() || self.tell();
            if !moved {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn settle_a_little(&mut self) {
        for _ in 0..self.rng.random_range(0..6) {
            if self.rng.random_bool(0.5) {
                self.tell()
            } else {
                self.look()
            };
        }
    }

    fn left(&self) -> BTreeSet<Uid> {
        self.stored.keys().cloned().collect()
    }
}

/// Objects whose owners are older ones, or were never there.
fn populate(world: &mut World, count: u32) -> BTreeMap<Uid, Vec<Uid>> {
    let mut owners_of = BTreeMap::new();
    for number in 0..count {
        let owners: Vec<(u32, bool)> = (0..world.rng.random_range(0..3))
            .map(|_| {
                let known = 0 < number && world.rng.random_ratio(9, 10);
                let owner = if known { world.rng.random_range(0..number) } else { 1_000 + number };
                (owner, world.rng.random_bool(0.5))
            })
            .collect();
        let made = object(number, &owners);
        owners_of.insert(made.uid.clone(), made.owners.iter().map(|owner| owner.uid.clone()).collect());
        world.put(made);
        world.settle_a_little();
    }
    owners_of
}

#[test]
fn what_is_left_is_what_a_living_root_owns() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        let owners_of = populate(&mut world, 25);
        let mut deleted = BTreeSet::new();
        for _ in 0..world.rng.random_range(0..8) {
            let target = uid(world.rng.random_range(0..25));
            let propagation =
                if world.rng.random_bool(0.5) { Propagation::Background } else { Propagation::Foreground };
            world.delete(&target, propagation);
            deleted.insert(target);
            world.settle_a_little();
        }
        world.settle();
        let mut expected: BTreeSet<Uid> = BTreeSet::new();
        for number in 0..25 {
            let owners = &owners_of[&uid(number)];
            let is_owned = owners.is_empty() || owners.iter().any(|owner| expected.contains(owner));
            if is_owned && !deleted.contains(&uid(number)) {
                expected.insert(uid(number));
            }
        }
        assert_eq!(world.left(), expected, "seed {seed}");
        assert!(world.stored.values().all(|object| object.leaving.is_none()), "seed {seed}");
    }
}

#[test]
fn what_is_orphaned_stays() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        let owners_of = populate(&mut world, 25);
        world.settle();
        let before = world.left();
        // Only orphaning deletions: nothing but the deleted themselves may go.
        let mut deleted = BTreeSet::new();
        for _ in 0..6 {
            let target = uid(world.rng.random_range(0..25));
            world.delete(&target, Propagation::Orphan);
            deleted.insert(target);
            world.settle_a_little();
        }
        world.settle();
        let expected: BTreeSet<Uid> = before.difference(&deleted).cloned().collect();
        assert_eq!(world.left(), expected, "seed {seed}");
        for object in world.stored.values() {
            assert!(object.owners.iter().all(|owner| expected.contains(&owner.uid)), "seed {seed}");
            assert!(object.owners.len() <= owners_of[&object.uid].len());
        }
    }
}

#[test]
fn in_the_foreground_what_holds_back_goes_before_what_it_holds_back() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        let mut edges = Vec::new();
        for number in 0..20_u32 {
            let owners: Vec<(u32, bool)> = (0..number.min(1))
                .map(|_| (world.rng.random_range(0..number), world.rng.random_bool(0.7)))
                .collect();
            edges.extend(
                owners.iter().filter(|(_, blocks)| *blocks).map(|(owner, _)| (uid(number), uid(*owner))),
            );
            world.put(object(number, &owners));
        }
        world.settle();
        world.delete(&uid(0), Propagation::Foreground);
        world.settle();
        assert!(world.left().is_empty(), "seed {seed}: a tree goes with its root");
        let at = |uid: &Uid| world.removed.iter().position(|each| each == uid).expect("it went");
        // Below a dependent that does not hold back, everything may go as it comes.
        let held = |uid: &Uid| {
            let mut next = uid.clone();
            while let Some((_, owner)) = edges.iter().find(|(dependent, _)| *dependent == next) {
                next = owner.clone();
            }
            next == self::uid(0)
        };
        for (dependent, owner) in edges.iter().filter(|(dependent, _)| held(dependent)) {
            assert!(at(dependent) < at(owner), "seed {seed}: {dependent} after {owner}");
        }
    }
}

#[test]
fn objects_that_own_each_other_do_not_wait_forever() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        let length = world.rng.random_range(2..6);
        for number in 0..length {
            world.put(object(number, &[((number + 1) % length, true)]));
        }
        world.settle();
        assert_eq!(world.left().len(), length as usize, "they keep each other");
        world.delete(&uid(0), Propagation::Foreground);
        if world.rng.random_bool(0.3) {
            world.delete(&uid(1), Propagation::Foreground);
        }
        world.settle();
        assert!(world.left().is_empty(), "seed {seed}: {:?}", world.stored);
    }
}

#[test]
fn an_owner_that_cannot_be_told_keeps_its_dependents() {
    let object = object(1, &[(2, false), (3, false)]);
    use OwnerState::{Absent, Alive, Unknown, Waits};
    let steps = |states: &[OwnerState]| step(&object, states, Around::default());
    assert_eq!(steps(&[Absent, Unknown]), Step::Undecided);
    assert_eq!(steps(&[Alive, Unknown]), Step::Nothing);
    assert_eq!(steps(&[Absent, Absent]), Step::Delete(Propagation::Background));
    assert_eq!(steps(&[Absent, Alive]), Step::Disown(vec![uid(2)]));
    assert_eq!(steps(&[Alive, Waits]), Step::Disown(vec![uid(3)]));
}

#[test]
fn what_happened_unseen_is_found_out() {
    let mut graph = Owners::default();
    graph.saw(object(1, &[(0, false)]));
    graph.saw(object(2, &[(1, false)]));
    graph.saw(object(4, &[(9, false)]));
    // 1 and 4 are of one kind, and 1 went while nobody watched.
    let followed = |kind: &str| Followed { place: "kind1".into(), group: "".into(), kind: kind.into() };
    let named = graph.relisted(&followed("Other"), &HashSet::from([uid(4)]));
    assert_eq!(named, [uid(2)]);
    let named = graph.relisted(&followed("Any"), &HashSet::from([uid(4)]));
    assert_eq!(named, [uid(2), uid(4)], "whoever has an owner of the kind is looked at");
    assert_eq!(graph.spot(&uid(1)), None);
    graph.gone(&uid(2));
    graph.gone(&uid(4));
    assert!(graph.known.is_empty() && graph.dependents.is_empty(), "nothing is kept of what is gone");
}

#[test]
fn an_object_is_read_from_its_metadata() {
    let shape = meerkat_watchcache::cacher::entry::Shape::new("v1", "Pod", true, &[]);
    let json = serde_json::json!({ "metadata": {
        "uid": "u", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a/b", "foregroundDeletion"],
        "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "blockOwnerDeletion": true },
            { "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "p" },
        ],
    }});
    let entry = Entry::decode(&shape, "a/b", json.to_string().as_bytes(), 5).expect("good");
    let seen = Sighting::of(&"pods".into(), &entry).expect("good");
    assert_eq!((seen.leaving, seen.wish), (Some(Leaving::Foreground), Some(Propagation::Foreground)));
    assert_eq!((&*seen.owners[0].group, &*seen.owners[1].group), ("apps", ""));
    assert_eq!((seen.owners[0].blocks, seen.owners[1].blocks), (true, false));
    let nobody = Entry::decode(&shape, "a/b", br#"{"metadata":{}}"#, 5).expect("good");
    assert_eq!(Sighting::of(&"pods".into(), &nobody), None);
}
