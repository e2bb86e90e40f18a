//! Whose turn it is: of all doors over one store, one does the work.
//!
//! A claim is one key on a lease. Who has it renews the lease every two seconds, which writes nothing; so a
//! cluster in which nothing happens has no revision of it. The others look at the key, and one that finds
//! none puts its own there. The store takes the key away with the lease, ten seconds after the last renewal.
//! Times are never compared between doors:
//!
//! ```text
//!   holder   sent ── done                              stops ┐ 8 s after it sent the last renewal that was done
//!   store         └── renewed ───────────────────────────────┼──── 10 s ──► the key goes, and another may claim
//! ```
//!
//! So two never work at once, as long as no clock runs a fifth faster than another. The key's revision is the
//! turn's: it is never written again, and a holder that finds another in its place stops. Nothing depends on
//! it but the amount of work: each write of a keeper is bound to what it has read.
//!
//! A key without a lease is somebody else's mistake, and is replaced if it stays as it is for long enough.

/// Outside of the kinds' keys.
pub const KEY: &str = "/meerkat/listwatch/keeper";

/// In milliseconds, but for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub renew: u64,
    /// A holder that could not renew for so long stops.
    pub stop: u64,
    /// A key without a lease that did not change for so long is nobody's.
    pub take_over: u64,
    pub lease_s: u64,
}

pub const PACE: Pace = Pace { renew: 2_000, stop: 8_000, take_over: 10_000, lease_s: 10 };
const _: () = assert!(2 * PACE.renew < PACE.stop && PACE.stop * 5 <= PACE.lease_s * 1_000 * 4);
const _: () = assert!(PACE.lease_s * 1_000 <= PACE.take_over);

/// The key as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub revision: u64,
    /// 0 for none.
    pub lease: i64,
}

/// What the store is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Renew {
        lease: i64,
    },
    Look,
    Grant,
    /// Put the key, if it is still at this revision; 0 for none.
    Claim {
        expected: u64,
        lease: i64,
    },
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Renewed,
    /// There is no such lease any more.
    Ended,
    Key(Option<Seen>),
    Granted {
        lease: i64,
    },
    Claimed {
        revision: u64,
    },
}

/// What one door knows of it.
#[derive(Debug)]
pub struct Turn {
    pace: Pace,
    lease: Option<Lease>,
    key: Key,
}

/// A lease of ours.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: i64,
    /// When the last renewal that was done was sent.
    renewed_ms: u64,
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Unknown,
    Free,
    Mine { revision: u64 },
    Others { seen: Seen, since_ms: u64 },
}

impl Turn {
    pub fn new(pace: Pace) -> Turn {
        Turn { pace, lease: None, key: Key::Unknown }
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// One round of questions begins with this one.
    pub fn begin(&self) -> Question {
        match self.lease {
            Some(lease) => Question::Renew { lease: lease.id },
            None => Question::Look,
        }
    }

    /// What to ask next; nothing if the round is over. `sent_ms`: before the question was put, `now_ms`: after
    /// the reply came. A question without a reply ends its round, and the next finds out what became of it.
    pub fn heard(&mut self, question: Question, reply: Reply, sent_ms: u64, now_ms: u64) -> Option<Question> {
        match (question, reply) {
            (Question::Renew { lease }, Reply::Renewed) => {
                self.lease = Some(Lease { id: lease, renewed_ms: sent_ms });
                Some(Question::Look)
            }
            (Question::Renew { .. }, Reply::Ended) => {
                self.lease = None;
                Some(Question::Look)
            }
            (Question::Look, Reply::Key(seen)) => {
                self.saw(seen, now_ms);
                self.claim(now_ms).map(|expected| match self.lease {
                    Some(lease) => Question::Claim { expected, lease: lease.id },
                    None => Question::Grant,
                })
            }
            (Question::Grant, Reply::Granted { lease }) => {
                self.lease = Some(Lease { id: lease, renewed_ms: sent_ms });
                self.claim(now_ms).map(|expected| Question::Claim { expected, lease })
            }
            (Question::Claim { .. }, Reply::Claimed { revision }) => {
                self.key = Key::Mine { revision };
                None
            }
            (Question::Claim { .. }, Reply::Key(seen)) => {
                self.saw(seen, now_ms);
                None
            }
            (question, reply) => {
                tracing::error!(
                    ?question,
                    ?reply,
                    "the reply does not fit the question; report this as a bug"
                );
                None
            }
        }
    }

    /// The turn that this door has, by the revision of its key; nothing if it is not its turn, or no longer.
    pub fn revision(&self, now_ms: u64) -> Option<u64> {
        match self.key {
            Key::Mine { revision } => self.stop_ms(now_ms).map(|_| revision),
            Key::Unknown | Key::Free | Key::Others { .. } => None,
        }
    }

    /// When this door must have stopped working; nothing if it is not its turn, or no longer.
    pub fn stop_ms(&self, now_ms: u64) -> Option<u64> {
        let (Key::Mine { .. }, Some(lease)) = (self.key, self.lease) else { return None };
        let stop = lease.renewed_ms.saturating_add(self.pace.stop);
        (now_ms < stop).then_some(stop)
    }

    fn saw(&mut self, seen: Option<Seen>, now_ms: u64) {
        self.key = match (seen, self.lease) {
            (None, _) => Key::Free,
            // By a claim whose reply was lost, if not by one that is known.
            (Some(seen), Some(lease)) if seen.lease == lease.id => Key::Mine { revision: seen.revision },
            (Some(seen), _) => {
                // A lease without the key is of no use, and goes by itself.
                self.lease = None;
                match self.key {
                    Key::Others { seen: before, since_ms } if before == seen => {
                        Key::Others { seen, since_ms }
                    }
                    _ => Key::Others { seen, since_ms: now_ms },
                }
            }
        };
    }

    /// The revision of the key in whose place ours is to be.
    fn claim(&self, now_ms: u64) -> Option<u64> {
        match self.key {
            Key::Free => Some(0),
            Key::Others { seen, since_ms } => {
                let is_stale = self.pace.take_over <= now_ms.saturating_sub(since_ms);
                (seen.lease == 0 && is_stale).then_some(seen.revision)
            }
            Key::Unknown | Key::Mine { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn look(turn: &mut Turn, seen: Option<Seen>, now_ms: u64) -> Option<Question> {
        turn.heard(Question::Look, Reply::Key(seen), now_ms, now_ms)
    }

    /// With the key at revision 7 on lease 1, granted at `at_ms`.
    fn holder(at_ms: u64) -> Turn {
        let mut turn = Turn::new(PACE);
        assert_eq!(turn.begin(), Question::Look);
        assert_eq!(look(&mut turn, None, at_ms), Some(Question::Grant));
        let claim = Question::Claim { expected: 0, lease: 1 };
        assert_eq!(turn.heard(Question::Grant, Reply::Granted { lease: 1 }, at_ms, at_ms), Some(claim));
        assert_eq!(turn.revision(at_ms), None, "not before it is written");
        assert_eq!(turn.heard(claim, Reply::Claimed { revision: 7 }, at_ms, at_ms), None);
        turn
    }

    const MINE: Option<Seen> = Some(Seen { revision: 7, lease: 1 });

    #[test]
    fn nobodys_key_is_taken_at_once_and_kept_by_renewals_alone() {
        let mut turn = holder(100);
        assert_eq!(turn.revision(100 + PACE.stop - 1), Some(7));
        assert_eq!(turn.revision(100 + PACE.stop), None);
        assert_eq!(turn.stop_ms(100 + PACE.stop), None, "there is nothing to wait for any more");
        let renew = Question::Renew { lease: 1 };
        assert_eq!(turn.begin(), renew);
        assert_eq!(turn.heard(renew, Reply::Renewed, 2_000, 2_100), Some(Question::Look));
        assert_eq!(look(&mut turn, MINE, 2_200), None, "nothing is written");
        assert_eq!(turn.stop_ms(2_200), Some(2_000 + PACE.stop));
    }

    #[test]
    fn anothers_key_is_left_alone_as_long_as_it_is_on_a_lease() {
        let mut turn = Turn::new(PACE);
        let other = Some(Seen { revision: 5, lease: 9 });
        for now_ms in [0, 9_000, 1_000_000] {
            assert_eq!(look(&mut turn, other, now_ms), None);
        }
        assert_eq!(turn.begin(), Question::Look, "nothing is granted in vain");
        let bare = |revision| Some(Seen { revision, lease: 0 });
        assert_eq!(look(&mut turn, bare(5), 2_000_000), None);
        assert_eq!(look(&mut turn, bare(6), 2_009_999), None, "it changed");
        assert_eq!(look(&mut turn, bare(6), 2_019_998), None);
        assert_eq!(look(&mut turn, bare(6), 2_019_999), Some(Question::Grant), "nobody's");
        let claim = turn.heard(Question::Grant, Reply::Granted { lease: 3 }, 2_019_999, 2_020_000);
        assert_eq!(claim, Some(Question::Claim { expected: 6, lease: 3 }));
    }

    #[test]
    fn who_sees_another_in_his_place_stops_and_lets_his_lease_go() {
        let mut turn = holder(0);
        assert_eq!(look(&mut turn, Some(Seen { revision: 8, lease: 2 }), 100), None);
        assert_eq!((turn.revision(100), turn.begin()), (None, Question::Look));
    }

    #[test]
    fn a_key_that_was_taken_away_is_put_again_and_is_another_turn() {
        let mut turn = holder(0);
        let claim = Question::Claim { expected: 0, lease: 1 };
        assert_eq!(look(&mut turn, None, 100), Some(claim));
        assert_eq!(turn.revision(100), None, "somebody took the key away");
        turn.heard(claim, Reply::Claimed { revision: 9 }, 100, 100);
        assert_eq!(turn.revision(100), Some(9));
    }

    #[test]
    fn a_lease_that_ended_ends_the_turn() {
        let mut turn = holder(0);
        let renew = turn.begin();
        assert_eq!(turn.heard(renew, Reply::Ended, 100, 100), Some(Question::Look));
        assert_eq!(turn.revision(100), None);
        assert_eq!(look(&mut turn, None, 100), Some(Question::Grant));
    }

    #[test]
    fn a_claim_whose_reply_was_lost_is_found() {
        let mut turn = Turn::new(PACE);
        look(&mut turn, None, 0);
        turn.heard(Question::Grant, Reply::Granted { lease: 1 }, 50, 60);
        let renew = turn.begin();
        assert_eq!(turn.heard(renew, Reply::Renewed, 2_000, 2_010), Some(Question::Look));
        assert_eq!(look(&mut turn, MINE, 2_020), None);
        assert_eq!((turn.revision(2_020), turn.stop_ms(2_020)), (Some(7), Some(2_000 + PACE.stop)));
    }

    /// A store, and doors whose clocks run a little apart and whose messages take their time, or get lost on
    /// the way there or back.
    struct Simulated {
        revision: u64,
        key: Option<Seen>,
        /// When each ends.
        leases: BTreeMap<i64, u64>,
        last_lease: i64,
        doors: Vec<Door>,
        rng: StdRng,
        written: u64,
    }

    struct Door {
        turn: Turn,
        /// Its clock: parts of a thousand, and an offset.
        rate: u64,
        offset: u64,
        message: Option<Message>,
        wakes_at: u64,
    }

    struct Message {
        question: Question,
        sent_ms: u64,
        arrives_at: u64,
        answered_at: u64,
        reply: Option<Reply>,
        is_lost: bool,
    }

    impl Door {
        fn now_ms(&self, at: u64) -> u64 {
            self.offset + at * self.rate / 1_000
        }
    }

    impl Simulated {
        fn new(seed: u64) -> Simulated {
            let mut rng = StdRng::seed_from_u64(seed);
            let door = |rng: &mut StdRng| Door {
                turn: Turn::new(PACE),
                rate: rng.random_range(950..=1_050),
                offset: rng.random_range(0..1_000_000),
                message: None,
                wakes_at: rng.random_range(0..3_000),
            };
            let doors = (0..4).map(|_| door(&mut rng)).collect();
            let leases = BTreeMap::new();
            Simulated { revision: 1, key: None, leases, last_lease: 0, doors, rng, written: 0 }
        }

        fn reply(&mut self, question: Question, at: u64) -> Option<Reply> {
            let ttl = PACE.lease_s * 1_000;
            Some(match question {
                Question::Renew { lease } => match self.leases.get_mut(&lease) {
                    Some(end) => {
                        *end = at + ttl;
                        Reply::Renewed
                    }
                    None => Reply::Ended,
                },
                Question::Look => Reply::Key(self.key),
                Question::Grant => {
                    self.last_lease += 1;
                    self.leases.insert(self.last_lease, at + ttl);
                    Reply::Granted { lease: self.last_lease }
                }
                // A write on a lease that has ended is refused.
                Question::Claim { lease, .. } if !self.leases.contains_key(&lease) => return None,
                Question::Claim { expected, lease } => {
                    if self.key.map_or(0, |key| key.revision) == expected {
                        self.revision += 1;
                        self.written += 1;
                        self.key = Some(Seen { revision: self.revision, lease });
                        Reply::Claimed { revision: self.revision }
                    } else {
                        Reply::Key(self.key)
                    }
                }
            })
        }

        fn step(&mut self, at: u64) {
            self.leases.retain(|_, end| at < *end);
            if self.key.is_some_and(|key| !self.leases.contains_key(&key.lease)) {
                self.revision += 1;
                self.key = None;
            }
            for index in 0..self.doors.len() {
                let arrived = self.doors[index].message.as_ref().filter(|message| message.arrives_at == at);
                if let Some(question) = arrived.map(|message| message.question) {
                    let reply = self.reply(question, at);
                    self.doors[index].message.as_mut().expect("it is there").reply = reply;
                }
                let door = &mut self.doors[index];
                let now_ms = door.now_ms(at);
                if let Some(message) = door.message.take_if(|message| message.answered_at == at) {
                    let heard = message.reply.filter(|_| !message.is_lost);
                    let next = heard
                        .and_then(|reply| door.turn.heard(message.question, reply, message.sent_ms, now_ms));
                    match next {
                        Some(question) => self.send(index, question, at),
                        None => door.wakes_at = at + PACE.renew,
                    }
                } else if door.message.is_none() && door.wakes_at <= at {
                    let question = door.turn.begin();
                    self.send(index, question, at);
                }
            }
        }

        fn send(&mut self, index: usize, question: Question, at: u64) {
            let arrives_at = at + self.rng.random_range(1..400);
            let answered_at = arrives_at + self.rng.random_range(1..400);
            let is_lost = self.rng.random_bool(0.2);
            // What gets lost on the way there is asked too late for anybody to hear of it.
            let arrives_at = if is_lost && self.rng.random_bool(0.5) { u64::MAX } else { arrives_at };
            let sent_ms = self.doors[index].now_ms(at);
            let message = Message { question, sent_ms, arrives_at, answered_at, reply: None, is_lost };
            self.doors[index].message = Some(message);
        }

        fn workers(&self, at: u64) -> Vec<usize> {
            let works = |index: &usize| {
                let door = &self.doors[*index];
                door.turn.revision(door.now_ms(at)).is_some()
            };
            (0..self.doors.len()).filter(works).collect()
        }
    }

    #[test]
    fn two_never_work_at_once_somebody_mostly_does_and_hardly_anything_is_written() {
        for seed in 0..20 {
            let mut simulated = Simulated::new(seed);
            let (mut worked, mut turns, mut last) = (0_u64, 0, None);
            const STEPS: u64 = 300_000;
            for at in 0..STEPS {
                simulated.step(at);
                let workers = simulated.workers(at);
                assert!(workers.len() <= 1, "seed {seed}, at {at}: {workers:?}");
                if let [one] = workers.as_slice() {
                    worked += 1;
                    turns += u32::from(last.replace(*one) != Some(*one));
                }
                // Now and then one is gone for long.
                if at % 60_000 == 59_999
                    && let Some(last) = last
                {
                    let door = &mut simulated.doors[last];
                    (door.message, door.wakes_at) = (None, at + 40_000);
                }
            }
            assert!(STEPS * 6 / 10 < worked, "seed {seed}: {worked}");
            assert!(2 <= turns, "seed {seed}: {turns}");
            assert!(simulated.written <= 60, "seed {seed}: {}", simulated.written);
        }
    }
}
