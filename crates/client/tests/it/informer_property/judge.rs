//! What an informer owes, as rules over what was seen of it. Knows nothing of how it works.
//!
//! * Cache: at every moment it is exactly what a list at the revision it claims would give; values
//!   that cannot be decoded are kept apart; every index agrees with the objects.
//! * Each handler, for each key: `Added` first, then changes and warnings that follow from what it was
//!   told, then gone, then perhaps `Added` again. States are real, and never older than one told before.
//! * In the end each handler knows the final state.

use super::world::{State, World};
use bytes::Bytes;
use meerkat_client::KeyValue;
use meerkat_client::informer::{Delta, Object, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Values that begin with this cannot be decoded.
pub const BAD: &[u8] = b"!";
pub const INDEX: &str = "first letter";

pub fn decode(kv: &KeyValue) -> Result<String, String> {
    if kv.value.starts_with(BAD) {
        return Err("a value that begins with an exclamation mark".to_owned());
    }
    String::from_utf8(kv.value.to_vec()).map_err(|error| error.to_string())
}

pub fn index(value: &str) -> Vec<String> {
    value.chars().take(1).map(String::from).collect()
}

/// A state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub modified: i64,
    pub value: String,
}

impl From<&Object<String>> for Known {
    fn from(object: &Object<String>) -> Known {
        Known { modified: object.modified.get(), value: object.value.clone() }
    }
}

/// What a cache looked like at one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    pub revision: Option<i64>,
    pub objects: BTreeMap<Bytes, Known>,
    pub rejected: BTreeSet<Bytes>,
    pub indexed: BTreeMap<String, Vec<Bytes>>,
}

impl Seen {
    pub fn of(snapshot: &Snapshot<String>) -> Seen {
        let known = |object: &Object<String>| (object.key.clone(), Known::from(object));
        let found = |value: &str| {
            let objects = snapshot.by_index(INDEX, value).expect("the index exists");
            (value.to_owned(), objects.map(|object| object.key.clone()).collect())
        };
        Seen {
            revision: snapshot.revision().map(|revision| revision.get()),
            objects: snapshot.iter().map(|object| known(object)).collect(),
            rejected: snapshot.rejected().map(|rejected| rejected.key.clone()).collect(),
            indexed: snapshot.index_values(INDEX).expect("the index exists").map(found).collect(),
        }
    }
}

/// What a list of `state` would give.
pub fn expected(state: &State) -> (BTreeMap<Bytes, Known>, BTreeSet<Bytes>) {
    let (mut objects, mut rejected) = (BTreeMap::new(), BTreeSet::new());
    for (key, kv) in state {
        match decode(kv) {
            Ok(value) => drop(objects.insert(key.clone(), Known { modified: kv.modified.get(), value })),
            Err(_) => drop(rejected.insert(key.clone())),
        }
    }
    (objects, rejected)
}

/// Judges one look at the cache.
pub fn cache(world: &World, seen: &Seen) -> Result<(), String> {
    let Some(revision) = seen.revision else {
        let bare = seen.objects.is_empty() && seen.rejected.is_empty() && seen.indexed.is_empty();
        return if bare { Ok(()) } else { Err("objects before the first list".to_owned()) };
    };
    let state = world.at(revision).ok_or_else(|| format!("claims revision {revision}, which is not yet"))?;
    let (objects, rejected) = expected(state);
    if objects != seen.objects {
        return Err(format!("at {revision} there is {objects:?}, the cache has {:?}", seen.objects));
    }
    if rejected != seen.rejected {
        return Err(format!("at {revision} undecodable are {rejected:?}, not {:?}", seen.rejected));
    }
    let mut indexed: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
    for (key, known) in &objects {
        for value in index(&known.value) {
            indexed.entry(value).or_default().push(key.clone());
        }
    }
    if indexed != seen.indexed {
        return Err(format!("at {revision} the index should be {indexed:?}, is {:?}", seen.indexed));
    }
    Ok(())
}

/// What a handler was told, with what matters of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Added(Bytes, Known),
    Updated { key: Bytes, old: Known, new: Known },
    Gone { key: Bytes, last: Known, unseen: bool },
    Doubted(Bytes, Known),
    Resync(Bytes, Known),
}

impl Told {
    pub fn of(delta: &Delta<String>) -> Told {
        let key = delta.key().clone();
        match delta {
            Delta::Added(object) => Told::Added(key, Known::from(&**object)),
            Delta::Updated { old, new } => {
                Told::Updated { key, old: Known::from(&**old), new: Known::from(&**new) }
            }
            Delta::Deleted { last, unseen } => {
                Told::Gone { key, last: Known::from(&**last), unseen: *unseen }
            }
            Delta::Undecodable { last, .. } => Told::Doubted(key, Known::from(&**last)),
            Delta::Resync(object) => Told::Resync(key, Known::from(&**object)),
        }
    }

    pub fn key(&self) -> &Bytes {
        match self {
            Told::Added(key, _) | Told::Doubted(key, _) | Told::Resync(key, _) => key,
            Told::Updated { key, .. } | Told::Gone { key, .. } => key,
        }
    }
}

/// Judges everything one handler was told, and what it must know in the end: the state at `last`.
pub fn handler(world: &World, told: &[Told], last: i64) -> Result<(), String> {
    let mut view: BTreeMap<Bytes, Known> = BTreeMap::new();
    let mut newest: BTreeMap<Bytes, i64> = BTreeMap::new();
    for (number, one) in told.iter().enumerate() {
        let key = one.key();
        let (past, now) = match one {
            Told::Added(_, now) => (None, Some(now)),
            Told::Updated { old, new, .. } => (Some(old), Some(new)),
            Told::Gone { last, .. } => (Some(last), None),
            Told::Doubted(_, same) | Told::Resync(_, same) => (Some(same), Some(same)),
        };
        if view.get(key) != past {
            return Err(format!("number {number}, {one:?}: it knew {:?}", view.get(key)));
        }
        view.remove(key);
        let Some(now) = now else { continue };
        real(world, key, now).map_err(|error| format!("number {number}, {one:?}: {error}"))?;
        let before = newest.insert(key.clone(), now.modified).unwrap_or(0);
        let fresh = if past == Some(now) { before == now.modified } else { before < now.modified };
        if !fresh {
            return Err(format!("number {number}, {one:?}: it was told of {before} before"));
        }
        view.insert(key.clone(), now.clone());
    }
    ending(world, told, view, last)
}

/// What it knows at the end: everything there is; and of what cannot be decoded at most what it was
/// before, with the warning as the last word.
fn ending(world: &World, told: &[Told], view: BTreeMap<Bytes, Known>, last: i64) -> Result<(), String> {
    let state = world.at(last).ok_or("ended in the future")?;
    let (objects, rejected) = expected(state);
    let (doubtful, certain): (BTreeMap<_, _>, BTreeMap<_, _>) =
        view.into_iter().partition(|(key, _)| rejected.contains(key));
    if certain != objects {
        return Err(format!("at {last} there is {objects:?}, it knows {certain:?}"));
    }
    for key in doubtful.keys() {
        let word = told.iter().rev().find(|one| one.key() == key);
        if !matches!(word, Some(Told::Doubted(..))) {
            return Err(format!("{key:?} cannot be decoded, and the last word was {word:?}"));
        }
    }
    Ok(())
}

/// Whether the key ever was in that state.
fn real(world: &World, key: &Bytes, known: &Known) -> Result<(), String> {
    let kv = world.at(known.modified).and_then(|state| state.get(key));
    let same =
        kv.is_some_and(|kv| kv.modified.get() == known.modified && decode(kv).as_ref() == Ok(&known.value));
    if same { Ok(()) } else { Err("there never was such a state".to_owned()) }
}
