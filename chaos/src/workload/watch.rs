//! Watchers of every kind come, look on and go, while scribes write down what really happens.
//!
//! Writers work under the prefix, in a store that others write to as well. Every so often a new lot
//! of watchers starts from random revisions, some slow, some restless, and an old lot is ended and
//! judged by the nine properties against the scribes' book; so a run may last as long as it likes.
//! The book itself is held against the writers' acknowledgements and a last read of every member.
//!
//! Compaction, ours and others', may overtake anybody: a watcher must be told so. Where it overtakes
//! all scribes at once, all lots are judged by what is known and begin anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeRequest};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::crew::{ANSWER_WITHIN, READ_BACK_WITHIN, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::watch_acks::Tally;
use crate::checker::watch_history::{WatchHistory, Wrote};
use crate::checker::watch_properties::{self, Demand};
use crate::driver::Product;
use crate::endpoint::Endpoint;
use crate::outcome::describe;
use crate::record::Verdict;
use crate::watch::book::Book;
use crate::watch::fleet::Fleet;
use crate::watch::scribes::Scribes;
use crate::watch::writers::{self, Place, Shape, Writing};
use crate::watch::{Stored, WatchLog};

const NAME: &str = "watch";
const SCRIBES: usize = 3;
/// Modest, but with values large enough that a deletion of many has to be sent in pieces.
const SHAPE: Shape =
    Shape { writers: 3, rest: Duration::from_millis(80), small: 40, large: 200 << 10, large_every: 300 };
const TICK: Duration = Duration::from_millis(250);
/// A new lot comes this often, and each stays for two such times.
const LOT_EVERY: Duration = Duration::from_secs(20);
const LOTS_MAX: usize = 2;
/// A chapter with more events than this is closed.
const CHAPTER_MAX: usize = 100_000;
/// How far back watchers begin.
const PAST: i64 = 3_000;
const HEARD_WITHIN: Duration = Duration::from_secs(20);
/// After the last event is due, so that one too many can still arrive.
const LISTEN_ON: Duration = Duration::from_millis(300);
const FINDINGS_MAX: usize = 50;

struct Watch {
    stop: Arc<AtomicBool>,
    director: JoinHandle<Result<Vec<Verdict>, Failure>>,
}

/// Starts writers, scribes and watchers.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let stop = Arc::new(AtomicBool::new(false));
    let director = tokio::spawn(direct(setting, stop.clone()));
    Box::new(Watch { stop, director })
}

impl Workload for Watch {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            self.stop.store(true, Ordering::Relaxed);
            self.director.await.map_err(|error| Failure::harness(format!("the director ended: {error}")))?
        })
    }
}

async fn direct(setting: Setting, stop: Arc<AtomicBool>) -> Result<Vec<Verdict>, Failure> {
    let Some((base, state)) = first_state(&setting, &stop).await else {
        // Nobody ever answered: both promises are unproved, which must be seen.
        return Ok(verdicts((0, Vec::new()), (0, Vec::new())));
    };
    let book = Arc::new(Mutex::new(Book::new(&setting.prefix, SCRIBES, base, state)));
    let scribes = Scribes::start(&setting.roster, &book, SCRIBES);
    let place = Place {
        under: setting.prefix.clone(),
        clients: (0..SHAPE.writers).map(|number| setting.trace.client(format!("{NAME}/{number}"))).collect(),
    };
    let mut director = Director {
        random: StdRng::seed_from_u64(setting.seed),
        setting,
        book,
        place,
        shifts: 0,
        lots: VecDeque::new(),
        lags: Vec::new(),
        tally: Tally::default(),
        writes: Vec::new(),
        events: 0,
        findings: Vec::new(),
    };
    director.work(&stop).await?;
    director.close(scribes).await
}

struct Director {
    setting: Setting,
    random: StdRng,
    book: Arc<Mutex<Book>>,
    place: Place,
    /// How often writers were started.
    shifts: u64,
    lots: VecDeque<Fleet>,
    /// Under which number the trace knows each place in each lot.
    lags: Vec<u32>,
    tally: Tally,
    writes: Vec<Wrote>,
    events: u64,
    findings: Vec<String>,
}

impl Director {
    async fn work(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let mut writing = self.start_writing();
        self.add_lot()?;
        let mut lot_due = Instant::now() + LOT_EVERY;
        let mut compact_due = Instant::now() + self.until_compaction();
        let mut lag_due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(TICK).await;
            let gap = self.book.lock().gap();
            let full = CHAPTER_MAX < self.book.lock().chapter().events().len();
            if gap.is_some() || full {
                self.turn(stop).await?;
            }
            if lot_due < Instant::now() {
                lot_due = Instant::now() + LOT_EVERY;
                // Members may have come and gone: writers and watchers are told of these now.
                self.writes.extend(writing.finish().await?);
                writing = self.start_writing();
                if LOTS_MAX <= self.lots.len()
                    && let Some(oldest) = self.lots.pop_front()
                {
                    self.judge(oldest).await?;
                }
                self.add_lot()?;
            }
            if compact_due < Instant::now() {
                compact_due = Instant::now() + self.until_compaction();
                self.compact().await;
            }
            if lag_due < Instant::now() {
                lag_due = Instant::now() + Duration::from_secs(1);
                self.tell_lags();
            }
        }
        self.writes.extend(writing.finish().await?);
        Ok(())
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.setting.roster.all().into_iter().map(|contact| contact.endpoint).collect()
    }

    fn start_writing(&mut self) -> Writing {
        self.shifts += 1;
        // Another seed each time, or the same values would be put again.
        let seed = self.setting.seed.wrapping_mul(100_003).wrapping_add(self.shifts);
        writers::start_at(&self.place, &self.endpoints(), SHAPE, seed)
    }

    fn add_lot(&mut self) -> Result<(), Failure> {
        let (base, now) = {
            let book = self.book.lock();
            (book.chapter().base(), book.last())
        };
        let floor = (now - PAST).max(base + 1);
        let mut fleet = Fleet::new(&self.endpoints(), self.setting.product, self.setting.began)
            .under(&self.setting.prefix, floor);
        fleet.add_one_of_each(&mut self.random, now.max(floor))?;
        while self.lags.len() < LOTS_MAX * fleet.len() {
            let name = format!("{NAME}/{}", self.lags.len());
            self.lags.push(self.setting.trace.watcher(name));
        }
        self.lots.push_back(fleet);
        Ok(())
    }

    fn until_compaction(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(2_000..6_000))
    }

    /// Mostly behind the slowest watcher, now and then past it. Never on the control, which loses
    /// events then; that is known, and not what it is here to show.
    async fn compact(&mut self) {
        let known = self.book.lock().last();
        let slowest = self.lots.iter().filter_map(Fleet::slowest).min().unwrap_or(known);
        let upto = if self.random.random_bool(0.3) { known } else { slowest.min(known) };
        let revision = self.random.random_range((upto - PAST).max(1)..=upto.max(1));
        let contact = self.setting.roster.any(&mut self.random);
        if self.setting.product == Product::Meerkat {
            let request = CompactionRequest { revision, physical: false };
            // Refused if it lies below the last one, or nobody leads: both are fine.
            let _refused = contact.endpoint.compact(request, ANSWER_WITHIN).await.is_err();
        }
    }

    /// By how many revisions that it wants each watcher is behind the book.
    fn tell_lags(&self) {
        let book = self.book.lock();
        let events = book.chapter().events();
        let each = self.lots.iter().flat_map(Fleet::standing);
        for (watcher, (spec, next)) in self.lags.iter().zip(each) {
            if next == 0 {
                continue;
            }
            let behind = events.iter().rev().take_while(|event| next <= event.revision());
            let mut owed: Vec<i64> = behind
                .filter(|event| spec.wants(event.kind, &event.key))
                .map(crate::watch::Seen::revision)
                .collect();
            owed.dedup();
            self.setting.trace.lag(*watcher, owed.len() as u64);
        }
    }

    /// Ends a lot and judges it by what is known.
    async fn judge(&mut self, lot: Fleet) -> Result<(), Failure> {
        let logs = lot.finish().await?;
        let upto = logs.iter().filter_map(last_told).max().unwrap_or(0);
        self.until(|director| director.knows(upto)).await;
        let history = self.frozen().await;
        self.hold(logs, history, false).await
    }

    /// The present chapter as it is now, with what may have been compacted.
    async fn frozen(&self) -> WatchHistory {
        let mut history = self.book.lock().chapter().clone();
        // If nobody says, all may have been.
        let compacted = compacted(&self.setting).await;
        history.compacted_by_others = compacted.unwrap_or(history.last_revision());
        history
    }

    /// Holds records against a chapter.
    async fn hold(
        &mut self,
        logs: Vec<WatchLog>,
        history: WatchHistory,
        complete: bool,
    ) -> Result<(), Failure> {
        let marks = self.setting.product == Product::Meerkat;
        let judging = tokio::task::spawn_blocking(move || judge_all(logs, &history, complete, marks));
        let (events, findings) = judging
            .await
            .map_err(|error| Failure::harness(format!("the judge of watches ended: {error}")))?;
        self.events += events;
        self.findings.extend(findings);
        self.findings.truncate(FINDINGS_MAX);
        Ok(())
    }

    /// Ends all lots and the chapter, and begins the next.
    async fn turn(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        while let Some(lot) = self.lots.pop_front() {
            self.judge(lot).await?;
        }
        let lost = self.book.lock().gap().is_some();
        let next = if lost {
            match first_state(&self.setting, stop).await {
                Some(next) => next,
                None => return Ok(()),
            }
        } else {
            let book = self.book.lock();
            (book.last(), book.chapter().state().clone())
        };
        let old = self.book.lock().turn(next.0, next.1);
        self.tally.absorb(&old);
        self.add_lot()
    }

    async fn close(mut self, scribes: Scribes) -> Result<Vec<Verdict>, Failure> {
        let contacts = self.setting.roster.all();
        let last = contacts.last().ok_or_else(|| Failure::harness("there is no member to ask"))?;
        let any = RangeRequest { count_only: true, ..wire::get(&Bytes::from_static(b"\0")) };
        let answer = read_back(&last.endpoint, any).await;
        let revision = answer?;
        let revision = wire::revision(&revision.header);
        self.until(|director| director.knows(revision)).await;
        if self.book.lock().gap().is_some() {
            self.turn(&AtomicBool::new(false)).await?;
        }
        let mut book_findings = Vec::new();
        if self.book.lock().last() < revision {
            let last = self.book.lock().last();
            book_findings.push(format!("no scribe is told of revisions {} to {revision}", last + 1));
        }
        self.lots.iter().for_each(Fleet::hurry);
        let history = self.frozen().await;
        self.until(|director| director.lots.iter().all(|lot| lot.has_heard_all(&history))).await;
        tokio::time::sleep(LISTEN_ON).await;
        while let Some(lot) = self.lots.pop_front() {
            let logs = lot.finish().await?;
            self.hold(logs, history.clone(), true).await?;
        }
        scribes.finish().await?;
        for contact in &contacts {
            book_findings.extend(self.compare_state(&contact.endpoint, &history).await?);
        }
        let told = {
            let book = self.book.lock();
            book_findings.extend(book.findings.iter().cloned());
            book.told
        };
        self.tally.absorb(&history);
        book_findings.extend(self.tally.check(&self.writes));
        Ok(verdicts((self.events, self.findings), (told, book_findings)))
    }

    /// Whether all is known up to a revision, or never will be.
    fn knows(&self, revision: i64) -> bool {
        let book = self.book.lock();
        revision <= book.last() || book.gap().is_some()
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + HEARD_WITHIN;
        while Instant::now() < deadline && !done(self) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A read of a member shows what the history leads to. Nothing is said if that is compacted.
    async fn compare_state(
        &self,
        endpoint: &Endpoint,
        history: &WatchHistory,
    ) -> Result<Vec<String>, Failure> {
        let at = history.last_revision();
        match state_of(endpoint, &self.setting.prefix, at).await {
            Ok((_, state)) => Ok(history
                .compare_state(&state)
                .into_iter()
                .map(|what| format!("{} at revision {at}: {what}", endpoint.url()))
                .collect()),
            Err(status) if status.message().contains("compacted") => Ok(Vec::new()),
            Err(status) => Err(Failure::broken(format!("{}: {}", endpoint.url(), describe(&status)))),
        }
    }
}

/// What was judged, and what was found, of watchers and of the book.
fn verdicts(watchers: (u64, Vec<String>), book: (u64, Vec<String>)) -> Vec<Verdict> {
    let verdict = |promise: &str, (judged, findings)| Verdict {
        workload: NAME.to_owned(),
        promise: promise.to_owned(),
        judged,
        findings,
    };
    vec![
        verdict("every watcher is sent exactly what happened, or told that it is compacted", watchers),
        verdict("revisions are dense, the same on all members, and what was acknowledged", book),
    ]
}

fn judge_all(logs: Vec<WatchLog>, history: &WatchHistory, complete: bool, marks: bool) -> (u64, Vec<String>) {
    let mut events = 0;
    let mut findings = Vec::new();
    for mut log in logs {
        let began = log.cut(history.last_revision());
        events += log.events().count() as u64;
        let demand = Demand { complete: complete && began, marks };
        let found = watch_properties::check(&log, history, demand);
        findings.extend(found.iter().map(|finding| format!("watcher {}: {finding}", log.name)));
    }
    (events, findings)
}

/// The highest revision that a watcher was told of.
fn last_told(log: &WatchLog) -> Option<i64> {
    log.replies().map(|reply| reply.revision).max()
}

/// What is under the prefix now, from whoever answers; none if told to stop before that.
async fn first_state(setting: &Setting, stop: &AtomicBool) -> Option<(i64, BTreeMap<Bytes, Stored>)> {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        let contacts = setting.roster.all();
        let endpoint = &contacts[turn % contacts.len()].endpoint;
        turn += 1;
        if let Ok(found) = state_of(endpoint, &setting.prefix, 0).await {
            return Some(found);
        }
        tokio::time::sleep(TICK).await;
    }
    None
}

async fn state_of(
    endpoint: &Endpoint,
    prefix: &str,
    revision: i64,
) -> Result<(i64, BTreeMap<Bytes, Stored>), tonic::Status> {
    let request = RangeRequest { revision, ..wire::get_all(prefix.as_bytes()) };
    let answer = endpoint.range(request, READ_BACK_WITHIN).await?;
    let stored = answer.kvs().iter().map(|kv| (Bytes::copy_from_slice(&kv.key), Stored::record(kv)));
    let at = if revision == 0 { wire::revision(&answer.header) } else { revision };
    Ok((at, stored.collect()))
}

/// Up to which revision the past may be gone, from whoever answers both questions.
async fn compacted(setting: &Setting) -> Option<i64> {
    let deadline = Instant::now() + HEARD_WITHIN;
    while Instant::now() < deadline {
        for contact in setting.roster.all() {
            // The read first: then the member has applied all that anybody was told of before.
            if contact.endpoint.linearizable_probe(ANSWER_WITHIN).await.is_ok()
                && let Ok(hash) = contact.endpoint.hash_kv(0, ANSWER_WITHIN).await
            {
                return Some(hash.compact_revision);
            }
        }
        tokio::time::sleep(TICK).await;
    }
    None
}
