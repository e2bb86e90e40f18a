//! Which endpoint gets the next connection: each in turn, those that failed left out.
//!
//! Decides and remembers; dials nothing. Never picks one twice for the same connection, so that whoever
//! asks comes to an end.

/// The endpoints, in the order in which they were given, and what is known of them.
pub struct Remotes {
    remotes: Vec<Remote>,
    /// Where the next turn begins.
    next: usize,
}

struct Remote {
    address: String,
    is_active: bool,
}

/// One endpoint, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick(usize);

impl Remotes {
    /// All of them count as reachable until one is not.
    pub fn new(addresses: Vec<String>) -> Remotes {
        let remote = |address| Remote { address, is_active: true };
        Remotes { remotes: addresses.into_iter().map(remote).collect(), next: 0 }
    }

    /// The next in turn that was not tried for this connection. One that failed is picked only when no
    /// other is left: better a try than a refusal.
    pub fn pick(&mut self, tried: &[Pick]) -> Option<Pick> {
        let count = self.remotes.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        let left: Vec<usize> = in_turn.filter(|&at| !tried.contains(&Pick(at))).collect();
        let active = left.iter().find(|&&at| self.remotes[at].is_active);
        let picked = *active.or(left.first())?;
        self.next = (picked + 1) % count;
        Some(Pick(picked))
    }

    pub fn address(&self, pick: Pick) -> &str {
        &self.remotes[pick.0].address
    }

    /// Notes how a dial went, and says whether that is news.
    pub fn note(&mut self, pick: Pick, is_active: bool) -> bool {
        let remote = &mut self.remotes[pick.0];
        std::mem::replace(&mut remote.is_active, is_active) != is_active
    }

    /// Those that failed and have not come back.
    pub fn inactive(&self) -> Vec<Pick> {
        let numbered = self.remotes.iter().enumerate();
        numbered.filter(|(_, remote)| !remote.is_active).map(|(at, _)| Pick(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Remotes {
        Remotes::new(["a", "b", "c"].map(str::to_owned).to_vec())
    }

    fn picked(remotes: &mut Remotes, tried: &[Pick]) -> Option<String> {
        remotes.pick(tried).map(|pick| remotes.address(pick).to_owned())
    }

    fn turns(remotes: &mut Remotes, count: usize) -> String {
        (0..count).filter_map(|_| picked(remotes, &[])).collect()
    }

    #[test]
    fn each_has_its_turn() {
        assert_eq!(turns(&mut three(), 7), "abcabca");
    }

    #[test]
    fn one_that_failed_is_passed_over_until_it_is_back() {
        let mut remotes = three();
        assert!(remotes.note(Pick(1), false), "news");
        assert!(!remotes.note(Pick(1), false), "no news");
        assert_eq!(turns(&mut remotes, 4), "acac");
        assert_eq!(remotes.inactive(), [Pick(1)]);
        assert!(remotes.note(Pick(1), true));
        assert_eq!(turns(&mut remotes, 3), "abc");
    }

    #[test]
    fn a_connection_tries_each_once_and_those_that_failed_last() {
        let mut remotes = three();
        remotes.note(Pick(0), false);
        let mut tried = Vec::new();
        while let Some(pick) = remotes.pick(&tried) {
            tried.push(pick);
        }
        assert_eq!(tried, [Pick(1), Pick(2), Pick(0)]);
    }

    #[test]
    fn when_all_have_failed_each_is_tried_in_turn() {
        let mut remotes = three();
        for at in 0..3 {
            remotes.note(Pick(at), false);
        }
        assert_eq!(turns(&mut remotes, 4), "abca");
        assert_eq!(Remotes::new(Vec::new()).pick(&[]), None);
    }
}
