//! A store, the hub's core and its clients; each method is one thing that can happen.
//!
//! A revision is visible when it is committed and published later; history is asked for, read, and
//! dealt in three separate moments. After each of them everything that must always be true is looked
//! at.

use crate::reader::{Reader, Told};
use crate::store::{Store, Write};
use meerkat_types::{EventBatch, HistoryAnswer, HistoryQuery, Revision};
use meerkat_watch::{
    Core, Counts, Encoded, End, HistoryError, Meter, SlowPolicy, Standing, Step, StreamId, StreamOptions,
    Taken, WatchConfig, WatchId, WatchRequest,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// More rounds than any of these worlds needs to come to rest; more is a loop that gets nowhere.
const ROUNDS_MAX: usize = 3_000;

/// Visible, and on its way to the core.
enum Pending {
    Batch(EventBatch),
    Jump(Revision),
}

/// A read of history that was asked for.
struct Reading {
    query: HistoryQuery,
    found: Option<Result<HistoryAnswer, HistoryError>>,
}

/// What came about in one world, so that a test can tell that it has seen enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub counts: Counts,
    pub told: Told,
}

pub struct World {
    config: WatchConfig,
    pub store: Store,
    pub core: Core,
    meter: Arc<Meter>,
    pending: VecDeque<Pending>,
    readings: VecDeque<Reading>,
    pub readers: Vec<Reader>,
    /// Of the readers' streams, as the core and as operators know them.
    streams: Vec<(StreamId, u64)>,
    opened: u64,
    now_ms: u64,
    stopped: bool,
    /// The weight of the heaviest revision so far.
    largest: usize,
    seen: Seen,
}

impl World {
    pub fn new(config: WatchConfig) -> World {
        let meter = Arc::new(Meter::default());
        let core = Core::new(config, Revision::EMPTY_STORE, meter.clone());
        World {
            config,
            store: Store::new(),
            core,
            meter,
            pending: VecDeque::new(),
            readings: VecDeque::new(),
            readers: Vec::new(),
            streams: Vec::new(),
            opened: 0,
            now_ms: 0,
            stopped: false,
            largest: 0,
            seen: Seen::default(),
        }
    }

    pub fn commit(&mut self, writes: &[Write]) {
        let batch = self.commit_unseen(writes);
        self.pending.push_back(Pending::Batch(batch));
    }

    fn commit_unseen(&mut self, writes: &[Write]) -> EventBatch {
        let batch = self.store.commit(writes);
        let weight = Encoded::new(batch.clone(), &Arc::default()).weight();
        self.largest = self.largest.max(weight);
        batch
    }

    pub fn publish(&mut self) {
        match self.pending.pop_front() {
            None => {}
            Some(Pending::Batch(batch)) => {
                let batch = Encoded::new(batch, &self.meter);
                self.core.publish(&batch);
            }
            Some(Pending::Jump(to)) => self.core.jump(to),
        }
        self.settle();
    }

    /// What waits to be published is too much: watchers are sent to history.
    pub fn overrun(&mut self) {
        let last = match self.pending.back() {
            None => return,
            Some(Pending::Batch(batch)) => batch.revision,
            Some(Pending::Jump(to)) => *to,
        };
        self.pending.clear();
        self.pending.push_back(Pending::Jump(last));
    }

    /// A snapshot replaces the store: revisions that were never applied here are there at once.
    pub fn install(&mut self, revisions: &[&[Write]], compact: Option<Revision>) {
        for writes in revisions {
            self.commit_unseen(writes);
        }
        if let Some(to) = compact {
            self.store.compact(to);
        }
        self.pending.clear();
        self.pending.push_back(Pending::Jump(self.store.current()));
    }

    pub fn open(&mut self, policy: SlowPolicy, require_leader: bool) -> usize {
        let id = self.core.open(StreamOptions { slow: policy, require_leader, ..StreamOptions::default() });
        self.opened += 1;
        self.readers.push(Reader::new(policy, require_leader));
        self.streams.push((id, self.opened));
        self.settle();
        self.readers.len() - 1
    }

    pub fn close(&mut self, at: usize) {
        let reader = self.readers.swap_remove(at);
        self.seen.told += reader.told();
        let (id, _) = self.streams.swap_remove(at);
        self.core.close(id);
        self.settle();
    }

    pub fn register(&mut self, at: usize, request: WatchRequest) {
        let reader = &mut self.readers[at];
        reader.expect_register(&request, Some(self.store.current()));
        self.core.register(self.streams[at].0, request, self.store.horizon());
        self.settle();
    }

    /// Watchers that were ended for being slow begin again where they were told to.
    pub fn resume(&mut self, at: usize) {
        for request in std::mem::take(&mut self.readers[at].resumes) {
            self.register(at, request);
        }
    }

    pub fn cancel(&mut self, at: usize, id: WatchId) {
        let reader = &mut self.readers[at];
        reader.expect_cancel(id, Some(self.store.current()));
        self.core.cancel(self.streams[at].0, id, self.store.horizon());
        self.settle();
    }

    pub fn request_progress(&mut self, at: usize) {
        self.core.request_progress(self.streams[at].0, self.store.horizon());
        self.settle();
    }

    pub fn tick(&mut self, at: usize) {
        self.core.tick(self.streams[at].0);
        self.settle();
    }

    pub fn take(&mut self, at: usize, budget: usize) -> Taken {
        let reader = &mut self.readers[at];
        let mut out = Vec::new();
        let taken = self.core.take(self.streams[at].0, budget, &reader.waker(), &mut out);
        assert_eq!(taken == Taken::Open, !out.is_empty(), "open means that something came");
        reader.read(&self.store, self.core.frontier(), &taken, &out);
        self.expect_reason(at);
        drop(out);
        self.settle();
        taken
    }

    fn expect_reason(&self, at: usize) {
        let reader = &self.readers[at];
        match &reader.ended {
            None | Some(End::Unreadable(_)) => {}
            Some(End::Stopping) => assert!(self.stopped, "ended as if the member stopped"),
            Some(End::NoLeader) => assert!(reader.require_leader, "ended for want of a leader"),
            Some(End::OutOfMemory) => assert!(0 < self.core.counts().cut, "ended for want of memory"),
        }
    }

    /// The stream begins to write out the last revision it took.
    pub fn begin_large(&mut self, at: usize) {
        let reader = &mut self.readers[at];
        if let Some(batch) = reader.last.upgrade() {
            reader.in_flight = Some(batch.revision());
            self.core.set_in_flight(self.streams[at].0, Some(batch));
            self.settle();
        }
    }

    /// Takes, and begins to write out what came last while it is still held.
    pub fn take_large(&mut self, at: usize, budget: usize) {
        let reader = &mut self.readers[at];
        let mut out = Vec::new();
        let taken = self.core.take(self.streams[at].0, budget, &reader.waker(), &mut out);
        reader.read(&self.store, self.core.frontier(), &taken, &out);
        self.begin_large(at);
        drop(out);
        self.settle();
    }

    pub fn go_on_large(&mut self, at: usize) {
        let reader = &self.readers[at];
        let Some(revision) = reader.in_flight else { return };
        match self.core.in_flight(self.streams[at].0) {
            Ok(batch) => assert_eq!(batch.revision(), revision, "the one that is being written out"),
            Err(_) => {
                let ended = self.core.take(self.streams[at].0, 1, &reader.waker(), &mut Vec::new());
                assert!(matches!(ended, Taken::Ended(_)), "only an ended stream is taken what it writes");
            }
        }
        self.settle();
    }

    pub fn end_large(&mut self, at: usize) {
        let reader = &mut self.readers[at];
        reader.in_flight = None;
        self.core.set_in_flight(self.streams[at].0, None);
        self.settle();
    }

    /// One step of catching up; whether there was anything to do.
    pub fn step(&mut self) -> bool {
        let before = self.standings();
        if !self.readings.is_empty() {
            self.core.step_ring(self.store.horizon());
            self.settle();
        }
        let step = self.core.step(self.store.horizon());
        for (key, standing) in self.standings() {
            let ended = standing == Standing::Ended && before.get(&key) != Some(&Standing::Ended);
            let late = before.get(&key) == Some(&Standing::CatchingUp);
            assert!(!ended || late, "only who is late is overtaken by a compaction");
        }
        if let Step::Read(query) = step {
            assert!(query.first <= query.last, "a read asks for something: {query:?}");
            self.readings.push_back(Reading { query, found: None });
        }
        self.settle();
        step != Step::Nothing
    }

    fn standings(&self) -> BTreeMap<(u64, WatchId), Standing> {
        let mut standings = BTreeMap::new();
        let mut at = 0;
        while let Some((next, reports)) = self.core.report(at) {
            at = next;
            standings.extend(reports.iter().map(|report| ((report.stream, report.spec.id), report.standing)));
        }
        standings
    }

    pub fn readings(&self) -> usize {
        self.readings.len()
    }

    /// The oldest read that was asked for sees the store as it is now.
    pub fn read(&mut self) {
        if let Some(reading) = self.readings.iter_mut().find(|reading| reading.found.is_none()) {
            reading.found = Some(self.store.read(&reading.query));
        }
    }

    /// What the oldest read found is dealt.
    pub fn deal(&mut self) {
        if self.readings.front().is_some_and(|reading| reading.found.is_none()) {
            self.read();
        }
        let Some(Reading { query, found: Some(found) }) = self.readings.pop_front() else { return };
        if let Ok(past) = found {
            self.core.deal(&query, past);
        }
        self.settle();
    }

    pub fn fail_history(&mut self) {
        self.core.fail_history("the disk is gone");
        self.readings.clear();
        self.settle();
    }

    pub fn pass_time(&mut self, ms: u64) {
        self.now_ms += ms;
        self.core.set_time(self.now_ms);
    }

    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub fn lose_leader(&mut self) {
        self.core.lose_leader();
        self.settle();
    }

    pub fn stop(&mut self) {
        self.stopped = true;
        self.core.stop();
        self.settle();
    }

    /// Wakes whom the core wants awake, and looks whether all is well.
    fn settle(&mut self) {
        self.core.take_awake().into_iter().for_each(Waker::wake);
        self.core.check();
        let limit = self.config.ring_bytes + self.config.memory_bytes + self.one_stream_bytes();
        assert!(self.meter.bytes() <= limit, "{} bytes are held, and {limit} may be", self.meter.bytes());
        let mut at = 0;
        while let Some((next, reports)) = self.core.report(at) {
            at = next;
            let Some(serial) = reports.first().map(|report| report.stream) else { continue };
            let of = self.streams.iter().position(|stream| stream.1 == serial);
            let reader = &self.readers[of.expect("a stream has its reader")];
            for report in reports.iter().filter(|report| report.standing != Standing::Ended) {
                let follower = reader.newest(report.spec.id).expect("who is here was asked for");
                let lost = follower.missing_below(&self.store, report.next.min(self.store.current().next()));
                assert_eq!(lost, None, "neither queued nor owed: lost; {report:?}");
            }
        }
    }

    pub fn seen(&self) -> Seen {
        Seen { counts: self.core.counts(), ..self.seen }
    }

    /// The most that one stream can hold: the revision it writes out, and history read ahead.
    fn one_stream_bytes(&self) -> usize {
        self.largest + self.largest.max(self.config.stream_history_bytes)
    }

    /// Nothing more is written, and all but the first few read: those must come to rest, with
    /// everything told, whatever the others leave lying.
    pub fn come_to_rest(&mut self, stuck: usize) {
        while !self.pending.is_empty() {
            self.publish();
        }
        (stuck..self.readers.len()).for_each(|at| self.end_large(at));
        let mut rounds = 0;
        loop {
            let mut busy = self.read_all(stuck);
            while self.readings() > 0 || self.step() {
                self.deal();
                busy = true;
                rounds += 1;
                assert!(rounds < ROUNDS_MAX, "catching up goes on and gets nowhere");
            }
            if !busy {
                break;
            }
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "readers are woken for nothing");
        }
        self.expect_rest(stuck);
    }

    fn read_all(&mut self, stuck: usize) -> bool {
        let mut busy = false;
        for at in stuck..self.readers.len() {
            while self.readers[at].is_awake() {
                self.take(at, 10_000);
                self.pass_time(1);
                busy = true;
            }
        }
        busy
    }

    fn expect_rest(&mut self, stuck: usize) {
        let frontier = self.core.frontier();
        assert_eq!(frontier, self.store.current(), "everything is published");
        for at in stuck..self.readers.len() {
            if self.readers[at].ended.is_some() {
                continue;
            }
            self.readers[at].expect_level(&self.store);
            let (due, before) =
                (self.readers[at].is_due_a_mark(frontier), self.readers[at].told().stream_marks);
            self.request_progress(at);
            while self.readers[at].is_awake() {
                self.take(at, 10_000);
            }
            let given = self.readers[at].told().stream_marks - before;
            assert_eq!(given, usize::from(due), "a progress mark is given if it is due");
        }
        let live = |(key, standing): ((u64, WatchId), Standing)| {
            let at = self.streams[stuck..].iter().position(|stream| stream.1 == key.0);
            let open = at.is_some_and(|at| self.readers[stuck + at].ended.is_none());
            assert!(!open || standing != Standing::CatchingUp, "at rest nobody is late");
        };
        self.standings().into_iter().for_each(live);
    }

    /// Everybody leaves: nothing but the ring is held.
    pub fn close_all(&mut self) {
        while !self.readers.is_empty() {
            self.close(0);
        }
        let totals = self.core.totals();
        assert_eq!((totals.streams, totals.synced, totals.late, totals.ended), (0, 0, 0, 0));
        assert_eq!(totals.memory_bytes, totals.ring_bytes, "nothing is kept for who is gone");
    }
}
