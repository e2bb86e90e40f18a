//! An ordered map of which a copy costs nothing, and which knows how many keys lie before any key.
//!
//! A weight-balanced tree. A copy shares all nodes with its original; a change copies the path to what
//! it changes, and nothing at all where no copy is left. Each node knows the size of its subtree, so
//! that a page of a list can say what remains after it without counting it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// A subtree may weigh at most this many times what its sibling weighs.
const DELTA: usize = 3;
/// An inner grandchild that weighs this many times the outer one calls for a double rotation. Of the
/// pairs for which insertion and removal both keep the balance, (3, 2) is the one in whole numbers.
const RATIO: usize = 2;

#[derive(Debug)]
pub struct CountedMap<K, V> {
    root: Link<K, V>,
}

type Link<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone, Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    size: usize,
    left: Link<K, V>,
    right: Link<K, V>,
}

impl<K, V> Clone for CountedMap<K, V> {
    fn clone(&self) -> Self {
        CountedMap { root: self.root.clone() }
    }
}

impl<K, V> Default for CountedMap<K, V> {
    fn default() -> Self {
        CountedMap { root: None }
    }
}

impl<K, V> CountedMap<K, V> {
    pub fn len(&self) -> usize {
        size(&self.root)
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// In the order of the keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { stack: Vec::new() };
        iter.descend(self.root.as_deref());
        iter
    }

    /// From the first key that is not below `first`, in the order of the keys.
    pub fn iter_from<Q>(&self, first: &Q) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut stack = Vec::new();
        let mut link = self.root.as_deref();
        while let Some(node) = link {
            if node.key.borrow() < first {
                link = node.right.as_deref();
            } else {
                stack.push(node);
                link = node.left.as_deref();
            }
        }
        Iter { stack }
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut link = self.root.as_deref();
        while let Some(node) = link {
            link = match key.cmp(node.key.borrow()) {
                Ordering::Less => node.left.as_deref(),
                Ordering::Greater => node.right.as_deref(),
                Ordering::Equal => return Some(&node.value),
            };
        }
        None
    }

    /// How many keys are below `key`.
    pub fn rank<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut below = 0;
        let mut link = self.root.as_deref();
        while let Some(node) = link {
            if node.key.borrow() < key {
                below += size(&node.left) + 1;
                link = node.right.as_deref();
            } else {
                link = node.left.as_deref();
            }
        }
        below
    }
}

impl<K: Ord + Clone, V: Clone> CountedMap<K, V> {
    /// `rows`: in the order of their keys, each key once.
    pub fn from_sorted(rows: Vec<(K, V)>) -> Self {
        let count = rows.len();
        CountedMap { root: build(&mut rows.into_iter(), count) }
    }

    /// The value that was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        insert(&mut self.root, key, value)
    }

    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // Else the path to a key that is not there would be copied for nothing.
        self.get(key)?;
        remove(&mut self.root, key)
    }

    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get(key)?;
        let mut link = &mut self.root;
        loop {
            let node = Arc::make_mut(link.as_mut()?);
            match key.cmp(node.key.borrow()) {
                Ordering::Less => link = &mut node.left,
                Ordering::Greater => link = &mut node.right,
                Ordering::Equal => return Some(&mut node.value),
            }
        }
    }
}

pub struct Iter<'a, K, V> {
    /// What is still to come: each node before its right subtree, and before those below it.
    stack: Vec<&'a Node<K, V>>,
}

impl<'a, K, V> Iter<'a, K, V> {
    fn descend(&mut self, mut link: Option<&'a Node<K, V>>) {
        while let Some(node) = link {
            self.stack.push(node);
            link = node.left.as_deref();
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.stack.pop()?;
        self.descend(node.right.as_deref());
        Some((&node.key, &node.value))
    }
}

fn size<K, V>(link: &Link<K, V>) -> usize {
    link.as_ref().map_or(0, |node| node.size)
}

fn weight<K, V>(link: &Link<K, V>) -> usize {
    size(link) + 1
}

impl<K, V> Node<K, V> {
    fn recount(&mut self) {
        self.size = size(&self.left) + size(&self.right) + 1;
    }
}

fn build<K, V>(rows: &mut std::vec::IntoIter<(K, V)>, count: usize) -> Link<K, V> {
    if count == 0 {
        return None;
    }
    let left = build(rows, count / 2);
    let (key, value) = rows.next()?;
    let right = build(rows, count - count / 2 - 1);
    Some(Arc::new(Node { key, value, size: count, left, right }))
}

fn insert<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>, key: K, value: V) -> Option<V> {
    let Some(node) = link else {
        *link = Some(Arc::new(Node { key, value, size: 1, left: None, right: None }));
        return None;
    };
    let node = Arc::make_mut(node);
    let before = match key.cmp(&node.key) {
        Ordering::Less => insert(&mut node.left, key, value),
        Ordering::Greater => insert(&mut node.right, key, value),
        Ordering::Equal => return Some(std::mem::replace(&mut node.value, value)),
    };
    if before.is_none() {
        node.size += 1;
        balance(link);
    }
    before
}

fn remove<K, V, Q>(link: &mut Link<K, V>, key: &Q) -> Option<V>
where
    K: Ord + Clone + Borrow<Q>,
    V: Clone,
    Q: Ord + ?Sized,
{
    let node = Arc::make_mut(link.as_mut()?);
    let removed = match key.cmp(node.key.borrow()) {
        Ordering::Less => remove(&mut node.left, key),
        Ordering::Greater => remove(&mut node.right, key),
        Ordering::Equal => {
            let value = node.value.clone();
            match (node.left.take(), node.right.take()) {
                (None, only) | (only, None) => {
                    *link = only;
                    return Some(value);
                }
                (left, mut right) => {
                    (node.key, node.value) = take_first(&mut right)?;
                    (node.left, node.right) = (left, right);
                }
            }
            Some(value)
        }
    };
    node.recount();
    balance(link);
    removed
}

fn take_first<K: Ord + Clone, V: Clone>(link: &mut Link<K, V>) -> Option<(K, V)> {
    let node = Arc::make_mut(link.as_mut()?);
    if node.left.is_none() {
        let first = (node.key.clone(), node.value.clone());
        *link = node.right.take();
        return Some(first);
    }
    let first = take_first(&mut node.left);
    node.recount();
    balance(link);
    first
}

fn balance<K: Clone, V: Clone>(link: &mut Link<K, V>) {
    let Some(node) = link else { return };
    if DELTA * weight(&node.left) < weight(&node.right) {
        if node.right.as_ref().is_some_and(|right| RATIO * weight(&right.right) <= weight(&right.left)) {
            rotate_right(&mut Arc::make_mut(node).right);
        }
        rotate_left(link);
    } else if DELTA * weight(&node.right) < weight(&node.left) {
        if node.left.as_ref().is_some_and(|left| RATIO * weight(&left.left) <= weight(&left.right)) {
            rotate_left(&mut Arc::make_mut(node).left);
        }
        rotate_right(link);
    }
}

/// The right child becomes the parent.
fn rotate_left<K: Clone, V: Clone>(link: &mut Link<K, V>) {
    let Some(mut lower) = link.take() else { return };
    let node = Arc::make_mut(&mut lower);
    let Some(mut upper) = node.right.take() else {
        *link = Some(lower);
        return;
    };
    let raised = Arc::make_mut(&mut upper);
    node.right = raised.left.take();
    node.recount();
    raised.left = Some(lower);
    raised.recount();
    *link = Some(upper);
}

/// The left child becomes the parent.
fn rotate_right<K: Clone, V: Clone>(link: &mut Link<K, V>) {
    let Some(mut lower) = link.take() else { return };
    let node = Arc::make_mut(&mut lower);
    let Some(mut upper) = node.left.take() else {
        *link = Some(lower);
        return;
    };
    let raised = Arc::make_mut(&mut upper);
    node.left = raised.right.take();
    node.recount();
    raised.right = Some(lower);
    raised.recount();
    *link = Some(upper);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::{BTreeMap, HashSet};

    /// How many nodes there are in all of `maps`, each counted once however many share it.
    pub(crate) fn distinct_nodes<'a, K: 'a, V: 'a>(
        maps: impl Iterator<Item = &'a CountedMap<K, V>>,
    ) -> usize {
        let mut seen = HashSet::new();
        for map in maps {
            let mut stack: Vec<&Arc<Node<K, V>>> = map.root.iter().collect();
            while let Some(node) = stack.pop() {
                if seen.insert(Arc::as_ptr(node)) {
                    stack.extend(node.left.iter().chain(&node.right));
                }
            }
        }
        seen.len()
    }

    fn check<K: Ord, V>(link: &Link<K, V>) -> usize {
        let Some(node) = link else { return 0 };
        let (left, right) = (check(&node.left), check(&node.right));
        assert_eq!(node.size, left + right + 1, "a node knows its size");
        assert!(left < DELTA * (right + 1) && right < DELTA * (left + 1), "{left} against {right}");
        node.size
    }

    fn assert_same(map: &CountedMap<u32, u32>, model: &BTreeMap<u32, u32>) {
        check(&map.root);
        assert!(map.iter().eq(model.iter()));
        assert_eq!(map.len(), model.len());
    }

    #[test]
    fn it_agrees_with_the_map_of_the_library_and_copies_stay_as_they_were() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut model: BTreeMap<u32, u32> =
                (0..rng.random_range(0..200)).map(|_| (rng.random_range(0..400), 0)).collect();
            let mut map = CountedMap::from_sorted(model.clone().into_iter().collect());
            let mut copies = Vec::new();
            for step in 0..600 {
                let key = rng.random_range(0..400);
                match rng.random_range(0..4) {
                    0 | 1 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                    2 => assert_eq!(map.remove(&key), model.remove(&key)),
                    _ => {
                        let (ours, theirs) = (map.get_mut(&key), model.get_mut(&key));
                        assert_eq!(ours, theirs);
                        if let (Some(ours), Some(theirs)) = (ours, theirs) {
                            (*ours, *theirs) = (step, step);
                        }
                    }
                }
                assert_eq!(map.get(&key), model.get(&key));
                assert_eq!(map.rank(&key), model.range(..key).count());
                assert!(map.iter_from(&key).eq(model.range(key..)));
                if step % 40 == 0 {
                    assert_same(&map, &model);
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.iter().for_each(|(map, model)| assert_same(map, model));
        }
    }

    #[test]
    fn a_copy_shares_all_that_did_not_change() {
        let rows = 10_000;
        let mut map = CountedMap::from_sorted((0..rows).map(|key| (key, 0)).collect());
        let mut copies = vec![map.clone()];
        for change in 0..100 {
            map.insert(change * 97, 1);
            copies.push(map.clone());
        }
        let nodes = distinct_nodes(copies.iter());
        assert!(nodes <= rows + 100 * 2 * 14, "{nodes} nodes for 101 versions of {rows} rows");
    }

    #[test]
    fn without_copies_nothing_is_copied() {
        let mut map = CountedMap::from_sorted((0..100).map(|key| (key, 0)).collect());
        let before: HashSet<_> = map.iter().map(|(_, value)| std::ptr::from_ref(value)).collect();
        map.insert(50, 7);
        assert!(map.iter().all(|(_, value)| before.contains(&std::ptr::from_ref(value))));
    }
}
