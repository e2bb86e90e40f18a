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
use meerkat_types::{Lease, LeaseId, LeaseNote, LeaseTtl, LogIndex, Term, limits};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// After a change of leader at most this many leases get their deadline in one second, if there are
/// more than [`limits::LEASE_EXPIRIES_PER_SECOND`] of them: as etcd, three quarters of what can expire.
const DEADLINES_PER_SECOND: u32 = limits::LEASE_EXPIRIES_PER_SECOND / 4 * 3;

/// Places in a queue that leases which are gone may hold, beside some for each that is there.
const QUEUE_SLACK: usize = 1_024;
/// Places looked at for each lease that may expire.
const LOOKS_PER_EXPIRED: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Following,
    TakingOver { term: Term },
    Leading { term: Term },
}

#[derive(Clone, Copy, Debug)]
struct Held {
    granted: LogIndex,
    ttl: LeaseTtl,
    deadline: Instant,
    /// What is left of it may stand in the log, by this note or an earlier one.
    noted: Option<NoteId>,
    /// When it was granted, renewed or noted.
    touched: Instant,
    /// Its end is on the way to the log.
    ending: bool,
    /// Where it stands in the two queues: any other entry there is of an earlier life.
    queued: Instant,
    note_queued: Instant,
}

/// Tells one note from the next, so that the end of an old one is not taken for the end of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoteId(u64);

/// A lease, and which one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expired {
    pub(crate) lease: LeaseId,
    pub(crate) granted: LogIndex,
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
    notes_made: u64,
    /// A lease that was not touched for this long gets a note of what is left of it.
    note_interval: Duration,
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    For(LeaseTtl),
    /// First the note about it must be taken back.
    Noted {
        granted: LogIndex,
        note: NoteId,
    },
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
            notes_made: 0,
            note_interval,
        }
    }

    /// The term in which this member leads and knows every lease.
    pub(crate) fn term(&self) -> Option<Term> {
        match self.role {
            Role::Leading { term } => Some(term),
            Role::Following | Role::TakingOver { .. } => None,
        }
    }

    pub(crate) fn follow(&mut self) {
        *self = Book::new(self.note_interval);
    }

    /// From here on what is granted and ended is kept; the leases of the state come later.
    pub(crate) fn take_over(&mut self, term: Term) {
        self.follow();
        self.role = Role::TakingOver { term };
    }

    /// `state`: the leases as of some moment after [`Book::take_over`]. Each lives on from `now` for what
    /// a predecessor may have promised, and `grace` beyond.
    pub(crate) fn lead(&mut self, term: Term, state: Vec<Lease>, now: Instant, grace: Duration) {
        if self.role != (Role::TakingOver { term }) {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        // The state knows of notes that the book was not told of, so it has the last word on every lease
        // but those that ended since, whose names may stand for others by now.
        let mut taken: Vec<Lease> = state.into_iter().filter(|lease| !ended.contains(&lease.id)).collect();
        taken.sort_by_key(|lease| (lease.left_to_live(), lease.id));
        let lives: Vec<Duration> = taken.iter().map(Lease::left_to_live).collect();
        for (lease, life) in taken.iter().zip(spread(&lives)) {
            let noted = lease.remaining.is_some().then(|| self.next_note());
            self.hold(lease, noted, now, later(now, life + grace));
        }
        self.role = Role::Leading { term };
    }

    /// A lease came or went.
    pub(crate) fn changed(&mut self, change: LeaseChange, now: Instant) {
        match (self.role, change) {
            (Role::Following, _) => {}
            (role, LeaseChange::Granted(lease)) => {
                // A predecessor may have noted what it granted; renewing will make sure.
                let taking_over = matches!(role, Role::TakingOver { .. });
                let noted = taking_over.then(|| self.next_note());
                self.hold(&lease, noted, now, later(now, lease.ttl.duration()));
            }
            (role, LeaseChange::Ended(lease)) => {
                self.leases.remove(&lease);
                self.shrink();
                if matches!(role, Role::TakingOver { .. }) {
                    self.ended.insert(lease);
                }
            }
        }
    }

    fn next_note(&mut self) -> NoteId {
        self.notes_made += 1;
        NoteId(self.notes_made)
    }

    /// Leases that are gone leave their places in the queues behind, which would otherwise stay until
    /// their time comes.
    fn shrink(&mut self) {
        let most = 4 * self.leases.len() + QUEUE_SLACK;
        let leases = &self.leases;
        if most < self.deadlines.len() {
            self.deadlines
                .retain(|Reverse((at, lease))| leases.get(lease).is_some_and(|held| held.queued == *at));
        }
        if most < self.notes.len() {
            self.notes
                .retain(|Reverse((at, lease))| leases.get(lease).is_some_and(|held| held.note_queued == *at));
        }
    }

    fn hold(&mut self, lease: &Lease, noted: Option<NoteId>, now: Instant, deadline: Instant) {
        let note_queued = later(now, self.note_interval);
        let held = Held {
            granted: lease.granted,
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
        if let Some(note) = held.noted {
            return Renewed::Noted { granted: held.granted, note };
        }
        held.deadline = later(now, held.ttl.duration());
        Renewed::For(held.ttl)
    }

    /// The log no longer has this note about a lease, nor an earlier one.
    pub(crate) fn unnoted(&mut self, lease: LeaseId, note: NoteId) {
        if let Some(held) = self.leases.get_mut(&lease).filter(|held| held.noted == Some(note)) {
            held.noted = None;
        }
    }

    /// Whether the lease is still there, its deadline ahead and its end not decided.
    pub(crate) fn stands(&self, lease: LeaseId, now: Instant) -> bool {
        self.leases.get(&lease).is_some_and(|held| !held.ending && now < held.deadline)
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
    pub(crate) fn expire(&mut self, now: Instant, max: usize) -> Vec<Expired> {
        let mut expired = Vec::new();
        // Bounded too: many leases that were all renewed may wait behind one moment.
        for _ in 0..LOOKS_PER_EXPIRED * max {
            if expired.len() == max {
                break;
            }
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
            expired.push(Expired { lease, granted: held.granted });
        }
        expired
    }

    /// The end of this lease did not reach the log: it is tried again after `pause`.
    pub(crate) fn end_failed(&mut self, expired: Expired, now: Instant, pause: Duration) {
        let Expired { lease, granted } = expired;
        if let Some(held) = self.leases.get_mut(&lease).filter(|held| held.granted == granted) {
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
            self.notes_made += 1;
            held.noted = Some(NoteId(self.notes_made));
            held.touched = now;
            held.note_queued = later(now, self.note_interval);
            self.notes.push(Reverse((held.note_queued, lease)));
            let remaining = Some(held.deadline.duration_since(now));
            notes.push(LeaseNote { id: lease, granted: held.granted, remaining });
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
