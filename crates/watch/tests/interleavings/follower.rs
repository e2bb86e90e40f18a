//! The client's side of one watcher: compares everything it is told with what happened.
//!
//! The nine properties of a watch, as far as they show without a wire. `owed` is the lowest revision
//! of which something may still come; everything wanted below it has arrived or, on a stream that
//! coalesces, was overtaken by a later event of its key.

use crate::store::{Store, key_of};
use meerkat_types::{Event, EventBatch, Revision};
use meerkat_watch::{Encoded, Form, SlowPolicy, WatchRequest, WatchStart};

#[derive(Debug)]
pub struct Follower {
    pub request: WatchRequest,
    policy: SlowPolicy,
    /// Nothing below this may ever come, neither event nor mark.
    first: Revision,
    owed: Revision,
    mark: Revision,
    ended: bool,
    /// Its client asked for its end; what was queued for it need not come.
    pub leaving: bool,
}

impl Follower {
    /// `current` is what the answer to the request said.
    pub fn new(request: WatchRequest, policy: SlowPolicy, current: Revision) -> Follower {
        let first = match request.start {
            WatchStart::Live => current.next(),
            WatchStart::At(first) => first,
        };
        let mark = Revision::new(0);
        Follower { request, policy, first, owed: first, mark, ended: false, leaving: false }
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether a progress mark of that revision may be told: a watch that starts later gets none.
    pub fn starts_by(&self, revision: Revision) -> bool {
        match self.request.start {
            WatchStart::Live => self.first <= revision.next(),
            WatchStart::At(first) => first <= revision,
        }
    }

    pub fn wants(&self, event: &Event) -> bool {
        self.request.filter.admits(event) && self.request.range.contains(key_of(event))
    }

    /// The first revision below `end` of which something is missing.
    pub fn missing_below(&self, store: &Store, end: Revision) -> Option<Revision> {
        let missing = |batch: &&EventBatch| {
            batch.events.iter().enumerate().any(|(place, event)| {
                self.wants(event) && !self.may_skip(store, event, (batch.revision, place))
            })
        };
        store.between(self.owed, end).find(missing).map(|batch| batch.revision)
    }

    fn may_skip(&self, store: &Store, event: &Event, place: (Revision, usize)) -> bool {
        self.policy == SlowPolicy::Coalesce && store.is_overtaken(key_of(event), place)
    }

    fn expect_whole(&self, store: &Store, end: Revision, what: &str) {
        let missing = self.missing_below(store, end);
        assert_eq!(missing, None, "{what}: a revision before it is missing; {self:?}");
    }

    /// A revision arrives. How many events it has for this watcher, and how many before it were left
    /// out.
    pub fn deliver(&mut self, store: &Store, form: Form, told: &Encoded) -> (usize, usize) {
        let revision = told.revision();
        assert!(!self.ended, "nothing after the last word, and revision {revision} came; {self:?}");
        assert!(self.owed <= revision, "revision {revision} came again, or out of order; {self:?}");
        self.expect_whole(store, revision, "an event");
        let truth = store.at(revision).expect("what is told has happened");
        self.compare(store, truth, form, told);
        let wanted = |events: &[Event]| events.iter().filter(|event| self.wants(event)).count();
        let happened: usize =
            store.between(self.owed, revision.next()).map(|batch| wanted(&batch.events)).sum();
        let arrived = wanted(told.events());
        self.owed = revision.next();
        (arrived, happened - arrived)
    }

    /// Whole, in order, and as it was.
    fn compare(&self, store: &Store, truth: &EventBatch, form: Form, told: &Encoded) {
        // From the end: of two that look the same the later one is there.
        let mut arrived = told.events().iter().rev().peekable();
        let mut wanted = 0;
        for (place, event) in truth.events.iter().enumerate().rev() {
            if let Some(same) = arrived.next_if(|told| told.kind == event.kind) {
                wanted += usize::from(self.wants(event));
                self.compare_previous(store, event, form, same, truth.revision);
            } else if self.wants(event) {
                let fine = self.may_skip(store, event, (truth.revision, place));
                assert!(fine, "revision {} came in part; {self:?}", truth.revision);
            }
        }
        assert!(arrived.next().is_none(), "revision {} never was like this; {told:?}", truth.revision);
        assert!(0 < wanted, "revision {} has nothing for this watcher; {self:?}", truth.revision);
    }

    fn compare_previous(&self, store: &Store, truth: &Event, form: Form, told: &Event, revision: Revision) {
        let gone = store.is_compacted(revision);
        match form {
            Form::Plain => {
                assert!(!self.request.previous || gone, "no previous value at {revision}; {self:?}")
            }
            Form::WithPrevious => {
                assert!(self.request.previous, "nobody asked for previous values; {self:?}");
                let right = told.previous == truth.previous || (gone && told.previous.is_none());
                assert!(right, "previous value at {revision}: {:?}; {truth:?}; {self:?}", told.previous);
            }
        }
    }

    /// "Nothing up to there will follow."
    pub fn progress(&mut self, store: &Store, revision: Revision) {
        if self.leaving {
            return;
        }
        assert!(!self.ended, "nothing after the last word, and a mark came; {self:?}");
        assert!(self.starts_by(revision), "a mark of {revision}, below the start; {self:?}");
        assert!(self.mark <= revision, "marks never fall, and {revision} came; {self:?}");
        self.expect_whole(store, revision.next(), "a progress mark");
        self.mark = revision;
        self.owed = self.owed.max(revision.next());
    }

    /// "What you are owed is gone."
    pub fn compacted(&mut self, store: &Store, oldest: Revision) {
        assert!(!self.ended, "two last words; {self:?}");
        assert!(store.is_compacted(oldest), "{oldest} was never compacted");
        assert!(self.owed < oldest, "{oldest} is compacted, and nothing below it is owed; {self:?}");
        self.ended = true;
    }

    /// "Go on there": nothing before it is missing, and nothing from it on has come.
    pub fn fell_behind(&mut self, store: &Store, resume: Revision) {
        assert!(!self.ended, "two last words; {self:?}");
        assert_eq!(self.policy, SlowPolicy::Cancel, "nobody asked to be ended; {self:?}");
        if !self.leaving {
            assert!(self.owed <= resume, "going on at {resume} repeats; {self:?}");
            self.expect_whole(store, resume, "going on elsewhere");
        }
        self.ended = true;
    }
}
