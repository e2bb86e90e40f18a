//! Whether a change of the membership may be made: etcd's rules, in etcd's order.
//!
//! Members are looked at as clients see them: one that waits for its vote is a voter here. Where that
//! could leave fewer votes than a majority needs, the votes that there are decide too.

use meerkat_types::{LogIndex, MemberId};
use std::time::Duration;

/// How long a connection must have stood to count.
const CONNECTED_MIN: Duration = Duration::from_secs(5);
/// What share of the leader's log a learner must have to be promoted, in percent.
const READY_PERCENT: u128 = 90;

/// What a client asks for. Ids of added members are chosen before, so that asking again is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    Add { id: MemberId, peer_urls: Vec<String>, learner: bool },
    Remove { id: MemberId },
    Update { id: MemberId, peer_urls: Vec<String> },
    Promote { id: MemberId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    #[error("a member of this id exists")]
    IdExists,
    #[error("another member is at one of these peer URLs")]
    UrlExists,
    #[error("too few of the voters have started to have a majority afterwards")]
    NotEnoughStarted,
    #[error("no such member")]
    NotFound,
    #[error("the member is no learner")]
    NotLearner,
    #[error("the learner has not caught up")]
    LearnerNotReady,
    #[error("there are as many learners as are allowed")]
    TooManyLearners,
    #[error("too few of the voters have been connected for long enough")]
    Unhealthy,
}

/// What the operator allows.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Refuse what would put the majority at risk.
    pub strict: bool,
    pub learners_max: usize,
}

/// One member, as the leader sees it.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub id: MemberId,
    pub peer_urls: Vec<String>,
    pub learner: bool,
    /// It counts in a quorum already.
    pub votes: bool,
    /// It has published its name.
    pub started: bool,
    pub reach: Reach,
    /// How much of the log it is known to have.
    pub matched: LogIndex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Myself,
    /// Not connected.
    Silent,
    /// Connected for so long.
    For(Duration),
}

/// What a change is judged by.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    pub seats: Vec<Seat>,
    /// The last position of the leader's log.
    pub last: LogIndex,
}

impl Rules {
    pub(super) fn check(&self, change: &MemberChange, roster: &Roster) -> Result<(), ChangeRefusal> {
        match change {
            MemberChange::Add { id, peer_urls, learner } => self.check_add(*id, peer_urls, *learner, roster),
            MemberChange::Remove { id } => self.check_remove(*id, roster),
            MemberChange::Update { id, peer_urls } => {
                roster.seat(*id).ok_or(ChangeRefusal::NotFound)?;
                if roster.uses(peer_urls, Some(*id)) { Err(ChangeRefusal::UrlExists) } else { Ok(()) }
            }
            MemberChange::Promote { id } => self.check_promote(*id, roster),
        }
    }

    fn check_add(
        &self,
        id: MemberId,
        peer_urls: &[String],
        learner: bool,
        roster: &Roster,
    ) -> Result<(), ChangeRefusal> {
        if self.strict {
            if !learner && !can_gain_a_voter(roster) {
                return Err(ChangeRefusal::NotEnoughStarted);
            }
            if !has_quorum_with_one_more(roster) {
                return Err(ChangeRefusal::Unhealthy);
            }
        }
        if roster.seat(id).is_some() {
            return Err(ChangeRefusal::IdExists);
        }
        if roster.uses(peer_urls, None) {
            return Err(ChangeRefusal::UrlExists);
        }
        let learners = roster.seats.iter().filter(|seat| seat.learner).count();
        if learner && self.learners_max <= learners { Err(ChangeRefusal::TooManyLearners) } else { Ok(()) }
    }

    fn check_remove(&self, id: MemberId, roster: &Roster) -> Result<(), ChangeRefusal> {
        let seat = roster.seat(id);
        let learner = seat.is_some_and(|seat| seat.learner);
        // Strict or not: nobody could ever undo the removal of the last one.
        if seat.is_some() && !learner && roster.voters().count() == 1 {
            return Err(ChangeRefusal::NotEnoughStarted);
        }
        if self.strict && !learner {
            let stay: Vec<&Seat> = roster.voters().filter(|seat| seat.id != id).collect();
            if stay.iter().filter(|seat| seat.started).count() < majority(stay.len()) {
                return Err(ChangeRefusal::NotEnoughStarted);
            }
            // One that is down is no loss.
            let is_there = seat.is_some_and(|seat| seat.reach != Reach::Silent);
            if is_there && roster.connected() < 1 + majority(roster.voters().count() - 1) {
                return Err(ChangeRefusal::Unhealthy);
            }
            if !leaves_a_majority(id, roster) {
                return Err(ChangeRefusal::Unhealthy);
            }
        }
        if seat.is_some() { Ok(()) } else { Err(ChangeRefusal::NotFound) }
    }

    fn check_promote(&self, id: MemberId, roster: &Roster) -> Result<(), ChangeRefusal> {
        let seat = roster.seat(id).ok_or(ChangeRefusal::NotFound)?;
        let behind = u128::from(seat.matched.0) * 100 < u128::from(roster.last.0) * READY_PERCENT;
        // One that cannot be reached could not agree to its own promotion, and one that has not said
        // whose disk it runs on could be wiped without anybody noticing.
        let absent = seat.reach == Reach::Silent || !seat.started;
        if seat.learner && (behind || absent) {
            return Err(ChangeRefusal::LearnerNotReady);
        }
        if self.strict {
            // The learner counts as started.
            let started = 1 + roster.voters().filter(|seat| seat.started).count();
            if started < majority(1 + roster.voters().count()) {
                return Err(ChangeRefusal::NotEnoughStarted);
            }
        }
        if seat.learner { Ok(()) } else { Err(ChangeRefusal::NotLearner) }
    }
}

/// Whether those with a vote that can be reached are a majority of the votes that remain: without
/// that, the removal itself would never be agreed on.
fn leaves_a_majority(removed: MemberId, roster: &Roster) -> bool {
    let stay = || roster.seats.iter().filter(|seat| seat.votes && seat.id != removed);
    let reached = stay().filter(|seat| seat.reach != Reach::Silent).count();
    majority(stay().count()) <= reached
}

/// Whether those who have started are a majority with one voter more. A single member may always be
/// joined by a second, or it could never grow.
fn can_gain_a_voter(roster: &Roster) -> bool {
    let voters = 1 + roster.voters().count();
    let started = roster.voters().filter(|seat| seat.started).count();
    (started == 1 && voters == 2) || majority(voters) <= started
}

/// Whether the connected voters are a quorum of one voter more. The member to be added counts as
/// absent, a learner too. A single member may always be joined.
fn has_quorum_with_one_more(roster: &Roster) -> bool {
    let voters = roster.voters().count();
    voters == 1 || majority(voters + 1) <= roster.connected()
}

const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

impl Seat {
    fn is_connected(&self) -> bool {
        match self.reach {
            Reach::Myself => true,
            Reach::Silent => false,
            Reach::For(time) => CONNECTED_MIN <= time,
        }
    }
}

impl Roster {
    fn seat(&self, id: MemberId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.id == id)
    }

    fn voters(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| !seat.learner)
    }

    /// Voters that have been connected for long enough.
    fn connected(&self) -> usize {
        self.voters().filter(|seat| seat.is_connected()).count()
    }

    fn uses(&self, peer_urls: &[String], except: Option<MemberId>) -> bool {
        let others = self.seats.iter().filter(|seat| Some(seat.id) != except);
        others.flat_map(|seat| &seat.peer_urls).any(|url| peer_urls.contains(url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Rules = Rules { strict: true, learners_max: 1 };
    const LAX: Rules = Rules { strict: false, learners_max: 1 };
    const LONG: Reach = Reach::For(CONNECTED_MIN);
    const SHORT: Reach = Reach::For(Duration::from_secs(4));

    fn seat(id: u64, started: bool, reach: Reach) -> Seat {
        Seat {
            id: MemberId(id),
            peer_urls: vec![url(id)],
            learner: false,
            votes: true,
            started,
            reach,
            matched: LogIndex(100),
        }
    }

    fn learner(id: u64, matched: u64) -> Seat {
        Seat { learner: true, votes: false, matched: LogIndex(matched), ..seat(id, true, LONG) }
    }

    fn url(id: u64) -> String {
        format!("http://m{id}:2380")
    }

    /// Started voters, each with a connection of this kind; the first is the leader.
    fn voters(reaches: &[Reach]) -> Vec<Seat> {
        let mut seats = vec![seat(1, true, Reach::Myself)];
        seats.extend((2..).zip(reaches).map(|(id, reach)| seat(id, true, *reach)));
        seats
    }

    fn with(mut seats: Vec<Seat>, more: Seat) -> Vec<Seat> {
        seats.push(more);
        seats
    }

    fn add(id: u64) -> MemberChange {
        MemberChange::Add { id: MemberId(id), peer_urls: vec![url(id)], learner: false }
    }

    fn add_learner(id: u64) -> MemberChange {
        MemberChange::Add { id: MemberId(id), peer_urls: vec![url(id)], learner: true }
    }

    fn check(rules: Rules, change: MemberChange, seats: Vec<Seat>, expected: Result<(), ChangeRefusal>) {
        let roster = Roster { seats, last: LogIndex(100) };
        assert_eq!(rules.check(&change, &roster), expected, "{change:?} of {roster:?}");
    }

    #[test]
    fn a_voter_is_added_while_enough_have_started_and_a_quorum_of_the_new_size_is_connected() {
        use ChangeRefusal::{NotEnoughStarted, Unhealthy};
        check(STRICT, add(9), voters(&[]), Ok(()));
        check(STRICT, add(9), voters(&[LONG, LONG]), Ok(()));
        check(STRICT, add(9), voters(&[LONG, SHORT]), Err(Unhealthy));
        // Of two or three all are needed, of four or five one may be down, of six two.
        check(STRICT, add(9), voters(&[SHORT]), Err(Unhealthy));
        check(STRICT, add(9), voters(&[LONG, Reach::Silent]), Err(Unhealthy));
        check(STRICT, add(9), voters(&[LONG, LONG, Reach::Silent]), Ok(()));
        check(STRICT, add(9), voters(&[LONG, SHORT, Reach::Silent]), Err(Unhealthy));
        check(STRICT, add(9), voters(&[LONG, LONG, LONG, Reach::Silent]), Ok(()));
        check(STRICT, add(9), voters(&[LONG, LONG, SHORT, Reach::Silent]), Err(Unhealthy));
        check(STRICT, add(9), voters(&[LONG, LONG, LONG, Reach::Silent, Reach::Silent]), Ok(()));
        let waiting = seat(2, false, Reach::Silent);
        check(STRICT, add(9), with(voters(&[]), waiting.clone()), Err(NotEnoughStarted));
        check(LAX, add(9), with(voters(&[]), waiting), Ok(()));
        check(STRICT, add(9), vec![seat(1, false, Reach::Myself)], Err(NotEnoughStarted));
        check(LAX, add(9), voters(&[Reach::Silent]), Ok(()));
    }

    #[test]
    fn ids_and_urls_are_used_once_and_learners_are_few() {
        use ChangeRefusal::{IdExists, TooManyLearners, UrlExists};
        check(STRICT, add(1), voters(&[]), Err(IdExists));
        let taken = MemberChange::Add { id: MemberId(9), peer_urls: vec![url(9), url(1)], learner: false };
        check(STRICT, taken, voters(&[]), Err(UrlExists));
        check(STRICT, add_learner(9), voters(&[]), Ok(()));
        check(STRICT, add_learner(9), with(voters(&[]), learner(8, 0)), Err(TooManyLearners));
        check(LAX, add_learner(9), with(voters(&[]), learner(8, 0)), Err(TooManyLearners));
        check(STRICT, add(9), with(voters(&[]), learner(8, 0)), Ok(()));
        check(STRICT, add_learner(9), voters(&[SHORT]), Err(ChangeRefusal::Unhealthy));
        check(STRICT, add_learner(9), voters(&[LONG, LONG, SHORT]), Ok(()));
    }

    #[test]
    fn a_member_is_removed_while_a_majority_of_the_rest_is_there() {
        use ChangeRefusal::{NotEnoughStarted, NotFound, Unhealthy};
        let remove = |id| MemberChange::Remove { id: MemberId(id) };
        check(STRICT, remove(3), voters(&[LONG, LONG]), Ok(()));
        check(STRICT, remove(1), voters(&[LONG, LONG]), Ok(()));
        check(STRICT, remove(3), voters(&[LONG, Reach::Silent]), Ok(()));
        check(STRICT, remove(2), voters(&[LONG, Reach::Silent]), Err(Unhealthy));
        check(STRICT, remove(2), voters(&[SHORT, LONG]), Err(Unhealthy));
        check(STRICT, remove(2), voters(&[LONG]), Ok(()));
        check(STRICT, remove(9), voters(&[LONG]), Err(NotFound));
        check(STRICT, remove(1), voters(&[]), Err(NotEnoughStarted));
        check(LAX, remove(1), voters(&[]), Err(NotEnoughStarted));
        check(STRICT, remove(8), with(voters(&[]), learner(8, 0)), Ok(()));
        check(STRICT, remove(1), with(voters(&[]), seat(2, false, Reach::Silent)), Err(NotEnoughStarted));
        check(STRICT, remove(2), with(voters(&[]), seat(2, false, Reach::Silent)), Ok(()));
        // Three with a vote, one of them down, and a newcomer that waits for its own.
        let waiting = Seat { votes: false, ..seat(4, true, LONG) };
        let four = with(voters(&[LONG, Reach::Silent]), waiting.clone());
        check(STRICT, remove(2), four.clone(), Err(Unhealthy));
        check(STRICT, remove(3), four, Ok(()));
        check(STRICT, remove(1), with(voters(&[]), Seat { id: MemberId(2), ..waiting }), Err(Unhealthy));
    }

    #[test]
    fn a_learner_is_promoted_with_nine_tenths_of_the_log() {
        use ChangeRefusal::{LearnerNotReady, NotEnoughStarted, NotFound, NotLearner};
        let promote = |id| MemberChange::Promote { id: MemberId(id) };
        check(STRICT, promote(8), with(voters(&[LONG]), learner(8, 90)), Ok(()));
        check(STRICT, promote(8), with(voters(&[LONG]), learner(8, 89)), Err(LearnerNotReady));
        check(LAX, promote(8), with(voters(&[LONG]), learner(8, 89)), Err(LearnerNotReady));
        let dead = Seat { reach: Reach::Silent, ..learner(8, 100) };
        check(STRICT, promote(8), with(voters(&[LONG]), dead), Err(LearnerNotReady));
        let nameless = Seat { started: false, ..learner(8, 100) };
        check(LAX, promote(8), with(voters(&[LONG]), nameless), Err(LearnerNotReady));
        check(STRICT, promote(2), voters(&[LONG]), Err(NotLearner));
        check(STRICT, promote(9), voters(&[LONG]), Err(NotFound));
        let unstarted = [2, 3].map(|id| seat(id, false, Reach::Silent));
        let seats = [voters(&[]), unstarted.to_vec(), vec![learner(8, 100)]].concat();
        check(STRICT, promote(8), seats.clone(), Err(NotEnoughStarted));
        // In etcd's order: whether it is there, whether it is ready, whether enough have started.
        check(STRICT, promote(9), seats.clone(), Err(NotFound));
        check(LAX, promote(8), seats, Ok(()));
    }

    #[test]
    fn an_update_needs_its_member_and_urls_of_nobody_else() {
        let update = |id, to| MemberChange::Update { id: MemberId(id), peer_urls: vec![url(to)] };
        check(STRICT, update(1, 7), voters(&[LONG]), Ok(()));
        check(STRICT, update(1, 1), voters(&[LONG]), Ok(()));
        check(STRICT, update(1, 2), voters(&[LONG]), Err(ChangeRefusal::UrlExists));
        check(STRICT, update(9, 7), voters(&[LONG]), Err(ChangeRefusal::NotFound));
    }
}
