//! One kind's cache as those see it who list and watch.

use super::counters::FeedCounters;
use super::freshness::Waiting;
use super::hub::Hub;
use super::seat::BookmarkWish;
use super::shared::Shared;
use super::watcher::Watcher;
use super::{Unserved, supervise};
use crate::cacher::entry::Shape;
use crate::cacher::filter::Filter;
use crate::cacher::freshness::{WAIT_MS, WaiterId};
use crate::cacher::store::Version;
use crate::cacher::{At, NoAnswer};
use crate::list_plan::ReadAt;
use crate::store::StoreError;
use crate::watch_plan::{ChangesAfter, WatchBegin, WatchPlan};
use meerkat_kubernetes::status::{Reason, Refusal};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// One kind's cache, kept by its own tasks. Dropping it ends it.
pub struct Feed {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
    end: Arc<supervise::End>,
}

/// Why nothing is found.
enum Missed {
    Cache(NoAnswer),
    /// The store does not say how far it has come.
    Store(StoreError),
    /// Too many wait.
    Crowded,
}

impl Feed {
    pub(super) fn start(shared: Shared) -> Feed {
        let (shared, end) = (Arc::new(shared), Arc::default());
        let supervisor = tokio::spawn(supervise::run(shared.clone(), Arc::clone(&end))).abort_handle();
        Feed { shared, supervisor, end }
    }

    /// Whether one of its tasks has ended, which none does by itself, and another feed may take its place.
    pub(super) fn is_to_be_replaced(&self) -> bool {
        self.end.is_past_rest()
    }

    /// Whether the store hears of what others write: if not, what is here may be old.
    pub fn is_cut_off(&self) -> bool {
        self.locked(|hub, _| hub.is_cut_off())
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shared.shape
    }

    pub(super) fn close(&self) {
        self.supervisor.abort();
        self.shared.locked(|hub, wakers| hub.close(self.shared.now_ms(), wakers));
    }

    /// The objects of a kind as they are or were. Waits for what has not been reached, three seconds at
    /// most. `MostRecent` covers every write that was acknowledged before the call.
    pub async fn version(&self, at: ReadAt) -> Result<Version, Unserved> {
        let found = match self.reach(at).await {
            Ok(at) => self.of_now(|hub, now_ms| hub.cache.version(at, now_ms)).map_err(Missed::Cache),
            Err(missed) => Err(missed),
        };
        found.map_err(|missed| missed.unserved(at))
    }

    /// Refused with 410 if the changes after a revision are no longer all in memory, and with 429 as long
    /// as the cache is not ready.
    pub async fn watch(
        &self,
        plan: &WatchPlan,
        filter: Filter,
        lifetime: Duration,
    ) -> Result<Watcher, Refusal> {
        self.locked(|hub, now_ms| hub.lets_in(now_ms)).map_err(|missed| missed.refusal())?;
        let deadline = tokio::time::sleep(lifetime);
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = self.shared.now_ms().saturating_add(lifetime_ms);
        let wish = |initial_end| BookmarkWish { deadline_ms, initial_end };
        let wish = |initial_end| plan.bookmarks.then(|| wish(initial_end));
        let (seat, initial) = match plan.begin {
            WatchBegin::State { at, mark_end } => {
                let at = self.reach(at).await.map_err(Missed::refusal)?;
                let entered = self.of_now(|hub, now_ms| {
                    let version = hub.cache.version(at, now_ms)?;
                    let wish = wish(mark_end.then_some(version.revision()));
                    let seat = hub.enter(version.revision(), filter, wish, now_ms)?;
                    Ok((seat, version))
                });
                let (seat, version) = entered.map_err(|missed: NoAnswer| missed.refusal())?;
                let initial = version.list(&seat.filter, None, None).by_revision();
                (seat, initial)
            }
            WatchBegin::Changes(after) => {
                let place = self.place(after).await.map_err(Missed::refusal)?;
                let entered = self.of_now(|hub, now_ms| {
                    let after = match place {
                        Place::Reached => hub.cache.revision(now_ms)?,
                        Place::After(revision) => hub.cache.ring(now_ms)?.resume(revision, &filter),
                        // A cache that is filled later than that begins later.
                        Place::NotBefore(revision) => revision.max(hub.cache.ring(now_ms)?.floor()),
                    };
                    hub.enter(after, filter, wish(None), now_ms)
                });
                (entered.map_err(|missed| missed.refusal())?, Vec::new())
            }
        };
        Ok(Watcher::new(self.shared.clone(), seat, initial, deadline))
    }

    /// The store has dropped what was before `oldest`: it answered so to somebody who read the past.
    pub fn compacted(&self, oldest: u64) {
        self.locked(|hub, _| hub.cache.compact(oldest));
    }

    pub fn counters(&self) -> FeedCounters {
        self.locked(|hub, now_ms| {
            let census = hub.census();
            let ring = hub.cache.ring(now_ms).ok();
            FeedCounters {
                place: self.shared.place().to_owned(),
                ready: hub.cache.is_ready(),
                cut_off: hub.is_cut_off(),
                objects: hub.cache.version(At::Newest, now_ms).map_or(0, |version| version.len()),
                revision: hub.cache.revision(now_ms).unwrap_or(0),
                watchers_live: census.live,
                watchers_parked: census.parked,
                watchers_starting: census.starting,
                ring_events: ring.map_or(0, |ring| ring.len()),
                ring_capacity: ring.map_or(0, |ring| ring.capacity()),
                encodes: hub.cache.encodes().count(),
                tally: hub.tally.clone(),
            }
        })
    }

    pub(super) fn locked<T>(&self, work: impl FnOnce(&mut Hub, u64) -> T) -> T {
        let now_ms = self.shared.now_ms();
        self.shared.locked(|hub, _| work(hub, now_ms))
    }

    /// As [`locked`](Self::locked), unless the store has been replaced since the cache was filled.
    fn of_now<T>(&self, work: impl FnOnce(&mut Hub, u64) -> Result<T, NoAnswer>) -> Result<T, NoAnswer> {
        self.locked(|hub, now_ms| {
            hub.is_of(self.shared.store.history())?;
            work(hub, now_ms)
        })
    }

    /// Waits until what is asked for can be there. A cache that was never filled is waited for, too.
    async fn reach(&self, at: ReadAt) -> Result<At, Missed> {
        let (revision, at) = match at {
            ReadAt::AnyCached => (0, At::Newest),
            ReadAt::NotOlderThan(asked) | ReadAt::Exact(asked) => {
                if let Some(oldest) = self.outlived(asked).await? {
                    return Err(Missed::Cache(NoAnswer::Compacted { asked, oldest }));
                }
                (asked, if at == ReadAt::Exact(asked) { At::Exact(asked) } else { At::NotBefore(asked) })
            }
            ReadAt::MostRecent => {
                let now = self.shared.present.now().await.map_err(Missed::Store)?;
                (now, At::NotBefore(now))
            }
        };
        self.wait(revision).await?;
        Ok(at)
    }

    /// The revision of now, if the one that a client names is of the store before this one: nobody is to
    /// wait for it.
    async fn outlived(&self, asked: u64) -> Result<Option<u64>, Missed> {
        if !self.locked(|hub, now_ms| hub.may_be_lost(asked, now_ms)) {
            return Ok(None);
        }
        let now = self.shared.present.now().await.map_err(Missed::Store)?;
        Ok((now < asked).then_some(now))
    }

    async fn place(&self, after: ChangesAfter) -> Result<Place, Missed> {
        let place = match after {
            ChangesAfter::Cached => Place::Reached,
            ChangesAfter::Revision(asked) => {
                if let Some(now) = self.outlived(asked).await? {
                    return Err(Missed::Cache(NoAnswer::TooOld { asked, oldest: now + 1 }));
                }
                Place::After(asked)
            }
            ChangesAfter::MostRecent => {
                Place::NotBefore(self.shared.present.now().await.map_err(Missed::Store)?)
            }
        };
        self.wait(0).await?;
        Ok(place)
    }

    /// Until the cache has reached a revision, or has not for too long. Which of them it is, it says
    /// itself.
    async fn wait(&self, revision: u64) -> Result<(), Missed> {
        let wait =
            |hub: &mut Hub, now_ms: u64| hub.waiters.wait(revision.max(hub.serves_from), now_ms + WAIT_MS);
        match self.locked(wait) {
            Waiting::Reached => Ok(()),
            Waiting::Refused => Err(Missed::Crowded),
            Waiting::For(id, told) => {
                let _place = Waiter { feed: self, id };
                drop(tokio::time::timeout(Duration::from_millis(WAIT_MS), told).await);
                self.locked(|hub, now_ms| hub.serves(now_ms)).map_err(Missed::Cache)
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where changes begin.
enum Place {
    Reached,
    After(u64),
    NotBefore(u64),
}

/// Leaves when it is dropped.
struct Waiter<'a> {
    feed: &'a Feed,
    id: WaiterId,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.feed.locked(|hub, _| hub.waiters.leave(self.id));
    }
}

impl Missed {
    fn unserved(self, at: ReadAt) -> Unserved {
        match self {
            Missed::Cache(NoAnswer::NotReady { down_ms }) => Unserved::AskStore { down_ms: Some(down_ms) },
            Missed::Cache(NoAnswer::Compacted { .. }) => Unserved::Expired,
            Missed::Cache(NoAnswer::Future { .. }) if at == ReadAt::MostRecent => {
                Unserved::AskStore { down_ms: None }
            }
            // It would say the same again, and later.
            missed @ Missed::Store(StoreError::CutOff(_)) => Unserved::Refused(missed.refusal()),
            Missed::Cache(NoAnswer::Dropped { .. }) | Missed::Store(_) => {
                Unserved::AskStore { down_ms: None }
            }
            missed => Unserved::Refused(missed.refusal()),
        }
    }

    fn refusal(self) -> Refusal {
        match self {
            Missed::Cache(why) => why.refusal(),
            Missed::Store(why) => {
                let mut refusal = Refusal::new(Reason::ServiceUnavailable, why.to_string());
                refusal.retry_after_s = Some(1);
                refusal
            }
            Missed::Crowded => Refusal::too_many_requests("too many requests wait for the store", 1),
        }
    }
}

#[cfg(test)]
impl Feed {
    /// Loses an object, as no store told it to.
    pub(super) fn corrupt(&self, key: &str) {
        self.locked(|hub, now_ms| {
            let revision = hub.cache.revision(now_ms).expect("it is ready");
            let gone = crate::cacher::Write::Delete(key.into());
            hub.cache.apply(revision + 1, vec![gone], now_ms);
        });
    }
}
