//! What a run has built up, as etcd answered it: who is a member, who runs, who leads.
//!
//! Holds nothing of what the other product answered, and decides nothing about who is right: it
//! tells the generator what there is, and coverage what a step was about.

/// What became of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It votes.
    Voter,
    /// It follows.
    Learner,
    /// It was removed.
    Removed,
}

/// One member, through all that happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mate {
    /// What it is.
    pub role: Role,
    /// Whether there is a process to start for it, and not only URLs.
    pub real: bool,
    /// Whether it was ever started.
    pub started: bool,
    /// Whether it runs.
    pub running: bool,
}

/// Whether strict checks find the voters connected for long enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// They do.
    #[default]
    Healthy,
    /// One was started just now, so they do not.
    Fresh,
    /// Nobody can tell before the next rest.
    Unsure,
}

/// Everything known.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// How many members there were at first.
    pub began_with: usize,
    /// All members, by number.
    pub mates: Vec<Mate>,
    /// Who leads; the run brings leadership there on both clusters.
    pub leader: usize,
    /// Whether voters have been connected for long enough.
    pub health: Health,
    /// How many URLs that nobody listens on were used.
    pub plain_urls: usize,
}

impl World {
    /// A cluster of so many voters.
    pub fn new(members: usize) -> Self {
        let mate = Mate { role: Role::Voter, real: true, started: true, running: true };
        Self { began_with: members, mates: vec![mate; members], ..Self::default() }
    }

    /// Numbers of all members of which this holds.
    pub fn those(&self, which: impl Fn(&Mate) -> bool) -> Vec<usize> {
        (0..self.mates.len()).filter(|mate| which(&self.mates[*mate])).collect()
    }

    /// Voters.
    pub fn voters(&self) -> Vec<usize> {
        self.those(|mate| mate.role == Role::Voter)
    }

    /// Voters that run.
    pub fn running_voters(&self) -> Vec<usize> {
        self.those(|mate| mate.role == Role::Voter && mate.running)
    }

    /// The learner, if there is one.
    pub fn learner(&self) -> Option<usize> {
        self.those(|mate| mate.role == Role::Learner).first().copied()
    }

    /// Members that were added and can be started.
    pub fn waiting(&self) -> Vec<usize> {
        self.those(|mate| mate.role != Role::Removed && mate.real && !mate.started)
    }

    /// Voters that were started and do not run.
    pub fn down(&self) -> Vec<usize> {
        self.those(|mate| mate.role == Role::Voter && mate.started && !mate.running)
    }

    /// Voters with URLs only.
    pub fn hollow_voters(&self) -> Vec<usize> {
        self.those(|mate| mate.role == Role::Voter && !mate.real)
    }

    /// Running voters that do not lead.
    pub fn followers(&self) -> Vec<usize> {
        self.running_voters().into_iter().filter(|mate| *mate != self.leader).collect()
    }

    /// Whether running voters are a majority of the voters, counting so many less.
    pub fn has_quorum_without(&self, fewer: usize) -> bool {
        let voters = self.voters().len();
        voters / 2 < self.running_voters().len().saturating_sub(fewer)
    }

    /// Whether etcd would take another voter: enough were started, and all are connected.
    pub fn takes_voters(&self) -> bool {
        let started = self.those(|mate| mate.role == Role::Voter && mate.started).len();
        let voters = self.voters().len();
        let enough = (started == 1 && voters == 1) || voters.div_ceil(2) < started;
        enough && self.is_whole()
    }

    /// Whether every voter runs.
    pub fn is_whole(&self) -> bool {
        self.voters() == self.running_voters()
    }

    /// A URL that nobody listens on and no step has used.
    pub fn plain_url(&mut self) -> String {
        self.plain_urls += 1;
        // The second octets take turns, so that members with several URLs do not have them in order.
        let octet = if self.plain_urls.is_multiple_of(2) { 7 } else { 90 };
        format!("http://127.{octet}.0.9:{}", 100 + self.plain_urls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_voters_need_no_company_and_later_ones_do() {
        let mut world = World::new(1);
        assert!(world.takes_voters() && world.has_quorum_without(0) && !world.has_quorum_without(1));
        world.mates.push(Mate { role: Role::Voter, real: true, started: false, running: false });
        assert!(!world.takes_voters() && !world.has_quorum_without(0) && !world.is_whole());
        world.mates[1] = Mate { started: true, running: true, ..world.mates[1] };
        assert!(world.takes_voters() && world.has_quorum_without(0));
    }

    #[test]
    fn removed_members_count_nowhere() {
        let mut world = World::new(3);
        world.mates[2].role = Role::Removed;
        assert_eq!((world.voters(), world.running_voters()), (vec![0, 1], vec![0, 1]));
        assert_eq!(world.followers(), [1]);
    }
}
