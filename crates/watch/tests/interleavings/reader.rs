//! The client's side of one stream: its watchers, the answers it waits for, and whether it sleeps.

use crate::follower::Follower;
use crate::store::Store;
use meerkat_types::Revision;
use meerkat_watch::{
    Control, Encoded, End, Out, Refused, SlowPolicy, Taken, WatchId, WatchRequest, WatchStart,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

/// How much was told, of each sort.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub events: usize,
    /// Left out where a later event of the same key took their place.
    pub skipped: usize,
    pub marks: usize,
    pub stream_marks: usize,
    pub compacted: usize,
    pub fell_behind: usize,
    pub cut: usize,
}

impl AddAssign for Told {
    fn add_assign(&mut self, other: Told) {
        self.events += other.events;
        self.skipped += other.skipped;
        self.marks += other.marks;
        self.stream_marks += other.stream_marks;
        self.compacted += other.compacted;
        self.fell_behind += other.fell_behind;
        self.cut += other.cut;
    }
}

/// Remembers that somebody woke it.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An answer that must come, in the order of the requests; the revision where it is known.
#[derive(Debug)]
enum Expected {
    Created(WatchId, Follower, Option<Revision>),
    Refused(Refused),
    Canceled(WatchId, Option<Revision>),
}

pub struct Reader {
    pub policy: SlowPolicy,
    pub require_leader: bool,
    alarm: Arc<Alarm>,
    parked: bool,
    expected: VecDeque<Expected>,
    /// Created and not canceled, as far as the reader has read.
    followers: BTreeMap<WatchId, Follower>,
    /// Taken as soon as they are asked for.
    ids: BTreeSet<i64>,
    next_id: i64,
    told: Told,
    pub ended: Option<End>,
    /// Where watchers that were ended for being slow go on.
    pub resumes: Vec<WatchRequest>,
    /// The last revision that came; what is written out may be large.
    pub last: Weak<Encoded>,
    pub in_flight: Option<Revision>,
    /// Does not read before this time.
    pub stalled_until_ms: u64,
}

impl Reader {
    pub fn new(policy: SlowPolicy, require_leader: bool) -> Reader {
        Reader {
            policy,
            require_leader,
            alarm: Arc::default(),
            parked: false,
            expected: VecDeque::new(),
            followers: BTreeMap::new(),
            ids: BTreeSet::new(),
            next_id: 0,
            told: Told::default(),
            ended: None,
            resumes: Vec::new(),
            last: Weak::new(),
            in_flight: None,
            stalled_until_ms: 0,
        }
    }

    pub fn waker(&self) -> Waker {
        self.alarm.clone().into()
    }

    /// Would a real reader come back by itself now?
    pub fn is_awake(&self) -> bool {
        self.ended.is_none() && (!self.parked || self.alarm.0.load(Ordering::SeqCst))
    }

    pub fn ids(&self) -> Vec<WatchId> {
        self.ids.iter().map(|id| WatchId::new(*id)).collect()
    }

    /// Notes which answer a request must get. `current` is what is visible just now, if that is known.
    pub fn expect_register(&mut self, request: &WatchRequest, current: Option<Revision>) {
        let refused = match self.choose_id(request) {
            Err(refused) => refused,
            Ok(id) => {
                self.ids.insert(id);
                let assumed = current.unwrap_or(Revision::EMPTY_STORE);
                let follower = Follower::new(request.clone(), self.policy, assumed);
                self.expected.push_back(Expected::Created(WatchId::new(id), follower, current));
                return;
            }
        };
        self.expected.push_back(Expected::Refused(refused));
    }

    fn choose_id(&mut self, request: &WatchRequest) -> Result<i64, Refused> {
        if matches!(request.start, WatchStart::At(first) if first.get() < 0) {
            return Err(Refused::BeforeHistory);
        }
        if request.range.is_empty() {
            return Err(Refused::EmptyRange);
        }
        if let Some(id) = request.id.map(WatchId::get) {
            let free = id != -1 && !self.ids.contains(&id);
            return if free { Ok(id) } else { Err(Refused::DuplicateId) };
        }
        let free = (self.next_id..).find(|id| !self.ids.contains(id)).expect("there are enough numbers");
        self.next_id = free + 1;
        Ok(free)
    }

    pub fn expect_cancel(&mut self, id: WatchId, current: Option<Revision>) {
        if self.ids.remove(&id.get()) {
            let asked = self.expected.iter_mut().rev().find_map(|expected| match expected {
                Expected::Created(other, follower, _) if *other == id => Some(follower),
                _ => None,
            });
            let follower = asked.or_else(|| self.followers.get_mut(&id)).expect("who has a number is known");
            follower.leaving = true;
            self.expected.push_back(Expected::Canceled(id, current));
        }
    }

    pub fn told(&self) -> Told {
        self.told
    }

    /// What one `take` gave.
    pub fn read(&mut self, store: &Store, frontier: Revision, taken: &Taken, out: &[Out]) {
        self.alarm.0.store(false, Ordering::SeqCst);
        for out in out {
            match out {
                Out::Control(control) => self.hear(store, frontier, control),
                Out::Events(delivery) => {
                    let id = delivery.spec.id;
                    let follower = self.followers.get_mut(&id).expect("events only after the answer");
                    assert_eq!(delivery.spec.range, follower.request.range, "its own events");
                    for batch in delivery.batches() {
                        assert!(batch.revision() <= frontier, "told before it was published");
                        let (events, skipped) = follower.deliver(store, delivery.form, batch);
                        self.told.events += events;
                        self.told.skipped += skipped;
                        self.last = Arc::downgrade(batch);
                    }
                }
            }
        }
        self.parked = *taken == Taken::Parked;
        if let Taken::Ended(end) = taken {
            self.told.cut += usize::from(*end == End::OutOfMemory && self.ended.is_none());
            self.ended = Some(end.clone());
        }
    }

    fn hear(&mut self, store: &Store, frontier: Revision, control: &Control) {
        let follower = |followers: &mut BTreeMap<WatchId, Follower>, id: &WatchId| -> Follower {
            followers.remove(id).expect("nothing about a watcher before its answer or after its last word")
        };
        match control {
            Control::Created { .. } | Control::Refused(_) | Control::Canceled { .. } => self.answer(control),
            Control::Compacted { id, oldest } => {
                let mut follower = follower(&mut self.followers, id);
                follower.compacted(store, *oldest);
                self.told.compacted += 1;
                self.followers.insert(*id, follower);
            }
            Control::FellBehind { id, resume } => {
                let mut follower = follower(&mut self.followers, id);
                follower.fell_behind(store, *resume);
                self.told.fell_behind += 1;
                let start = WatchStart::At(*resume);
                self.resumes.push(WatchRequest { id: None, start, ..follower.request.clone() });
                self.followers.insert(*id, follower);
            }
            Control::Progress { id: Some(id), revision } => {
                assert!(*revision <= frontier, "a mark ahead of what was published");
                let follower = self.followers.get_mut(id).expect("a mark only after the answer");
                assert!(follower.request.progress, "nobody asked for marks");
                follower.progress(store, *revision);
                self.told.marks += 1;
            }
            Control::Progress { id: None, revision } => {
                assert!(*revision <= frontier, "a mark ahead of what was published");
                assert!(!self.followers.is_empty(), "a mark for nobody");
                self.followers.values_mut().for_each(|follower| follower.progress(store, *revision));
                self.told.stream_marks += 1;
            }
        }
    }

    fn answer(&mut self, control: &Control) {
        let expected = self.expected.pop_front().expect("nothing is answered that was not asked");
        match (expected, control) {
            (Expected::Created(id, follower, current), Control::Created { id: told, revision }) => {
                assert_eq!((id, current.unwrap_or(*revision)), (*told, *revision), "created as asked");
                let leaving = follower.leaving;
                let mut follower = Follower::new(follower.request, self.policy, *revision);
                follower.leaving = leaving;
                assert!(self.followers.insert(id, follower).is_none(), "a number has one watcher");
            }
            (Expected::Refused(why), Control::Refused(told)) => {
                assert_eq!(why, *told, "refused as it must be")
            }
            (Expected::Canceled(id, current), Control::Canceled { id: told, revision }) => {
                assert_eq!((id, current.unwrap_or(*revision)), (*told, *revision), "canceled as asked");
                assert!(self.followers.remove(&id).is_some(), "canceled after it was created");
            }
            (expected, told) => panic!("{expected:?} is due, and {told:?} came"),
        }
    }

    /// The newest watcher of that number, whether or not its answer was read; `None` if canceled.
    pub fn newest(&self, id: WatchId) -> Option<&Follower> {
        let asked = self.expected.iter().rev().find_map(|expected| match expected {
            Expected::Created(other, follower, _) if *other == id => Some(follower),
            _ => None,
        });
        asked.or_else(|| self.followers.get(&id)).filter(|_| self.ids.contains(&id.get()))
    }

    pub fn followers(&self) -> impl Iterator<Item = &Follower> {
        self.followers.values()
    }

    pub fn is_answered(&self) -> bool {
        self.expected.is_empty()
    }

    /// With nothing left to do: everything was answered, and everybody has everything.
    pub fn expect_level(&self, store: &Store) {
        assert!(self.is_answered(), "answers are missing: {:?}", self.expected);
        for follower in self.followers().filter(|follower| !follower.is_ended()) {
            let missing = follower.missing_below(store, store.current().next());
            assert_eq!(missing, None, "at rest, and something never came; {follower:?}");
        }
    }

    /// Whether a progress mark must be given if asked for now, at rest.
    pub fn is_due_a_mark(&self, frontier: Revision) -> bool {
        let level = |follower: &Follower| !follower.is_ended() && follower.starts_by(frontier);
        !self.followers.is_empty() && self.followers().all(level)
    }
}
