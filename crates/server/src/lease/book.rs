//! Deadlines of all leases, while this member leads: pure, with the time handed in.
//!
//! ```text
//! following --take--> taking over --lead--> leading --follow--> following
//! ```
//!
//! While it takes over, a member reads the leases from the state and the apply thread goes on granting
//! and ending some; the book merges the two. Renewing touches one entry of a table; the queues by time
//! are brought in line only when a time in them comes.

use meerkat_state::LeaseChange;
use meerkat_types::{Lease, LeaseId, LeaseNote, LeaseTtl, limits};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// After a change of leader at most this many leases get their deadline in one second, if there are
/// more than [`limits::LEASE_EXPIRIES_PER_SECOND`] of them: as etcd, three quarters of what can expire.
const DEADLINES_PER_SECOND: u32 = limits::LEASE_EXPIRIES_PER_SECOND / 4 * 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Following,
    TakingOver { term: u64 },
    Leading { term: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Held {
    ttl: LeaseTtl,
    deadline: Instant,
    /// What is left of it may stand in the log.
    noted: bool,
    /// When it was granted, renewed or noted.
    touched: Instant,
    /// Its end is on the way to the log.
    ending: bool,
    /// Where it stands in the two queues: any other entry there is of an earlier life.
    queued: Instant,
    note_queued: Instant,
}

pub(crate) struct Book {
    role: Role,
    leases: HashMap<LeaseId, Held>,
    /// Ended while taking over: the state that is being read may still have them.
    ended: HashSet<LeaseId>,
    /// When to look at a lease again for its deadline: never later than it.
    deadlines: BinaryHeap<Reverse<(Instant, LeaseId)>>,
    /// When to look at a lease again for a note.
    notes: BinaryHeap<Reverse<(Instant, LeaseId)>>,
    /// A lease that was not touched for this long gets a note of what is left of it.
    note_interval: Duration,
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    For(LeaseTtl),
    /// First the note about it must be taken back.
    Noted,
    Expiring,
    Unknown,
}

impl Book {
    pub(crate) fn new(note_interval: Duration) -> Book {
        Book {
            role: Role::Following,
            leases: HashMap::new(),
            ended: HashSet::new(),
            deadlines: BinaryHeap::new(),
            notes: BinaryHeap::new(),
            note_interval,
        }
    }

    /// The term in which this member leads and knows every lease.
    pub(crate) fn term(&self) -> Option<u64> {
        match self.role {
            Role::Leading { term } => Some(term),
            Role::Following | Role::TakingOver { .. } => None,
        }
    }

    pub(crate) fn follow(&mut self) {
        *self = Book::new(self.note_interval);
    }

    /// From here on what is granted and ended is kept; the leases of the state come later.
    pub(crate) fn take_over(&mut self, term: u64) {
        self.follow();
        self.role = Role::TakingOver { term };
    }

    /// `state`: the leases as of some moment after [`Book::take_over`]. Each lives on from `now` for what
    /// a predecessor may have promised, and `grace` beyond.
    pub(crate) fn lead(&mut self, term: u64, state: Vec<Lease>, now: Instant, grace: Duration) {
        if self.role != (Role::TakingOver { term }) {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        let mut taken: Vec<Lease> = state
            .into_iter()
            .filter(|lease| !ended.contains(&lease.id) && !self.leases.contains_key(&lease.id))
            .collect();
        taken.sort_by_key(|lease| (lease.left_to_live(), lease.id));
        let lives: Vec<Duration> = taken.iter().map(Lease::left_to_live).collect();
        for (lease, life) in taken.iter().zip(spread(&lives)) {
            self.hold(lease, lease.remaining.is_some(), now, later(now, life + grace));
        }
        self.role = Role::Leading { term };
    }

    /// A lease came or went.
    pub(crate) fn changed(&mut self, change: LeaseChange, now: Instant) {
        match (self.role, change) {
            (Role::Following, _) => {}
            (_, LeaseChange::Granted(lease)) => {
                self.ended.remove(&lease.id);
                self.hold(&lease, false, now, later(now, lease.ttl.duration()));
            }
            (role, LeaseChange::Ended(lease)) => {
                self.leases.remove(&lease);
                if matches!(role, Role::TakingOver { .. }) {
                    self.ended.insert(lease);
                }
            }
        }
    }

    fn hold(&mut self, lease: &Lease, noted: bool, now: Instant, deadline: Instant) {
        let note_queued = later(now, self.note_interval);
        let held = Held {
            ttl: lease.ttl,
            deadline,
            noted,
            touched: now,
            ending: false,
            queued: deadline,
            note_queued,
        };
        self.leases.insert(lease.id, held);
        self.deadlines.push(Reverse((deadline, lease.id)));
        // One that lives shorter than the interval is over before a note could help.
        if self.note_interval < lease.ttl.duration() {
            self.notes.push(Reverse((note_queued, lease.id)));
        }
    }

    pub(crate) fn renew(&mut self, lease: LeaseId, now: Instant) -> Renewed {
        let Some(held) = self.leases.get_mut(&lease) else { return Renewed::Unknown };
        if held.ending || held.deadline <= now {
            return Renewed::Expiring;
        }
        // Also while its note is taken back: no new one may come in between.
        held.touched = now;
        if held.noted {
            return Renewed::Noted;
        }
        held.deadline = later(now, held.ttl.duration());
        Renewed::For(held.ttl)
    }

    /// The log no longer has a note about these leases.
    pub(crate) fn unnoted(&mut self, leases: &[LeaseId]) {
        for lease in leases {
            if let Some(held) = self.leases.get_mut(lease) {
                held.noted = false;
            }
        }
    }

    /// Time to live, and the milliseconds left of it: negative after the deadline.
    pub(crate) fn rest(&self, lease: LeaseId, now: Instant) -> Option<(LeaseTtl, i64)> {
        let held = self.leases.get(&lease)?;
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let rest = match held.deadline.checked_duration_since(now) {
            Some(left) => millis(left),
            None => -millis(now.duration_since(held.deadline)),
        };
        Some((held.ttl, rest))
    }

    /// At most `max` leases whose deadline has passed and whose end is not on the way yet; now it is.
    pub(crate) fn expire(&mut self, now: Instant, max: usize) -> Vec<LeaseId> {
        let mut expired = Vec::new();
        while expired.len() < max {
            let Some(Reverse((at, lease))) =
                self.deadlines.peek().copied().filter(|Reverse((at, _))| *at <= now)
            else {
                break;
            };
            self.deadlines.pop();
            let Some(held) = self.leases.get_mut(&lease) else { continue };
            if held.ending || held.queued != at {
                continue;
            }
            if now < held.deadline {
                // Renewed since.
                held.queued = held.deadline;
                self.deadlines.push(Reverse((held.deadline, lease)));
                continue;
            }
            held.ending = true;
            expired.push(lease);
        }
        expired
    }

    /// The end of this lease did not reach the log: it is tried again after `pause`.
    pub(crate) fn end_failed(&mut self, lease: LeaseId, now: Instant, pause: Duration) {
        if let Some(held) = self.leases.get_mut(&lease) {
            held.ending = false;
            held.queued = later(now, pause);
            self.deadlines.push(Reverse((held.queued, lease)));
        }
    }

    /// At most `max` notes that are due. From here on the log may have them.
    pub(crate) fn take_notes(&mut self, now: Instant, max: usize) -> Vec<LeaseNote> {
        let mut notes = Vec::new();
        while notes.len() < max {
            let Some(Reverse((at, lease))) = self.notes.peek().copied().filter(|Reverse((at, _))| *at <= now)
            else {
                break;
            };
            self.notes.pop();
            let Some(held) = self.leases.get_mut(&lease) else { continue };
            if held.ending || held.note_queued != at || held.deadline <= now {
                continue;
            }
            let due = later(held.touched, self.note_interval);
            if now < due {
                held.note_queued = due;
                self.notes.push(Reverse((due, lease)));
                continue;
            }
            held.noted = true;
            held.touched = now;
            held.note_queued = later(now, self.note_interval);
            self.notes.push(Reverse((held.note_queued, lease)));
            notes.push(LeaseNote { id: lease, remaining: Some(held.deadline.duration_since(now)) });
        }
        notes
    }

    /// Every lease and its deadline, in no order.
    pub(crate) fn deadlines(&self) -> Vec<(Instant, LeaseId)> {
        self.leases.iter().map(|(lease, held)| (held.deadline, *lease)).collect()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.leases.len()
    }
}

/// Far enough ahead to be never, and more than any lease can ask for.
const NEVER: Duration = Duration::from_secs(2 * limits::LEASE_TTL_SECONDS_MAX.unsigned_abs());

fn later(now: Instant, by: Duration) -> Instant {
    now + by.min(NEVER)
}

/// How long each lease lives after a change of leader, given what each is owed, in ascending order: no
/// less, and so that not too many end in one second.
fn spread(lives: &[Duration]) -> Vec<Duration> {
    if lives.len() <= limits::LEASE_EXPIRIES_PER_SECOND as usize {
        return lives.to_vec();
    }
    let gap = Duration::from_secs(1) / DEADLINES_PER_SECOND;
    let mut free = Duration::ZERO;
    let mut place = |life: &Duration| {
        let given = free.max(*life);
        free = given + gap;
        given
    };
    lives.iter().map(&mut place).collect()
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
