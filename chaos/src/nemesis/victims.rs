//! Whom a fault meets: a pure choice from dice, the members and who leads them.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

/// Whom to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Any one.
    One,
    /// The one that leads; any one while nobody does.
    Leader,
    /// One that does not lead, if there is one.
    Follower,
    /// So many that the rest cannot decide anything.
    Majority,
    /// All of them.
    All,
}

/// One of several aims, each with its weight. Panics if there is none.
pub fn aim(weighted: &[(Aim, u32)], dice: &mut StdRng) -> Aim {
    weighted.choose_weighted(dice, |(_, weight)| *weight).expect("weights that can be drawn from").0
}

/// The members that are met. Empty only if there are no members.
pub fn choose(aim: Aim, members: &[usize], leader: Option<usize>, dice: &mut StdRng) -> Vec<usize> {
    let mut order = members.to_vec();
    order.shuffle(dice);
    let leads = |member: &usize| leader == Some(*member);
    match aim {
        Aim::One => order.truncate(1),
        Aim::Leader => {
            order.sort_by_key(|member| !leads(member));
            order.truncate(1);
        }
        Aim::Follower => {
            order.sort_by_key(leads);
            order.truncate(1);
        }
        // Half of an even number is enough to stop the other half.
        Aim::Majority => order.truncate(members.len().div_ceil(2)),
        Aim::All => {}
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn an_aim_is_met_whatever_the_dice_say() {
        for seed in 0..200 {
            let dice = &mut StdRng::seed_from_u64(seed);
            let members = [0, 2, 3, 5, 7];
            assert_eq!(choose(Aim::Leader, &members, Some(3), dice), [3]);
            assert_eq!(choose(Aim::Leader, &members, None, dice).len(), 1);
            assert_ne!(choose(Aim::Follower, &members, Some(3), dice), [3]);
            assert_eq!(choose(Aim::Follower, &[3], Some(3), dice), [3], "there is nobody else");
            assert_eq!(choose(Aim::One, &members, Some(3), dice).len(), 1);
            let majority = choose(Aim::Majority, &members, Some(3), dice);
            assert_eq!(majority.len(), 3);
            assert!(majority.iter().all(|member| members.contains(member)), "{majority:?}");
            assert_eq!(choose(Aim::Majority, &[0, 1, 2], None, dice).len(), 2);
            assert_eq!(choose(Aim::All, &members, Some(3), dice).len(), 5);
        }
    }

    #[test]
    fn the_dice_decide_and_the_same_dice_decide_the_same() {
        let draw = |seed| choose(Aim::One, &[0, 1, 2], None, &mut StdRng::seed_from_u64(seed));
        assert_eq!((0..50).map(draw).collect::<Vec<_>>(), (0..50).map(draw).collect::<Vec<_>>());
        assert!((0..50).map(draw).any(|drawn| drawn != draw(0)));
        let aims = [(Aim::One, 1), (Aim::All, 0)];
        assert_eq!(aim(&aims, &mut StdRng::seed_from_u64(1)), Aim::One);
    }
}
