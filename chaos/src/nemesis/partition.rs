//! A network in parts: nothing passes between them, in either direction, and nothing is closed.
//!
//! The leader alone, a minority cut off, or a bridge: two halves that do not see each other and one
//! member that sees both, where a vote may be won by one half while the other still hears its leader.

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::wires::Wires;
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground, Link};

/// Who is cut off from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The leader from all others.
    LeaderAlone,
    /// As many as a majority can do without.
    Minority,
    /// Two halves, and one in between that sees both.
    Bridge,
}

const SHAPES: &[Shape] = &[Shape::LeaderAlone, Shape::Minority, Shape::Bridge];

/// Two sides that do not see each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    left: Vec<usize>,
    right: Vec<usize>,
}

/// The sides of a partition. A side is empty only when there are too few members for the shape.
pub fn sides(shape: Shape, members: &[usize], leader: Option<usize>, dice: &mut StdRng) -> Sides {
    let mut left = members.to_vec();
    left.shuffle(dice);
    let right = match shape {
        Shape::LeaderAlone => {
            left.sort_by_key(|member| leader != Some(*member));
            left.split_off(left.len().min(1))
        }
        Shape::Minority => left.split_off(members.len().saturating_sub(1) / 2),
        Shape::Bridge => {
            let right = left.split_off(members.len() / 2);
            // The first of the right half is the bridge.
            right.into_iter().skip(1).collect()
        }
    };
    Sides { left, right }
}

/// Cuts, and mends.
#[derive(Debug, Default)]
pub struct Partition {
    wires: Wires,
}

impl Nemesis for Partition {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let shape = *SHAPES.choose(dice).expect("there are shapes");
            let (members, leader) = sight::members(ground).await;
            let Sides { left, right } = sides(shape, &members, leader, dice);
            for one in &left {
                for other in &right {
                    self.wires.set(ground, *one, *other, Link::Down).await?;
                    self.wires.set(ground, *other, *one, Link::Down).await?;
                }
            }
            let bridge = if shape == Shape::Bridge { ", one between them sees both" } else { "" };
            let (one, other) = (sight::names(ground, &left, leader), sight::names(ground, &right, leader));
            Ok(Blow::made(format!("{one} | {other}{bridge}"), left))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        self.wires.heal(ground).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn each_shape_is_what_it_says_for_every_size() {
        for (seed, size) in (0..100).flat_map(|seed| (3..=7).map(move |size| (seed, size))) {
            let dice = &mut StdRng::seed_from_u64(seed);
            let members: Vec<usize> = (10..10 + size).collect();
            let alone = sides(Shape::LeaderAlone, &members, Some(11), dice);
            assert_eq!((alone.left, alone.right.len()), (vec![11], size - 1));
            let minority = sides(Shape::Minority, &members, Some(11), dice);
            assert!(!minority.left.is_empty() && size / 2 < minority.right.len(), "{minority:?}");
            assert_eq!(minority.left.len() + minority.right.len(), size);
            let bridge = sides(Shape::Bridge, &members, Some(11), dice);
            assert_eq!(bridge.left.len() + bridge.right.len(), size - 1, "{bridge:?}");
            assert!(!bridge.left.is_empty() && !bridge.right.is_empty(), "{bridge:?}");
        }
    }
}
