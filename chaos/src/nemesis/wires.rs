//! The links a network fault has changed, so that it undoes these and no others.

use crate::Failure;
use crate::ground::{Ground, Link};

/// Changed links, each from one member to another.
#[derive(Debug, Default)]
pub struct Wires(Vec<(usize, usize)>);

impl Wires {
    /// Changes one.
    pub async fn set(
        &mut self,
        ground: &mut dyn Ground,
        from: usize,
        to: usize,
        link: Link,
    ) -> Result<(), Failure> {
        // Noted first: one that was changed half way is healed too.
        self.0.push((from, to));
        ground.set_link(from, to, link).await
    }

    /// Sets all of them up again. Links of members that have left since are nobody's.
    pub async fn heal(&mut self, ground: &mut dyn Ground) -> Result<(), Failure> {
        for (from, to) in std::mem::take(&mut self.0) {
            if ground.enlisted(from) && ground.enlisted(to) {
                ground.set_link(from, to, Link::Up).await?;
            }
        }
        Ok(())
    }
}

/// Every direction of every link.
fn every(members: &[usize]) -> Vec<(usize, usize)> {
    let from =
        |from: &usize| members.iter().filter(|to| *to != from).map(|to| (*from, *to)).collect::<Vec<_>>();
    members.iter().flat_map(from).collect()
}

/// Every direction of every link that one of these members has.
pub fn touching(met: &[usize], members: &[usize]) -> Vec<(usize, usize)> {
    every(members).into_iter().filter(|(from, to)| met.contains(from) || met.contains(to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_around_one_and_between_all() {
        assert_eq!(every(&[0, 3]), [(0, 3), (3, 0)]);
        assert_eq!(every(&[0, 1, 2]).len(), 6);
        assert!(touching(&[0], &[0]).is_empty());
        assert_eq!(touching(&[1], &[0, 1, 2]), [(0, 1), (1, 0), (1, 2), (2, 1)]);
        assert_eq!(touching(&[0, 1, 2], &[0, 1, 2]), every(&[0, 1, 2]));
    }
}
