//! The cache: what is there at one revision, for any number of readers.
//!
//! A reader takes a [`Snapshot`], which never changes: it is the whole range at one revision, its
//! indexes included. Taking one costs an atomic load, holding it stops nobody, and while it is held
//! only what has changed since costs memory. This is why the maps are persistent trees (updates copy
//! one path and share the rest) and not a hash map behind a lock: an update of 100,000 objects with an
//! index costs some tens of microseconds, and no reader, however slow, ever keeps the writer waiting.
//!
//! The one [`Writer`] changes its own copy, and publishes it when a whole revision or a whole list is
//! in it; half of one is never to be seen.

use arc_swap::ArcSwap;
use bytes::Bytes;
use rpds::RedBlackTreeMapSync;
use std::fmt;
use std::sync::Arc;

use super::object::{Delta, Object};
use crate::watch::Changes;
use crate::{EventKind, KeyValue, Revision};

pub(crate) type Decode<T> = Box<dyn Fn(&KeyValue) -> Result<T, String> + Send + Sync>;
pub(crate) type IndexBy<T> = Box<dyn Fn(&Object<T>) -> Vec<String> + Send + Sync>;

type ByKey<V> = RedBlackTreeMapSync<Bytes, V>;
type Index<T> = RedBlackTreeMapSync<Arc<str>, ByKey<Arc<Object<T>>>>;

/// The range as it was at one revision.
pub struct Snapshot<T> {
    revision: Option<Revision>,
    objects: ByKey<Entry<T>>,
    rejected: ByKey<Refusal<T>>,
    index_names: Arc<[String]>,
    indexes: Vec<Index<T>>,
}

struct Entry<T> {
    object: Arc<Object<T>>,
    /// Where each index has it. Kept, not computed again when it leaves: an index function that gave
    /// another answer the second time would leave it behind in the index for ever.
    terms: Arc<[Vec<Arc<str>>]>,
}

struct Refusal<T> {
    rejected: Arc<Rejected>,
    /// The last state that could be decoded, which is what handlers know of the key.
    last: Option<Arc<Object<T>>>,
}

/// A key whose value the decoder refused, and which is therefore not among the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// The key.
    pub key: Bytes,
    /// The write that the value comes from.
    pub modified: Revision,
    /// What the decoder said.
    pub reason: Arc<str>,
}

/// There is no index of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has no index named {0:?}; name it in its builder with indexer()")]
pub struct UnknownIndex(pub String);

impl<T> Snapshot<T> {
    /// The revision whose state this is. Nothing before the first list is complete.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// The object at this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Arc<Object<T>>> {
        self.objects.get(key.as_ref()).map(|entry| &entry.object)
    }

    /// All objects, by rising key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        self.objects.values().map(|entry| &entry.object)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects for which the index function of that name gave this value, by rising key.
    pub fn by_index(
        &self,
        name: &str,
        value: &str,
    ) -> Result<impl Iterator<Item = &Arc<Object<T>>>, UnknownIndex> {
        let index = self.index(name)?;
        Ok(index.get(value).into_iter().flat_map(|objects| objects.values()))
    }

    /// The values that the index of that name has objects for, rising.
    pub fn index_values(&self, name: &str) -> Result<impl Iterator<Item = &str>, UnknownIndex> {
        Ok(self.index(name)?.keys().map(|value| &**value))
    }

    /// The keys that are in the range but not among the objects, because their values could not be
    /// decoded. A key leaves when its value can be decoded again, or when it is deleted.
    pub fn rejected(&self) -> impl Iterator<Item = &Arc<Rejected>> {
        self.rejected.values().map(|refusal| &refusal.rejected)
    }

    /// Those of the rejected keys that handlers know, each with what they know of it.
    pub(crate) fn in_doubt(&self) -> impl Iterator<Item = (&Arc<Object<T>>, &Arc<str>)> {
        self.rejected.values().filter_map(|refusal| Some((refusal.last.as_ref()?, &refusal.rejected.reason)))
    }

    fn index(&self, name: &str) -> Result<&Index<T>, UnknownIndex> {
        let place = self.index_names.iter().position(|known| known == name);
        place.map(|place| &self.indexes[place]).ok_or_else(|| UnknownIndex(name.to_owned()))
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Snapshot {
            revision: self.revision,
            objects: self.objects.clone(),
            rejected: self.rejected.clone(),
            index_names: Arc::clone(&self.index_names),
            indexes: self.indexes.clone(),
        }
    }
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Entry { object: Arc::clone(&self.object), terms: Arc::clone(&self.terms) }
    }
}

impl<T> Clone for Refusal<T> {
    fn clone(&self) -> Self {
        Refusal { rejected: Arc::clone(&self.rejected), last: self.last.clone() }
    }
}

impl<T> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.revision.map(Revision::get);
        write!(f, "Snapshot {{ revision: {revision:?}, objects: {} }}", self.len())
    }
}

/// The readers' handle. Clones read the same cache. It stays readable when the informer has stopped,
/// and then no longer changes.
pub struct Store<T> {
    published: Arc<ArcSwap<Snapshot<T>>>,
}

impl<T> Store<T> {
    /// What is there now. Several questions that must agree are asked of one snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot<T>> {
        self.published.load_full()
    }

    /// The revision this cache claims to equal: a list of the range at that revision has the same
    /// objects. Nothing before the first list is complete.
    pub fn revision(&self) -> Option<Revision> {
        self.published.load().revision
    }

    /// The object at this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Arc<Object<T>>> {
        self.published.load().get(key).cloned()
    }

    /// All objects, by rising key.
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.published.load().iter().cloned().collect()
    }

    /// The objects for which the index function of that name gave this value, by rising key.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, UnknownIndex> {
        Ok(self.published.load().by_index(name, value)?.cloned().collect())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.published.load().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Store { published: Arc::clone(&self.published) }
    }
}

impl<T> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.published.load().fmt(f)
    }
}

/// The one that changes the cache.
///
/// [`Writer::replace`] and [`Writer::apply`] change its own copy and say what is different;
/// [`Writer::publish`] shows it. The two are apart so that decoding, which may be slow, happens
/// outside the lock that keeps cache and handlers in step.
pub(crate) struct Writer<T> {
    decode: Decode<T>,
    index_by: Vec<IndexBy<T>>,
    /// What entries without any index share.
    no_terms: Arc<[Vec<Arc<str>>]>,
    next: Snapshot<T>,
    store: Store<T>,
    decode_errors: u64,
}

impl<T> Writer<T> {
    pub(crate) fn new(decode: Decode<T>, indexers: Vec<(String, IndexBy<T>)>) -> Writer<T> {
        let (names, index_by): (Vec<String>, Vec<IndexBy<T>>) = indexers.into_iter().unzip();
        let next = Snapshot {
            revision: None,
            objects: ByKey::new_sync(),
            rejected: ByKey::new_sync(),
            index_names: names.into(),
            indexes: index_by.iter().map(|_| Index::new_sync()).collect(),
        };
        let store = Store { published: Arc::new(ArcSwap::from_pointee(next.clone())) };
        Writer { decode, index_by, no_terms: Arc::from([]), next, store, decode_errors: 0 }
    }

    /// The handle to read by.
    pub(crate) fn store(&self) -> &Store<T> {
        &self.store
    }

    /// Values refused by the decoder so far.
    pub(crate) fn decode_errors(&self) -> u64 {
        self.decode_errors
    }

    /// Makes the cache exactly `kvs`, which rise by key. Objects that did not change stay the same
    /// allocation, and are not decoded again.
    pub(crate) fn replace(&mut self, revision: Revision, kvs: &[KeyValue]) -> Vec<Delta<T>> {
        let listed = |key: &Bytes| kvs.binary_search_by(|kv| kv.key.cmp(key)).is_ok();
        let known = self.next.objects.keys().chain(self.next.rejected.keys());
        let gone: Vec<Bytes> = known.filter(|key| !listed(key)).cloned().collect();
        let mut deltas = Vec::new();
        for key in gone {
            deltas.extend(self.forget(&key).map(|last| Delta::Deleted { last, unseen: true }));
        }
        for kv in kvs {
            deltas.extend(self.put(kv));
        }
        self.next.revision = Some(revision);
        deltas
    }

    /// Brings the cache to the revision of `changes`. If that is where it is, what it has already is
    /// passed over.
    pub(crate) fn apply(&mut self, changes: &Changes) -> Vec<Delta<T>> {
        let again = self.next.revision == Some(changes.revision);
        let mut deltas = Vec::with_capacity(changes.events.len());
        for event in &changes.events {
            match &event.kind {
                EventKind::Put(kv) => deltas.extend(self.put(kv)),
                // Of the object that was here before the one that this revision brought.
                EventKind::Delete { key, modified } if again && self.modified(key) == Some(*modified) => {}
                EventKind::Delete { key, .. } => {
                    deltas.extend(self.forget(key).map(|last| Delta::Deleted { last, unseen: false }));
                }
            }
        }
        self.next.revision = Some(changes.revision);
        deltas
    }

    /// The write that what is known of the key comes from.
    fn modified(&self, key: &Bytes) -> Option<Revision> {
        let known = self.next.objects.get(key).map(|entry| entry.object.modified);
        known.or_else(|| self.next.rejected.get(key).map(|refusal| refusal.rejected.modified))
    }

    /// Shows readers everything done so far, at once.
    pub(crate) fn publish(&self) {
        self.store.published.store(Arc::new(self.next.clone()));
    }

    fn put(&mut self, kv: &KeyValue) -> Option<Delta<T>> {
        if self.next.objects.get(&kv.key).is_some_and(|entry| entry.object.is(kv)) {
            return None;
        }
        if self.next.rejected.get(&kv.key).is_some_and(|refusal| refusal.rejected.modified == kv.modified) {
            return None;
        }
        match (self.decode)(kv) {
            Ok(value) => Some(self.insert(Arc::new(Object::new(kv, value)))),
            Err(reason) => self.reject(kv, reason),
        }
    }

    fn insert(&mut self, new: Arc<Object<T>>) -> Delta<T> {
        let doubted = self.unreject(&new.key);
        let terms = self.terms_of(&new);
        let old = self.next.objects.get(&new.key).cloned();
        if let Some(old) = &old {
            self.unindex(old, |index, term| terms[index].contains(term));
        }
        for (index, terms) in self.next.indexes.iter_mut().zip(terms.iter()) {
            for term in terms {
                if let Some(objects) = index.get_mut(term) {
                    objects.insert_mut(new.key.clone(), Arc::clone(&new));
                } else {
                    let objects = ByKey::new_sync().insert(new.key.clone(), Arc::clone(&new));
                    index.insert_mut(Arc::clone(term), objects);
                }
            }
        }
        self.next.objects.insert_mut(new.key.clone(), Entry { object: Arc::clone(&new), terms });
        match old.map(|old| old.object).or(doubted) {
            Some(old) => Delta::Updated { old, new },
            None => Delta::Added(new),
        }
    }

    fn reject(&mut self, kv: &KeyValue, reason: String) -> Option<Delta<T>> {
        self.decode_errors += 1;
        let reason: Arc<str> = reason.into();
        let rejected = Rejected { key: kv.key.clone(), modified: kv.modified, reason: Arc::clone(&reason) };
        let last = self.forget(&kv.key);
        let refusal = Refusal { rejected: Arc::new(rejected), last: last.clone() };
        self.next.rejected.insert_mut(kv.key.clone(), refusal);
        last.map(|last| Delta::Undecodable { last, reason })
    }

    /// Removes the key altogether, and gives what handlers know of it.
    fn forget(&mut self, key: &Bytes) -> Option<Arc<Object<T>>> {
        let doubted = self.unreject(key);
        self.take(key).or(doubted)
    }

    fn unreject(&mut self, key: &Bytes) -> Option<Arc<Object<T>>> {
        let last = self.next.rejected.get(key)?.last.clone();
        self.next.rejected.remove_mut(key);
        last
    }

    fn take(&mut self, key: &Bytes) -> Option<Arc<Object<T>>> {
        let entry = self.next.objects.get(key)?.clone();
        self.next.objects.remove_mut(key);
        self.unindex(&entry, |_, _| false);
        Some(entry.object)
    }

    /// Takes `entry` out of the indexes, but for the places where a new state of it goes anyway.
    fn unindex(&mut self, entry: &Entry<T>, stays: impl Fn(usize, &Arc<str>) -> bool) {
        for (place, (index, terms)) in self.next.indexes.iter_mut().zip(entry.terms.iter()).enumerate() {
            for term in terms.iter().filter(|term| !stays(place, term)) {
                // Absent if the function gave one value twice.
                let Some(objects) = index.get_mut(term) else { continue };
                objects.remove_mut(&entry.object.key);
                if objects.is_empty() {
                    index.remove_mut(term);
                }
            }
        }
    }

    fn terms_of(&self, object: &Object<T>) -> Arc<[Vec<Arc<str>>]> {
        if self.index_by.is_empty() {
            return Arc::clone(&self.no_terms);
        }
        let terms = |by: &IndexBy<T>| by(object).into_iter().map(Arc::from).collect();
        self.index_by.iter().map(terms).collect()
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
