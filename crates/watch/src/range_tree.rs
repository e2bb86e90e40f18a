//! Ranges of keys, so that the ranges around a key are found without looking at the others.
//!
//! A treap in order of first key and then of end, where each node also knows which node of its
//! subtree reaches furthest: a subtree that ends below the key is skipped whole. Equal ranges share
//! a node, since thousands of clients watch the same prefix. Nodes keep their number for as long as
//! they live, so a watcher can keep it too.

use crate::members::Members;
use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

pub(crate) type NodeId = u32;

/// A revision that is told, and the kind of event it is told by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitRound {
    /// Never used for another revision.
    pub(crate) number: u64,
    /// Zero or one.
    pub(crate) kind: usize,
}

impl VisitRound {
    /// Visits everything every time, and is not remembered.
    pub(crate) const NONE: VisitRound = VisitRound { number: 0, kind: 0 };

    fn is_first(self, visited: &Cell<u64>) -> bool {
        self.number == 0 || visited.replace(self.number) != self.number
    }
}

#[derive(Debug)]
struct Node {
    first: Box<[u8]>,
    /// `None` reaches to the end of the key space.
    end: Option<Box<[u8]>>,
    members: Members,
    /// The last visits that were made, one for each kind of event.
    visited: [Cell<u64>; 2],
    priority: u64,
    left: Option<NodeId>,
    right: Option<NodeId>,
    /// Whose end is the highest in this subtree.
    furthest: NodeId,
}

#[derive(Debug, Default)]
pub(crate) struct RangeTree {
    nodes: slab::Slab<Node>,
    root: Option<NodeId>,
    /// Priorities that nobody outside can foresee keep the tree flat whatever is watched.
    random: RandomState,
}

impl RangeTree {
    /// Adds a watcher; says at which node and place.
    pub(crate) fn insert(&mut self, first: &[u8], end: Option<&[u8]>, slot: u32) -> (NodeId, u32) {
        if let Some(id) = self.find(first, end) {
            return (id, self.node_mut(id).members.push(slot));
        }
        let id = self.new_node(first, end, slot);
        let (left, right) = self.split(self.root, id);
        let left = self.merge(left, Some(id));
        self.root = self.merge(left, right);
        (id, 0)
    }

    /// Removes a watcher; says who took its place, if somebody did.
    pub(crate) fn remove(&mut self, id: NodeId, slot: u32, place: u32) -> Option<u32> {
        if let Members::Many(_) = self.node(id).members {
            return self.node_mut(id).members.remove(slot, place);
        }
        assert_eq!(self.node(id).members.as_slice(), [slot], "a watcher knows its node");
        self.root = self.without(self.root, id);
        self.nodes.remove(id as usize);
        None
    }

    /// Calls `visit` with the watchers of each range around `key`, but only once for each range in a
    /// round: for who watches a range, any event of a kind within a revision is as good as the first.
    pub(crate) fn visit(&self, key: &[u8], round: VisitRound, visit: &mut impl FnMut(&[u32])) {
        self.visit_below(self.root, key, round, visit);
    }

    fn visit_below(&self, id: Option<NodeId>, key: &[u8], round: VisitRound, visit: &mut impl FnMut(&[u32])) {
        let Some(id) = id else { return };
        let node = self.node(id);
        if !reaches(self.node(node.furthest).end.as_deref(), key) {
            return;
        }
        self.visit_below(node.left, key, round, visit);
        if node.first.as_ref() <= key {
            let visited = &node.visited[round.kind];
            if reaches(node.end.as_deref(), key) && round.is_first(visited) {
                visit(node.members.as_slice());
            }
            self.visit_below(node.right, key, round, visit);
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    fn new_node(&mut self, first: &[u8], end: Option<&[u8]>, slot: u32) -> NodeId {
        let entry = self.nodes.vacant_entry();
        let id = entry.key() as NodeId;
        entry.insert(Node {
            first: first.into(),
            end: end.map(Into::into),
            members: Members::One(slot),
            visited: [Cell::new(0), Cell::new(0)],
            priority: self.random.hash_one((first, end)),
            left: None,
            right: None,
            furthest: id,
        });
        id
    }

    fn find(&self, first: &[u8], end: Option<&[u8]>) -> Option<NodeId> {
        let mut at = self.root;
        while let Some(id) = at {
            let node = self.node(id);
            at = match order((first, end), (&node.first, node.end.as_deref())) {
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
                Ordering::Equal => return Some(id),
            };
        }
        None
    }

    fn is_before(&self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.node(a), self.node(b));
        order((&a.first, a.end.as_deref()), (&b.first, b.end.as_deref())) == Ordering::Less
    }

    /// Parts a subtree into what stands before `pivot` and what stands after it.
    fn split(&mut self, id: Option<NodeId>, pivot: NodeId) -> (Option<NodeId>, Option<NodeId>) {
        let Some(id) = id else { return (None, None) };
        if self.is_before(id, pivot) {
            let (left, right) = self.split(self.node(id).right, pivot);
            self.node_mut(id).right = left;
            self.refresh(id);
            (Some(id), right)
        } else {
            let (left, right) = self.split(self.node(id).left, pivot);
            self.node_mut(id).left = right;
            self.refresh(id);
            (left, Some(id))
        }
    }

    /// Joins two subtrees, all of the first standing before all of the second.
    fn merge(&mut self, a: Option<NodeId>, b: Option<NodeId>) -> Option<NodeId> {
        let (Some(left), Some(right)) = (a, b) else { return a.or(b) };
        if self.node(left).priority < self.node(right).priority {
            let below = self.merge(Some(left), self.node(right).left);
            self.node_mut(right).left = below;
            self.refresh(right);
            b
        } else {
            let below = self.merge(self.node(left).right, Some(right));
            self.node_mut(left).right = below;
            self.refresh(left);
            a
        }
    }

    /// The subtree without one of its nodes.
    fn without(&mut self, at: Option<NodeId>, gone: NodeId) -> Option<NodeId> {
        let id = at.expect("a node that is removed is in the tree");
        if id == gone {
            return self.merge(self.node(id).left, self.node(id).right);
        }
        if self.is_before(gone, id) {
            let left = self.without(self.node(id).left, gone);
            self.node_mut(id).left = left;
        } else {
            let right = self.without(self.node(id).right, gone);
            self.node_mut(id).right = right;
        }
        self.refresh(id);
        Some(id)
    }

    fn refresh(&mut self, id: NodeId) {
        let node = self.node(id);
        let mut furthest = id;
        for child in [node.left, node.right].into_iter().flatten() {
            let reach = self.node(child).furthest;
            if is_shorter(self.node(furthest).end.as_deref(), self.node(reach).end.as_deref()) {
                furthest = reach;
            }
        }
        self.node_mut(id).furthest = furthest;
    }
}

/// Whether a range that ends there can hold the key.
fn reaches(end: Option<&[u8]>, key: &[u8]) -> bool {
    end.is_none_or(|end| key < end)
}

fn is_shorter(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(a), Some(b)) => a < b,
    }
}

fn order(a: (&[u8], Option<&[u8]>), b: (&[u8], Option<&[u8]>)) -> Ordering {
    a.0.cmp(b.0).then_with(|| {
        if a.1 == b.1 {
            Ordering::Equal
        } else if is_shorter(a.1, b.1) {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// Who is where, the slow way.
    #[derive(Default)]
    struct Model {
        ranges: BTreeMap<u32, (Vec<u8>, Option<Vec<u8>>)>,
        homes: BTreeMap<u32, (NodeId, u32)>,
    }

    impl Model {
        fn around(&self, key: &[u8]) -> Vec<u32> {
            let holds = |(first, end): &(Vec<u8>, Option<Vec<u8>>)| {
                first.as_slice() <= key && end.as_deref().is_none_or(|end| key < end)
            };
            self.ranges.iter().filter(|(_, range)| holds(range)).map(|(slot, _)| *slot).collect()
        }
    }

    fn bytes(random: &mut StdRng) -> Vec<u8> {
        (0..random.random_range(1..4)).map(|_| random.random_range(b'a'..b'f')).collect()
    }

    #[test]
    fn random_ranges_are_found_as_by_looking_at_each() {
        let mut random = StdRng::seed_from_u64(20);
        let (mut tree, mut model) = (RangeTree::default(), Model::default());
        for slot in 0..3_000u32 {
            if random.random_bool(0.6) || model.ranges.is_empty() {
                let first = bytes(&mut random);
                let end = random.random_bool(0.8).then(|| bytes(&mut random));
                let home = tree.insert(&first, end.as_deref(), slot);
                model.ranges.insert(slot, (first, end));
                model.homes.insert(slot, home);
            } else {
                let at = random.random_range(0..model.ranges.len());
                let gone = *model.ranges.keys().nth(at).expect("within");
                let (node, place) = model.homes[&gone];
                if let Some(moved) = tree.remove(node, gone, place) {
                    model.homes.get_mut(&moved).expect("is here").1 = place;
                }
                model.ranges.remove(&gone);
                model.homes.remove(&gone);
            }
            let key = bytes(&mut random);
            let mut found = Vec::new();
            let round = VisitRound { number: u64::from(slot) + 1, kind: 0 };
            tree.visit(&key, round, &mut |slots| found.extend_from_slice(slots));
            tree.visit(&key, round, &mut |slots| panic!("{slots:?} are visited twice in a round"));
            found.sort_unstable();
            assert_eq!(found, model.around(&key), "around {key:?} after step {slot}");
        }
    }

    #[test]
    fn equal_ranges_share_a_node() {
        let mut tree = RangeTree::default();
        for slot in 0..100 {
            let (_, place) = tree.insert(b"a", Some(b"b"), slot);
            assert_eq!(place, slot);
        }
        assert_eq!(tree.nodes.len(), 1);
    }
}
