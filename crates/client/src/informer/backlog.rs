//! What one handler has still to be told: pure.
//!
//! ```text
//!        oldest                                             newest
//!   log: every change, as it came (at most `log_max`)  |  nets: one entry for each key
//! ```
//!
//! A handler that keeps up is told every change. When it is `log_max` behind, further changes are kept
//! per key: what it will have been told by then, and what is so now. Later changes of the same key
//! move the second and leave the first, so states in between are left out, the newest never is, and
//! what is told of the past is always what this handler was told before. A key that came and went
//! untold leaves nothing. So a handler that has stopped altogether costs at most `log_max` changes,
//! plus one entry for each key that is there or that it believes to be.
//!
//! While there are nets, every change goes to them: a change in the log must never be newer than a net
//! of the same key.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::object::{Delta, Object};

/// See the module.
pub(crate) struct Backlog<T> {
    log: VecDeque<Delta<T>>,
    log_max: usize,
    /// By the order in which their keys first fell behind.
    nets: BTreeMap<u64, Net<T>>,
    places: HashMap<Bytes, u64>,
    place_next: u64,
    left_out: u64,
}

struct Net<T> {
    key: Bytes,
    /// What the handler will have been told of this key when its turn comes.
    told: Option<Arc<Object<T>>>,
    now: Now<T>,
}

enum Now<T> {
    There(Arc<Object<T>>),
    Deleted {
        unseen: bool,
    },
    /// There, but in doubt: `last` could still be decoded, what came after it could not.
    Doubtful {
        last: Arc<Object<T>>,
        reason: Arc<str>,
    },
}

impl<T> Backlog<T> {
    pub(crate) fn new(log_max: usize) -> Backlog<T> {
        Backlog {
            log: VecDeque::new(),
            log_max,
            nets: BTreeMap::new(),
            places: HashMap::new(),
            place_next: 0,
            left_out: 0,
        }
    }

    /// Adds what has just changed.
    pub(crate) fn push(&mut self, delta: &Delta<T>) {
        if self.nets.is_empty() && self.log.len() < self.log_max {
            self.log.push_back(delta.clone());
        } else {
            self.fold(delta);
        }
    }

    /// Has the handler told of this object again, unless something about its key is waiting among the
    /// nets anyway.
    pub(crate) fn resync(&mut self, object: &Arc<Object<T>>) {
        if !self.places.contains_key(&object.key) {
            let told = Some(Arc::clone(object));
            self.append(Net { key: object.key.clone(), told, now: Now::There(Arc::clone(object)) });
        }
    }

    /// What to tell next.
    pub(crate) fn pop(&mut self) -> Option<Delta<T>> {
        if let Some(delta) = self.log.pop_front() {
            return Some(delta);
        }
        loop {
            let (place, net) = self.nets.pop_first()?;
            let key = net.key.clone();
            let (delta, rest) = net.tell();
            match rest {
                Some(rest) => drop(self.nets.insert(place, rest)),
                None => drop(self.places.remove(&key)),
            }
            if delta.is_some() {
                return delta;
            }
        }
    }

    /// Changes waiting: those in the log, and one for each key behind it.
    pub(crate) fn len(&self) -> usize {
        self.log.len() + self.nets.len()
    }

    /// States that this handler is not told because a newer one took their place.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    fn fold(&mut self, delta: &Delta<T>) {
        let Some(place) = self.places.get(delta.key()).copied() else {
            return self.append(Net { key: delta.key().clone(), told: past(delta), now: present(delta) });
        };
        let Some(net) = self.nets.get_mut(&place) else { return };
        self.left_out += 1;
        match (&net.told, present(delta)) {
            (None, Now::Deleted { .. }) => {
                self.nets.remove(&place);
                self.places.remove(delta.key());
            }
            (_, now) => net.now = now,
        }
    }

    fn append(&mut self, net: Net<T>) {
        self.places.insert(net.key.clone(), self.place_next);
        self.nets.insert(self.place_next, net);
        self.place_next += 1;
    }
}

impl<T> Net<T> {
    /// What to tell, and what is then left to tell of the key.
    fn tell(self) -> (Option<Delta<T>>, Option<Net<T>>) {
        match (self.told, self.now) {
            (told, Now::There(now)) => (Some(became(told, now)), None),
            (Some(last), Now::Deleted { unseen }) => (Some(Delta::Deleted { last, unseen }), None),
            (None, Now::Deleted { .. }) => (None, None),
            (Some(told), Now::Doubtful { last, reason }) if Arc::ptr_eq(&told, &last) => {
                (Some(Delta::Undecodable { last, reason }), None)
            }
            // First the state that whatever follows will refer to, then the doubt.
            (told, Now::Doubtful { last, reason }) => {
                let now = Now::Doubtful { last: Arc::clone(&last), reason };
                let rest = Net { key: self.key, told: Some(Arc::clone(&last)), now };
                (Some(became(told, last)), Some(rest))
            }
        }
    }
}

fn became<T>(told: Option<Arc<Object<T>>>, now: Arc<Object<T>>) -> Delta<T> {
    match told {
        None => Delta::Added(now),
        Some(old) if Arc::ptr_eq(&old, &now) => Delta::Resync(now),
        Some(old) => Delta::Updated { old, new: now },
    }
}

/// What the handler knew before this change.
fn past<T>(delta: &Delta<T>) -> Option<Arc<Object<T>>> {
    match delta {
        Delta::Added(_) => None,
        Delta::Updated { old, .. } => Some(Arc::clone(old)),
        Delta::Deleted { last, .. } | Delta::Undecodable { last, .. } => Some(Arc::clone(last)),
        Delta::Resync(object) => Some(Arc::clone(object)),
    }
}

/// What is so after it.
fn present<T>(delta: &Delta<T>) -> Now<T> {
    match delta {
        Delta::Added(object) | Delta::Resync(object) => Now::There(Arc::clone(object)),
        Delta::Updated { new, .. } => Now::There(Arc::clone(new)),
        Delta::Deleted { unseen, .. } => Now::Deleted { unseen: *unseen },
        Delta::Undecodable { last, reason } => {
            Now::Doubtful { last: Arc::clone(last), reason: Arc::clone(reason) }
        }
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
