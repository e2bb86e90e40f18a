//! The lock around the core, the inbox that apply fills, and two tasks: one empties it, one reads history.
//!
//! Apply takes only the inbox's lock, for a push. The dispatch task moves revisions from there into
//! the core; the catch-up task reads history for late watchers, and never holds the lock while it
//! reads. Readers of streams are woken after the lock is gone.

use crate::catch_up::Step;
use crate::config::WatchConfig;
use crate::core::{Core, Counts};
use crate::encoded::{Encoded, Meter};
use crate::history::{History, HistoryError, Horizon};
use crate::outbox::{Out, Taken};
use crate::report::{Totals, WatcherReport};
use crate::stream::{End, Refused, StreamId, StreamOptions};
use meerkat_fault::Mutex;
use meerkat_types::{EventBatch, HistoryQuery, Revision, WatchId, WatchRequest};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Revisions dispatched, and watchers told, before others get the lock.
const DISPATCH_BATCHES: usize = 64;
const DISPATCH_TOLD: usize = 10_000;

/// After a read of history failed: long enough not to flood the log, short enough to be back soon.
const FAILED_READ_PAUSE: Duration = Duration::from_millis(500);

/// Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    config: WatchConfig,
    core: Mutex<Core>,
    inbox: Mutex<Inbox>,
    published: Notify,
    wanted: Notify,
    history: OnceLock<Arc<dyn History>>,
    meter: Arc<Meter>,
    began: Instant,
}

/// Published and not yet dispatched.
#[derive(Default)]
struct Inbox {
    /// Comes before the batches.
    jump: Option<Revision>,
    batches: VecDeque<Arc<Encoded>>,
    bytes: usize,
}

impl Hub {
    pub fn new(config: WatchConfig) -> Hub {
        let meter = Arc::new(Meter::default());
        let core = Core::new(config, Revision::EMPTY_STORE, meter.clone());
        Hub {
            shared: Arc::new(Shared {
                config,
                core: Mutex::new(core),
                inbox: Mutex::default(),
                published: Notify::new(),
                wanted: Notify::new(),
                history: OnceLock::new(),
                meter,
                began: Instant::now(),
            }),
        }
    }

    /// Says where history is read. To be called once, before any stream is opened.
    pub fn set_history(&self, history: Arc<dyn History>) {
        assert!(self.shared.history.set(history).is_ok(), "a hub has one history");
    }

    /// Takes the next revision. Called by apply: notes it and returns.
    pub fn publish(&self, batch: EventBatch) {
        let batch = Encoded::new(batch, &self.shared.meter);
        let mut inbox = self.shared.inbox.lock();
        let idle = inbox.jump.is_none() && inbox.batches.is_empty();
        let mut overrun = None;
        if self.shared.config.ring_bytes < inbox.bytes + batch.weight() && !idle {
            // Faster than it can be told, or one huge revision: history has it.
            let jump = Inbox { jump: Some(batch.revision()), ..Inbox::default() };
            overrun = Some(std::mem::replace(&mut *inbox, jump));
        } else {
            inbox.bytes += batch.weight();
            inbox.batches.push_back(batch);
        }
        drop(inbox);
        // Not under the lock: there may be much of it.
        drop(overrun);
        if idle {
            self.shared.published.notify_one();
        }
    }

    /// Revisions up to this one will not be published.
    pub fn jump(&self, to: Revision) {
        let jump = Inbox { jump: Some(to), ..Inbox::default() };
        let passed = std::mem::replace(&mut *self.shared.inbox.lock(), jump);
        drop(passed);
        self.shared.published.notify_one();
    }

    /// Tells synced watchers of what is published, for ever.
    pub async fn run_dispatch(&self) {
        loop {
            self.shared.published.notified().await;
            loop {
                let inbox = std::mem::take(&mut *self.shared.inbox.lock());
                if inbox.jump.is_none() && inbox.batches.is_empty() {
                    break;
                }
                self.dispatch(inbox).await;
            }
        }
    }

    async fn dispatch(&self, mut inbox: Inbox) {
        if let Some(to) = inbox.jump {
            self.with(|core| core.jump(to));
        }
        while !inbox.batches.is_empty() {
            self.with(|core| {
                let mut told = 0;
                for batch in std::iter::from_fn(|| inbox.batches.pop_front()).take(DISPATCH_BATCHES) {
                    told += core.publish(&batch);
                    if DISPATCH_TOLD <= told {
                        break;
                    }
                }
            });
            if !inbox.batches.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads history for late watchers, for ever.
    pub async fn run_catch_up(&self) {
        loop {
            self.shared.wanted.notified().await;
            loop {
                let horizon = self.history().horizon();
                match self.with(|core| core.step(horizon)) {
                    Step::Nothing => break,
                    Step::Dealt => tokio::task::yield_now().await,
                    Step::Read(query) => self.read(query).await,
                }
            }
        }
    }

    async fn read(&self, query: HistoryQuery) {
        let history = self.history().clone();
        let work = move || history.read(&query);
        let mut read = if self.shared.config.reads_inline {
            tokio::spawn(async move { work() })
        } else {
            tokio::task::spawn_blocking(work)
        };
        let read = loop {
            tokio::select! {
                read = &mut read => break read,
                // A disk may be slow; those whom memory can serve do not wait for it.
                () = self.shared.wanted.notified() => {
                    let horizon = self.history().horizon();
                    self.with(|core| core.step_ring(horizon));
                }
            }
        };
        match read {
            Ok(Ok(past)) => self.with(|core| core.deal(&query, past)),
            // The next step sees the new horizon, and tells whom it concerns.
            Ok(Err(HistoryError::Compacted)) => {}
            Ok(Err(HistoryError::Failed(reason))) => self.fail_history(&reason).await,
            Err(error) => self.fail_history(&error.to_string()).await,
        }
    }

    async fn fail_history(&self, reason: &str) {
        tracing::error!(reason, "history cannot be read for late watchers; their streams end");
        self.with(|core| core.fail_history(reason));
        tokio::time::sleep(FAILED_READ_PAUSE).await;
    }

    pub fn open(&self, options: StreamOptions) -> WatchStream {
        let id = self.with(|core| core.open(options));
        WatchStream { hub: self.clone(), id }
    }

    /// Ends all streams: the member stops.
    pub fn stop(&self) {
        self.with(Core::stop);
    }

    /// Ends the streams that asked for a leader.
    pub fn lose_leader(&self) {
        self.with(Core::lose_leader);
    }

    pub fn counts(&self) -> Counts {
        self.shared.core.lock().counts()
    }

    pub fn totals(&self) -> Totals {
        self.shared.core.lock().totals()
    }

    pub fn frontier(&self) -> Revision {
        self.shared.core.lock().frontier()
    }

    /// Events encoded so far, each form counted.
    pub fn encoded(&self) -> u64 {
        self.shared.meter.encoded()
    }

    /// See [`Core::report`].
    pub fn report(&self, at: usize) -> Option<(usize, Vec<WatcherReport>)> {
        self.with(|core| core.report(at))
    }

    fn history(&self) -> &Arc<dyn History> {
        self.shared.history.get().expect("a hub is given its history before it is used")
    }

    fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.shared.core.lock();
        core.set_time(u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let result = act(&mut core);
        let (awake, lined_up, cut) = (core.take_awake(), core.take_lined_up(), core.take_cut_clients());
        drop(core);
        for client in cut {
            tracing::warn!(%client, "a watch stream is ended: it was not read while others needed its memory");
        }
        if lined_up {
            self.shared.wanted.notify_one();
        }
        awake.into_iter().for_each(Waker::wake);
        result
    }
}

/// One client stream. Dropping it ends all its watchers.
pub struct WatchStream {
    hub: Hub,
    id: StreamId,
}

impl WatchStream {
    pub fn register(&self, request: WatchRequest) {
        self.with_horizon(|core, id, horizon| core.register(id, request, horizon));
    }

    /// Answers a request for a watcher with a refusal.
    pub fn refuse(&self, refused: Refused) {
        self.with_horizon(|core, id, _| core.refuse(id, refused));
    }

    pub fn cancel(&self, watch: WatchId) {
        self.with_horizon(|core, id, horizon| core.cancel(id, watch, horizon));
    }

    pub fn request_progress(&self) {
        self.with_horizon(Core::request_progress);
    }

    /// The time for periodic progress marks has come.
    pub fn tick(&self) {
        self.hub.with(|core| core.tick(self.id));
    }

    /// See [`Core::take`].
    pub fn take(&self, budget: usize, reader: &Waker, out: &mut Vec<Out>) -> Taken {
        self.hub.with(|core| core.take(self.id, budget, reader, out))
    }

    /// See [`Core::set_in_flight`].
    pub fn set_in_flight(&self, batch: Option<Arc<Encoded>>) {
        self.hub.with(|core| core.set_in_flight(self.id, batch));
    }

    /// See [`Core::in_flight`].
    pub fn in_flight(&self) -> Result<Arc<Encoded>, End> {
        self.hub.with(|core| core.in_flight(self.id))
    }

    /// Taken under the lock: publishing cannot come in between what is visible and what is placed.
    fn with_horizon<T>(&self, act: impl FnOnce(&mut Core, StreamId, Horizon) -> T) -> T {
        let history = self.hub.history();
        self.hub.with(|core| act(core, self.id, history.horizon()))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.hub.with(|core| core.close(self.id));
    }
}
