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
    Deleted { unseen: bool },
    Undecodable { reason: Arc<str> },
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
            let (_, net) = self.nets.pop_first()?;
            self.places.remove(&net.key);
            if let Some(delta) = net.into_delta() {
                return Some(delta);
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
        net.now = present(delta);
        self.left_out += 1;
        if net.told.is_none() && !matches!(net.now, Now::There(_)) {
            self.nets.remove(&place);
            self.places.remove(delta.key());
        }
    }

    fn append(&mut self, net: Net<T>) {
        self.places.insert(net.key.clone(), self.place_next);
        self.nets.insert(self.place_next, net);
        self.place_next += 1;
    }
}

impl<T> Net<T> {
    fn into_delta(self) -> Option<Delta<T>> {
        match (self.told, self.now) {
            (None, Now::There(object)) => Some(Delta::Added(object)),
            (Some(old), Now::There(new)) if Arc::ptr_eq(&old, &new) => Some(Delta::Resync(new)),
            (Some(old), Now::There(new)) => Some(Delta::Updated { old, new }),
            (Some(last), Now::Deleted { unseen }) => Some(Delta::Deleted { last, unseen }),
            (Some(last), Now::Undecodable { reason }) => Some(Delta::Undecodable { last, reason }),
            (None, Now::Deleted { .. } | Now::Undecodable { .. }) => None,
        }
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
        Delta::Undecodable { reason, .. } => Now::Undecodable { reason: Arc::clone(reason) },
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
