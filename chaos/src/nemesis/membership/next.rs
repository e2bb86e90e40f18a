//! What is to be done next, from what the cluster lists and what stands on the ground.

/// One member, as listed and as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its id; none if the cluster does not list it.
    pub id: Option<u64>,
    /// Its number on the ground; none if nobody there has its URL.
    pub member: Option<usize>,
    /// Whether it is a learner.
    pub learner: bool,
    /// Whether its process is there.
    pub running: bool,
}

/// What a cluster is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// How many voters.
    pub voters: usize,
    /// Whether new ones come in as learners.
    pub learners_first: bool,
    /// Who is to go in any case.
    pub without: Option<u64>,
}

impl Goal {
    /// So many voters.
    pub fn voters(voters: usize) -> Self {
        Self { voters, learners_first: false, without: None }
    }

    /// So many voters, each of them a learner first.
    pub fn through_learner(voters: usize) -> Self {
        Self { learners_first: true, ..Self::voters(voters) }
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is left to do.
    Done,
    /// A new member is to be added.
    Add {
        /// As what.
        learner: bool,
    },
    /// A member is to be started.
    Start(usize),
    /// A learner is to be promoted.
    Promote(u64),
    /// A member is to be removed.
    Remove(u64),
    /// A member was removed: its process is to end.
    Discharge(usize),
}

/// What to do next. Somebody who was laid out and whose addition is not certain is no seat until the
/// cluster lists it, and then one that does not run.
pub fn next(seats: &[Seat], goal: Goal) -> Action {
    let listed = || seats.iter().filter(|seat| seat.id.is_some());
    if let Some(gone) = seats.iter().find(|seat| seat.id.is_none()).and_then(|seat| seat.member) {
        return Action::Discharge(gone);
    }
    // Before anything else is asked for: a change may need everybody. The doomed one may stay dead.
    let down = |seat: &&Seat| !seat.running && (goal.without.is_none() || seat.id != goal.without);
    if let Some(down) = listed().filter(down).find_map(|seat| seat.member) {
        return Action::Start(down);
    }
    let doomed = listed().find(|seat| seat.id == goal.without && seat.id.is_some());
    let stranger = listed().find(|seat| seat.member.is_none());
    if let Some(id) = doomed.or(stranger).and_then(|seat| seat.id) {
        return Action::Remove(id);
    }
    if let Some(id) = listed().find(|seat| seat.learner).and_then(|seat| seat.id) {
        return Action::Promote(id);
    }
    let voters = listed().count();
    if voters < goal.voters {
        return Action::Add { learner: goal.learners_first };
    }
    if goal.voters < voters {
        // The eldest go first, so that everybody is new in the end.
        let eldest = listed().min_by_key(|seat| seat.member);
        return eldest.and_then(|seat| seat.id).map_or(Action::Done, Action::Remove);
    }
    Action::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(number: usize) -> Seat {
        Seat { id: Some(number as u64 + 10), member: Some(number), learner: false, running: true }
    }

    fn three() -> Vec<Seat> {
        (0..3).map(voter).collect()
    }

    #[test]
    fn a_cluster_of_the_wanted_size_is_left_alone() {
        assert_eq!(next(&three(), Goal::voters(3)), Action::Done);
    }

    #[test]
    fn it_grows_shrinks_and_takes_learners_in() {
        assert_eq!(next(&three(), Goal::voters(4)), Action::Add { learner: false });
        assert_eq!(next(&three(), Goal::through_learner(4)), Action::Add { learner: true });
        assert_eq!(next(&three(), Goal::voters(2)), Action::Remove(10));
        let mut seats = three();
        seats.push(Seat { learner: true, ..voter(3) });
        assert_eq!(next(&seats, Goal::voters(4)), Action::Promote(13));
    }

    #[test]
    fn whoever_was_added_is_started_and_whoever_was_removed_ends_before_all_else() {
        let mut seats = three();
        seats.push(Seat { running: false, ..voter(3) });
        assert_eq!(next(&seats, Goal::voters(3)), Action::Start(3));
        seats.push(Seat { id: None, ..voter(4) });
        assert_eq!(next(&seats, Goal::voters(3)), Action::Discharge(4));
    }

    #[test]
    fn the_doomed_one_goes_dead_or_alive_and_is_replaced() {
        let goal = Goal { without: Some(11), ..Goal::voters(3) };
        let mut seats = three();
        assert_eq!(next(&seats, goal), Action::Remove(11));
        seats[1].running = false;
        assert_eq!(next(&seats, goal), Action::Remove(11));
        seats.remove(1);
        assert_eq!(next(&seats, goal), Action::Add { learner: false });
    }

    #[test]
    fn an_entry_that_nobody_stands_for_is_removed() {
        let mut seats = three();
        seats.push(Seat { id: Some(99), member: None, learner: false, running: false });
        assert_eq!(next(&seats, Goal::voters(4)), Action::Remove(99));
    }
}
