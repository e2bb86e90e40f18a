//! Fills the cache from a list of the store, and keeps it by a watch after that.
//!
//! ```text
//!          ┌────────── each second ──────────┐
//!          ▼                                 │ fails
//!   not ready ── list at a past revision ────┘
//!          ▲              │
//!   lost   │              ▼
//!          └──────── watch after it ◄──┐ breaks: again, after the last revision told
//!                         └────────────┘
//! ```
//!
//! The list is of some revisions ago, and the watch tells what happened since, before anybody is served:
//! a client that comes from another server finds what it has missed in the ring, however young this
//! cache is.
//!
//! A watch that breaks loses nothing as long as it can be begun again. If that does not succeed for half
//! a minute, or the store no longer has what comes next, nobody knows what was missed: the cache is lost,
//! and with it all watchers.
//!
//! A store that is cut off loses nothing either, however long it lasts: the cache stays as it was and goes
//! on from there. Only those who watch are sent elsewhere meanwhile, where there may be something to tell.

use super::blocked;
use super::hub::Ending;
use super::shared::Shared;
use crate::cacher::entry::Entry;
use crate::cacher::store::Version;
use crate::cacher::time_budget::TimeBudget;
use crate::store::{Batch, History, Page, Span, StoreError};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) const PAGE_ROWS: usize = 10_000;
const LIST_AGAIN: Duration = Duration::from_secs(1);
const TOLERATED: Duration = Duration::from_secs(30);
const WATCH_AGAIN_MIN: Duration = Duration::from_millis(50);
const WATCH_AGAIN_MAX: Duration = Duration::from_secs(1);
/// How often one that is cut off asks whether it still is, and how long it waits for the answer.
const REJOIN_EVERY: Duration = Duration::from_millis(200);
const REJOIN_WITHIN: Duration = Duration::from_secs(3);
/// Changes that are told again before a cache serves, at most.
const PAST_CHANGES_MAX: usize = 20_000;
/// Objects decoded before others may run.
const DECODE_ROWS: usize = 200;

/// Until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut has_complained = false;
    let mut past = shared.settings.past_revisions;
    loop {
        let begun = Instant::now();
        // Before anything is read: what is read may be of a later one, and is then read again.
        let history = shared.store.history();
        let listed = list(&shared, past).await;
        let listed = listed.and_then(|listed| is_of(&shared, history).map(|()| listed));
        match listed {
            Ok((version, now)) => {
                has_complained = false;
                let course = Course { after: version.revision(), level: now, past_changes: 0, history };
                shared.locked(|hub, _| hub.begin(version, now, history));
                let ended = course.follow(&shared).await;
                past = if matches!(ended, Ended::TooMuchPast) { 0 } else { shared.settings.past_revisions };
                if lose(&shared, ended) {
                    continue;
                }
            }
            Err(why) if !has_complained => {
                has_complained = true;
                tracing::warn!(place = shared.place(), %why, "the cache cannot be filled; tried each second");
            }
            Err(_) => {}
        }
        tokio::time::sleep_until(begun + LIST_AGAIN).await;
    }
}

/// Gives the cache up. Whether another is to be filled at once.
fn lose(shared: &Shared, ended: Ended) -> bool {
    let is_replaced = matches!(ended, Ended::Lost(StoreError::OtherHistory));
    let ending = if is_replaced { Ending::Expired } else { Ending::Resumable };
    shared.locked(|hub, wakers| hub.lose(ending, shared.now_ms(), wakers));
    match ended {
        Ended::Lost(why) => {
            let place = shared.place();
            tracing::warn!(place, %why, "the cache lost the store and is filled anew");
            is_replaced
        }
        Ended::TooMuchPast => true,
    }
}

/// All objects as they were so many revisions ago, or as long ago as the store still knows; and the
/// revision of now.
async fn list(shared: &Shared, past: u64) -> Result<(Version, u64), StoreError> {
    let now = shared.store.now().await?;
    if past == 0 {
        return Ok((list_at(shared, None).await?, now));
    }
    let first = now.saturating_sub(past).max(1);
    let listed = match list_at(shared, Some(first)).await {
        Err(StoreError::Compacted { oldest }) => list_at(shared, Some(oldest)).await,
        listed => listed,
    };
    match listed {
        // It was compacted further in between.
        Err(StoreError::Compacted { .. }) => Ok((list_at(shared, None).await?, now)),
        listed => Ok((listed?, now)),
    }
}

/// All objects at one revision.
async fn list_at(shared: &Shared, revision: Option<u64>) -> Result<Version, StoreError> {
    let mut pages = Pages::new(shared, revision);
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(page) = pages.next().await? {
        for (at, row) in page.rows.iter().enumerate() {
            if row.modified > page.revision {
                return Err(StoreError::Unavailable("a row is newer than its page".to_owned()));
            }
            entries.extend(shared.entry_of(row, row.modified));
            if at % DECODE_ROWS == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    let revision = pages.revision.unwrap_or_default();
    Ok(Version::new(&shared.shape, shared.settings.bounds, entries, revision))
}

/// The rows of a feed's prefix in pages, all of one revision.
pub(super) struct Pages<'a> {
    shared: &'a Shared,
    pub(super) revision: Option<u64>,
    from: Bytes,
    is_over: bool,
}

impl Pages<'_> {
    pub(super) fn new(shared: &Shared, revision: Option<u64>) -> Pages<'_> {
        Pages { shared, revision, from: Bytes::new(), is_over: false }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Page>, StoreError> {
        if self.is_over {
            return Ok(None);
        }
        let prefix = Bytes::copy_from_slice(self.shared.prefix.as_bytes());
        let span = Span { prefix, from: self.from.clone(), limit: PAGE_ROWS };
        let page = self.shared.store.read(span, self.revision).await?;
        self.revision.get_or_insert(page.revision);
        match page.rows.last() {
            Some(last) if page.more => self.from = [&last.key[..], b"\0"].concat().into(),
            None if page.more => {
                return Err(StoreError::Unavailable("a page is empty, and there is more".to_owned()));
            }
            _ => self.is_over = true,
        }
        Ok(Some(page))
    }
}

/// Why a cache is given up.
enum Ended {
    Lost(StoreError),
    /// What happened between the list and now is more than a list of now.
    TooMuchPast,
}

/// How far a cache has come, and what of.
struct Course {
    after: u64,
    /// How far the store was when the cache was filled, or was found again.
    level: u64,
    /// Changes told up to there.
    past_changes: usize,
    history: History,
}

impl Course {
    /// Applies what the store tells, until nothing more can be learned. Why.
    async fn follow(mut self, shared: &Shared) -> Ended {
        let mut budget = TimeBudget::new(shared.now_ms());
        let mut trouble = Trouble::default();
        loop {
            let broken = match self.watch(shared, &mut budget, &mut trouble).await {
                Ok(ended) => return ended,
                Err(broken) => broken,
            };
            if is_final(&broken) {
                return Ended::Lost(broken);
            }
            if let StoreError::CutOff(why) = &broken {
                self.wait_for_store(shared, why).await;
                trouble = Trouble::default();
            } else if let Some(wait) = trouble.next_wait(Instant::now()) {
                tokio::time::sleep(wait).await;
            } else {
                return Ended::Lost(broken);
            }
        }
    }

    /// One watch of the store, to its end.
    async fn watch(
        &mut self,
        shared: &Shared,
        budget: &mut TimeBudget,
        trouble: &mut Trouble,
    ) -> Result<Ended, StoreError> {
        let prefix = Bytes::copy_from_slice(shared.prefix.as_bytes());
        let mut watch = shared.store.watch(prefix, self.after, shared.awaited());
        loop {
            // After the watch was begun: it tells of a new history itself, unless it was begun in one.
            is_of(shared, self.history)?;
            let batch = match watch.next().await {
                Some(told) => told?,
                None => return Err(StoreError::Unavailable("the watch ended".to_owned())),
            };
            *trouble = Trouble::default();
            if batch.revision <= self.after {
                if batch.changes.is_empty() {
                    continue;
                }
                return Ok(Ended::Lost(StoreError::Future { asked: batch.revision }));
            }
            if self.after < self.level {
                self.past_changes += batch.changes.len();
            }
            if PAST_CHANGES_MAX < self.past_changes {
                return Ok(Ended::TooMuchPast);
            }
            is_of(shared, self.history)?;
            self.after = batch.revision;
            deliver(shared, &batch, budget).await;
        }
    }

    /// Sends those who watch elsewhere, and waits until the store answers for its cluster again.
    async fn wait_for_store(&mut self, shared: &Shared, why: &str) {
        let place = shared.place();
        tracing::warn!(place, why, "the store is cut off: whoever watches is sent elsewhere");
        shared.locked(|hub, wakers| hub.cut_off(shared.now_ms(), wakers));
        loop {
            tokio::time::sleep(REJOIN_EVERY).await;
            let answer = tokio::time::timeout(REJOIN_WITHIN, shared.present.now()).await;
            // Of another history: the next watch says so.
            if is_of(shared, self.history).is_err() {
                return;
            }
            if let Ok(Ok(now)) = answer {
                tracing::info!(place, revision = now, "the store is back, and the cache goes on");
                (self.level, self.past_changes) = (now, 0);
                return shared.locked(|hub, _| hub.rejoin(now, shared.now_ms()));
            }
        }
    }
}

fn is_of(shared: &Shared, history: History) -> Result<(), StoreError> {
    if shared.store.history() == history { Ok(()) } else { Err(StoreError::OtherHistory) }
}

async fn deliver(shared: &Shared, batch: &Batch, budget: &mut TimeBudget) {
    let writes = shared.writes_of(batch);
    let blocked = shared.locked(|hub, wakers| hub.apply(batch.revision, writes, shared.now_ms(), wakers));
    if !blocked.is_empty() {
        blocked::wait(shared, blocked, budget).await;
    }
    // A store that always has more to tell must not keep others from running.
    tokio::task::consume_budget().await;
}

/// Whether the same watch cannot be begun again: the store has forgotten, or has gone back.
fn is_final(error: &StoreError) -> bool {
    matches!(error, StoreError::Compacted { .. } | StoreError::Future { .. } | StoreError::OtherHistory)
}

/// For how long no watch has told anything.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Instant>,
    tries: u32,
}

impl Trouble {
    /// When to try again, or `None` if it has lasted for too long.
    fn next_wait(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if TOLERATED < now.duration_since(since) {
            return None;
        }
        let wait = WATCH_AGAIN_MIN.saturating_mul(1 << self.tries.min(8)).min(WATCH_AGAIN_MAX);
        self.tries += 1;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_tolerated_for_half_a_minute() {
        let (mut trouble, mut now, begun) = (Trouble::default(), Instant::now(), Instant::now());
        let mut waits = Vec::new();
        while let Some(wait) = trouble.next_wait(now) {
            waits.push(wait);
            now += wait;
        }
        assert!(waits[0] == WATCH_AGAIN_MIN && waits.last() == Some(&WATCH_AGAIN_MAX), "{waits:?}");
        assert!(TOLERATED < now - begun && now - begun < TOLERATED + 2 * WATCH_AGAIN_MAX);
    }
}
