//! Watchers that are in the same state, indexed so that an event finds its own without a look at
//! the others: single keys by hash, ranges by tree.

use crate::members::Members;
use crate::range_tree::{NodeId, RangeTree, VisitRound};
use hashbrown::HashTable;
use meerkat_types::KeyRange;
use std::hash::BuildHasher;

/// Where in its group a watcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// `None` among the single keys.
    node: Option<NodeId>,
    place: u32,
}

impl Home {
    pub(crate) fn moved_to(self, place: u32) -> Home {
        Home { place, ..self }
    }

    pub(crate) fn place(self) -> u32 {
        self.place
    }
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Watchers of single keys. The keys themselves are kept by the watchers.
    single: HashTable<Members>,
    ranges: RangeTree,
    hash: hashbrown::DefaultHashBuilder,
    len: usize,
}

impl Group {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a watcher. `key_of` tells the key of any watcher of a single key in this group.
    pub(crate) fn insert<'a>(
        &mut self,
        slot: u32,
        range: &KeyRange,
        key_of: impl Fn(u32) -> &'a [u8],
    ) -> Home {
        self.len += 1;
        let KeyRange::One(key) = range else {
            let end = range.end();
            let (node, place) = self.ranges.insert(range.first().as_bytes(), end.as_deref(), slot);
            return Home { node: Some(node), place };
        };
        let key = key.as_bytes();
        let hash = self.hash.hash_one(key);
        let first_key = |members: &Members| key_of(members.as_slice()[0]);
        if let Some(members) = self.single.find_mut(hash, |members| first_key(members) == key) {
            return Home { node: None, place: members.push(slot) };
        }
        self.single.insert_unique(hash, Members::One(slot), |members| self.hash.hash_one(first_key(members)));
        Home { node: None, place: 0 }
    }

    /// Removes a watcher; says who took its place, if somebody did.
    pub(crate) fn remove<'a>(
        &mut self,
        slot: u32,
        range: &KeyRange,
        home: Home,
        key_of: impl Fn(u32) -> &'a [u8],
    ) -> Option<u32> {
        self.len -= 1;
        if let Some(node) = home.node {
            return self.ranges.remove(node, slot, home.place);
        }
        let key = range.first().as_bytes();
        let hash = self.hash.hash_one(key);
        let found = self.single.find_entry(hash, |members| key_of(members.as_slice()[0]) == key);
        let Ok(mut entry) = found else { panic!("a watcher is in the group that it says") };
        if let Members::Many(_) = entry.get() {
            return entry.get_mut().remove(slot, home.place);
        }
        entry.remove();
        None
    }

    /// Calls `visit` with the watchers of the key itself, and of each range around it that was not yet
    /// visited in this round.
    pub(crate) fn visit<'a>(
        &self,
        key: &[u8],
        round: VisitRound,
        key_of: impl Fn(u32) -> &'a [u8],
        visit: &mut impl FnMut(&[u32]),
    ) {
        let hash = self.hash.hash_one(key);
        if let Some(members) = self.single.find(hash, |members| key_of(members.as_slice()[0]) == key) {
            visit(members.as_slice());
        }
        self.ranges.visit(key, round, visit);
    }
}
