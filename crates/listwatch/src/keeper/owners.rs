//! Who belongs to whom, and what follows from it.
//!
//! [`Owners`] knows of every object that has an owner, or that goes and does something about its dependents
//! first; of all others it knows nothing. It is told of each change and names the objects to look at.
//! [`step`] then decides on one of them, from what the store says of it and of its owners at that time. So
//! what is known here may be late, but nothing is deleted on the word of it.
//!
//! One step is done at a time. What it changes comes back as a change, and names the next.

use crate::write_options::Propagation;
use meerkat_kubernetes::object::check::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use meerkat_watchcache::cacher::entry::Entry;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub type Uid = Arc<str>;

/// Where an object is: the place of its kind below `/registry/`, and its key there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    pub place: Arc<str>,
    pub key: Arc<str>,
}

/// A kind whose objects are followed: where they are, and how references name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    pub place: Arc<str>,
    pub group: Box<str>,
    pub kind: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub group: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    /// The owner cannot go before this dependent if it goes after its dependents.
    pub blocks: bool,
}

/// How an object goes that is marked for deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// By itself, or when others let it.
    Plain,
    /// After its dependents.
    Foreground,
    /// After its dependents no longer name it.
    Orphan,
}

/// What concerns us of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub spot: Spot,
    pub uid: Uid,
    pub owners: Vec<Owner>,
    pub leaving: Option<Leaving>,
    /// The finalizer that decides how it goes once it is deleted, whoever put it there.
    pub wish: Option<Propagation>,
}

/// Of whatever shape: others can write to the store too.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    deletion_timestamp: Value,
    finalizers: Value,
    owner_references: Value,
}

impl Sighting {
    /// Nothing if it has no uid.
    pub fn of(place: &Arc<str>, entry: &Entry) -> Option<Sighting> {
        if entry.uid().is_empty() {
            return None;
        }
        let mut json = Vec::new();
        entry.write_metadata(entry.revision(), &mut json);
        let metadata: Metadata = serde_json::from_slice(&json).ok()?;
        let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let finalizers = all(&metadata.finalizers);
        let has = |name: &str| finalizers.iter().any(|each| each == name);
        let wish = match (has(ORPHAN_FINALIZER), has(FOREGROUND_FINALIZER)) {
            (true, _) => Some(Propagation::Orphan),
            (_, true) => Some(Propagation::Foreground),
            _ => None,
        };
        let leaving = metadata.deletion_timestamp.as_str().map(|_| match wish {
            Some(Propagation::Orphan) => Leaving::Orphan,
            Some(Propagation::Foreground) => Leaving::Foreground,
            _ => Leaving::Plain,
        });
        Some(Sighting {
            spot: Spot { place: place.clone(), key: entry.key().clone() },
            uid: entry.uid().into(),
            owners: all(&metadata.owner_references).iter().map(Owner::of).collect(),
            leaving,
            wish,
        })
    }

    fn is_known(&self) -> bool {
        !self.owners.is_empty() || self.is_held()
    }

    fn is_held(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Foreground | Leaving::Orphan))
    }
}

impl Owner {
    /// A reference that does not say whom it means is one of no kind, of which there is no telling.
    fn of(reference: &Value) -> Owner {
        let text = |field: &str| reference[field].as_str();
        let named = text("apiVersion").zip(text("kind")).zip(text("name")).zip(text("uid"));
        let (((api_version, kind), name), uid) = named.unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let blocks = reference["blockOwnerDeletion"] == true;
        Owner { group: group.into(), kind: kind.into(), name: name.into(), uid: uid.into(), blocks }
    }
}

/// An object that names another as its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    pub spot: Spot,
    pub uid: Uid,
}

/// What is known around an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// As it was last seen.
    pub leaving: Option<Leaving>,
    /// Whom it has to make orphans of before it goes.
    pub orphans: Vec<Dependent>,
    pub has_dependents: bool,
    /// A dependent must go before it, if it goes after its dependents.
    pub is_blocked: bool,
    /// It waits, over some dependents that wait too, for itself.
    pub is_circular: bool,
}

#[derive(Debug, Default)]
pub struct Owners {
    known: HashMap<Uid, Sighting>,
    /// By owner, be it known or not.
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

impl Owners {
    /// An object as it is now. Names the objects to look at.
    pub fn saw(&mut self, sighting: Sighting) -> Vec<Uid> {
        let uid = sighting.uid.clone();
        let before = self.known.remove(&uid);
        let old = before.as_ref().map_or(&[][..], |before| &before.owners);
        let mut named = BTreeSet::new();
        if *old != *sighting.owners {
            for owner in old.iter().chain(&sighting.owners) {
                named.extend(self.held(&owner.uid));
            }
            for owner in old {
                self.unlink(&owner.uid, &uid);
            }
            for owner in &sighting.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            }
            if !sighting.owners.is_empty() {
                named.insert(uid.clone());
            }
        }
        if sighting.is_held() && before.as_ref().and_then(|before| before.leaving) != sighting.leaving {
            named.insert(uid.clone());
            named.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        if sighting.is_known() {
            self.known.insert(uid, sighting);
        }
        named.into_iter().collect()
    }

    /// An object is no more. Names the objects to look at.
    pub fn gone(&mut self, uid: &Uid) -> Vec<Uid> {
        let mut named: BTreeSet<Uid> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        for owner in self.known.remove(uid).map(|before| before.owners).unwrap_or_default() {
            named.extend(self.held(&owner.uid));
            self.unlink(&owner.uid, uid);
        }
        named.into_iter().collect()
    }

    /// All objects of a kind were seen anew, and what happened in between was not: those that are not among
    /// `seen` are gone, and any owner of that kind may be. `seen` needs not name those that are not known.
    pub fn relisted(&mut self, of: &Followed, seen: &HashSet<Uid>) -> Vec<Uid> {
        let missed = |each: &&Sighting| each.spot.place == of.place && !seen.contains(&each.uid);
        let missed: Vec<Uid> = self.known.values().filter(missed).map(|each| each.uid.clone()).collect();
        let mut named: BTreeSet<Uid> = missed.iter().flat_map(|uid| self.gone(uid)).collect();
        let is_of = |owner: &Owner| owner.group == of.group && owner.kind == of.kind;
        let theirs = self.known.values().filter(|each| each.owners.iter().any(is_of));
        named.extend(theirs.map(|each| each.uid.clone()));
        named.into_iter().collect()
    }

    /// A kind is no longer served, and its objects are no longer followed.
    pub fn ended(&mut self, place: &str) -> Vec<Uid> {
        let theirs = self.known.values().filter(|each| *each.spot.place == *place);
        let theirs: Vec<Uid> = theirs.map(|each| each.uid.clone()).collect();
        theirs.iter().flat_map(|uid| self.gone(uid)).collect()
    }

    /// Nothing if there is nothing to be done about it.
    pub fn spot(&self, uid: &Uid) -> Option<&Spot> {
        self.known.get(uid).map(|sighting| &sighting.spot)
    }

    pub fn around(&self, uid: &Uid) -> Around {
        let leaving = self.known.get(uid).and_then(|sighting| sighting.leaving);
        let is_blocked = leaving == Some(Leaving::Foreground) && self.blocking(uid).next().is_some();
        let orphan = |each: &Sighting| Dependent { spot: each.spot.clone(), uid: each.uid.clone() };
        Around {
            leaving,
            orphans: match leaving {
                Some(Leaving::Orphan) => self.dependents(uid).map(orphan).collect(),
                _ => Vec::new(),
            },
            has_dependents: self.dependents(uid).next().is_some(),
            is_blocked,
            is_circular: is_blocked && self.is_circular(uid),
        }
    }

    /// Nobody depends on himself.
    fn dependents<'a>(&'a self, uid: &'a Uid) -> impl Iterator<Item = &'a Sighting> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter(move |each| *each != uid).filter_map(|each| self.known.get(each))
    }

    fn blocking<'a>(&'a self, uid: &'a Uid) -> impl Iterator<Item = &'a Sighting> {
        let blocks =
            move |each: &&Sighting| each.owners.iter().any(|owner| owner.uid == *uid && owner.blocks);
        self.dependents(uid).filter(blocks)
    }

    fn is_circular(&self, uid: &Uid) -> bool {
        let (mut seen, mut ahead) = (HashSet::new(), vec![uid]);
        while let Some(next) = ahead.pop() {
            for each in self.blocking(next).filter(|each| each.leaving == Some(Leaving::Foreground)) {
                if each.uid == *uid {
                    return true;
                }
                if seen.insert(&each.uid) {
                    ahead.push(&each.uid);
                }
            }
        }
        false
    }

    /// The object, if it goes and does something about its dependents first.
    fn held(&self, uid: &Uid) -> Option<Uid> {
        self.known.get(uid).filter(|sighting| sighting.is_held()).map(|sighting| sighting.uid.clone())
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(all) = self.dependents.get_mut(owner) {
            all.remove(dependent);
            if all.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

/// What the store says of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    Alive,
    /// It goes after its dependents.
    Waits,
    /// There is no object of that kind, name and uid.
    Absent,
    /// There is no telling: its kind is not served, or cannot own an object like this.
    Unknown,
}

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Nothing, as long as there is no telling.
    Undecided,
    Delete(Propagation),
    /// It no longer names these owners.
    Disown(Vec<Uid>),
    /// It no longer holds back its owners: they wait for each other.
    Unblock,
    /// Its dependents no longer name it.
    Orphan(Vec<Dependent>),
    /// This finalizer is done.
    Release(&'static str),
}

/// `states`: of its owners, in their order; not looked at if it goes. `around`: as it is known, of the object
/// as it goes or does not go now.
pub fn step(object: &Sighting, states: &[OwnerState], around: Around) -> Step {
    match object.leaving {
        Some(Leaving::Orphan) if around.orphans.is_empty() => return Step::Release(ORPHAN_FINALIZER),
        Some(Leaving::Orphan) => return Step::Orphan(around.orphans),
        Some(Leaving::Foreground) if around.is_blocked => {
            let holds_back = object.owners.iter().any(|owner| owner.blocks);
            return if around.is_circular && holds_back { Step::Unblock } else { Step::Nothing };
        }
        Some(Leaving::Foreground) => return Step::Release(FOREGROUND_FINALIZER),
        Some(Leaving::Plain) => return Step::Nothing,
        None if object.owners.is_empty() => return Step::Nothing,
        None => {}
    }
    let are = |state: OwnerState| states.contains(&state);
    if are(OwnerState::Alive) {
        let is_over = |state: &OwnerState| matches!(state, OwnerState::Absent | OwnerState::Waits);
        let over = object.owners.iter().zip(states).filter(|(_, state)| is_over(state));
        let over: Vec<Uid> = over.map(|(owner, _)| owner.uid.clone()).collect();
        return if over.is_empty() { Step::Nothing } else { Step::Disown(over) };
    }
    if are(OwnerState::Unknown) {
        return Step::Undecided;
    }
    if are(OwnerState::Waits) && around.has_dependents {
        return Step::Delete(Propagation::Foreground);
    }
    Step::Delete(object.wish.unwrap_or(Propagation::Background))
}

#[cfg(test)]
#[path = "owners_model.rs"]
mod model;
