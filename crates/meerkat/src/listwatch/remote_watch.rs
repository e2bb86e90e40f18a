//! A watch of a cluster far away: whole revisions, and how far the cluster has come.
//!
//! A member says how far it is only on a stream on which no watch begins in its future. So a watch here
//! begins at the last revision that was told, not after it, and what it hears of that one is left out;
//! and when the client went on elsewhere by itself, from the next revision, the watch is begun anew.
//! Where asking does not help, as with an old etcd, reading does: see `remote_proof`.
//!
//! Whatever served the watch before may have been restored or replaced when it is served again: nothing is
//! told before an answer of the cluster has shown that it is still the same; see `remote_history`. A watch
//! that no member serves for a while ends: the cluster has no majority, or cannot be reached from here.

use super::remote_history::Seen;
use super::remote_proof::{self, Held};
use super::remote_store::{RemoteStore, signed, unsigned};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use meerkat_client::{
    Changes, Client, Event, EventKind, KeyValue, Keys, LeaseId, Revision, Watch, WatchError, WatchPhase,
    WatchStatus,
};
use meerkat_watchcache::store::{Awaited, Batch, Row, RowChange, StoreError};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::Instant;

/// Revisions the client buffers: a burst of a busy kind.
const BUFFER_REVISIONS: usize = 1_024;
/// Between two questions while somebody waits for an answer; doubles with each up to the second one. Then
/// the store is read, too.
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK_MAX: Duration = Duration::from_millis(160);
/// How often one who has to read looks whether the store has moved on, though nobody is known to wait.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a watch may be without a member. Longer than an election and the search for another member.
const ALONE_MAX: Duration = Duration::from_secs(5);
/// Between two tries to learn whether the cluster is still the same.
const RECOGNIZE_AGAIN: Duration = Duration::from_millis(100);

struct RemoteWatch {
    store: RemoteStore,
    prefix: Bytes,
    watch: Watch,
    /// Two views of it: one for whoever waits for a move, one for whoever waits for a loss.
    status: channel::Receiver<WatchStatus>,
    presence: channel::Receiver<WatchStatus>,
    /// Since when no member has served it.
    alone_since: Option<Instant>,
    /// It has just begun, and nobody knows yet whether on the same cluster.
    is_strange: bool,
    /// Changes when the cluster is found to be another one.
    history: channel::Receiver<Seen>,
    awaited: Awaited,
    /// Everything up to here was handed out.
    told: u64,
    /// Everything up to here was told by the watch itself.
    heard: u64,
    pause: Duration,
    /// What the prefix held when it was last read: asking does not help here.
    held: Option<Held>,
    ended: bool,
}

type Item = Result<Batch, StoreError>;

pub(super) fn watch(
    store: RemoteStore,
    awaited: Awaited,
    prefix: Bytes,
    after: u64,
) -> BoxStream<'static, Item> {
    let Some(from) = signed(after) else {
        let error = StoreError::Future { asked: after };
        return futures::stream::once(async { Err(error) }).boxed();
    };
    let watch = begin(&store.client, &prefix, from);
    let state = RemoteWatch {
        status: watch.monitor(),
        presence: watch.monitor(),
        alone_since: None,
        is_strange: true,
        history: store.witness.follow(),
        store,
        prefix,
        watch,
        awaited,
        told: after,
        heard: after,
        pause: ASK_FIRST,
        held: None,
        ended: false,
    };
    futures::stream::unfold(state, |mut state| async move { Some((state.next().await?, state)) }).boxed()
}

fn begin(client: &Client, prefix: &Bytes, from: Revision) -> Watch {
    client.watch(Keys::prefix(prefix)).from(from).marks().buffer(BUFFER_REVISIONS).start()
}

impl RemoteWatch {
    /// The next batch; `None` after an error. May be cancelled without losing anything.
    async fn next(&mut self) -> Option<Item> {
        if self.ended {
            return None;
        }
        loop {
            let begun = self.watch.monitor();
            tokio::select! {
                biased;
                // The order matters: nothing of a strange cluster is told.
                Ok(()) = self.history.changed() => return self.end(StoreError::OtherHistory),
                () = moved(&mut self.status) => self.begin_anew(),
                () = left_alone(&mut self.presence, &mut self.alone_since) => {
                    let why = format!("no member has served the watch for {ALONE_MAX:?}");
                    return self.end(StoreError::CutOff(why));
                }
                known = recognize(&self.store, begun), if self.is_strange => {
                    if known.is_err() {
                        return self.end(StoreError::OtherHistory);
                    }
                    self.is_strange = false;
                }
                item = self.watch.next(), if !self.is_strange => {
                    let told = self.hear(item);
                    if told.is_some() {
                        return told;
                    }
                }
                () = until_asking(&mut self.awaited, self.told, self.pause), if !self.is_strange => {
                    self.watch.hurry();
                    let asked_enough = self.held.is_some() || ASK_MAX <= self.pause;
                    self.pause = (self.pause * 2).min(ASK_MAX);
                    if asked_enough && let Some(told) = self.prove_now().await {
                        return Some(told);
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN), if self.held.is_some() && !self.is_strange => {
                    if let Some(told) = self.prove_now().await {
                        return Some(told);
                    }
                }
            }
        }
    }

    fn end(&mut self, why: StoreError) -> Option<Item> {
        self.ended = true;
        Some(Err(why))
    }

    fn hear(&mut self, item: Option<Result<Changes, WatchError>>) -> Option<Item> {
        if let Some(Ok(changes)) = &item
            && changes.events.is_empty()
        {
            // A mark: asking does help.
            self.held = None;
        }
        let heard = match item {
            Some(Ok(changes)) => batch(changes, self.heard, self.told),
            Some(Err(error)) => Err(failure(&error)),
            None => Err(StoreError::Unavailable("the watch is over".to_owned())),
        };
        match heard {
            Ok(None) => None,
            Ok(Some(batch)) => {
                self.told = batch.revision;
                self.heard = batch.revision;
                self.pause = ASK_FIRST;
                Some(Ok(batch))
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }

    /// Says so if nothing is otherwise now. A failure to read is no failure of the watch.
    async fn prove_now(&mut self) -> Option<Item> {
        let to = self.store.current().await.ok()?;
        if to <= self.told {
            return None;
        }
        let client = &self.store.client;
        let stayed = remote_proof::stayed(client, &self.prefix, self.told, self.held, to).await;
        match stayed {
            Ok(Some(held)) => {
                self.held = Some(held);
                self.told = to;
                self.pause = ASK_FIRST;
                Some(Ok(Batch { revision: to, changes: Vec::new() }))
            }
            Ok(None) | Err(_) => None,
        }
    }

    fn begin_anew(&mut self) {
        // It was a revision when the watch began, or one that a member told: never one that was only proved.
        let from = signed(self.heard).unwrap_or(Revision::EMPTY_STORE);
        self.watch = begin(&self.store.client, &self.prefix, from);
        (self.status, self.presence) = (self.watch.monitor(), self.watch.monitor());
        self.is_strange = true;
    }
}

/// Resolves when the cluster has answered: with an error if it is another one than before. Not before a
/// member serves the watch: from then on a cluster that goes takes the watch with it.
async fn recognize(
    store: &RemoteStore,
    mut status: channel::Receiver<WatchStatus>,
) -> Result<(), StoreError> {
    if status.wait_for(|status| status.phase != WatchPhase::Connecting).await.is_err() {
        return Ok(());
    }
    loop {
        match store.current().await {
            Ok(_) => return Ok(()),
            Err(StoreError::OtherHistory) => return Err(StoreError::OtherHistory),
            Err(_) => tokio::time::sleep(RECOGNIZE_AGAIN).await,
        }
    }
}

/// Resolves when no member has served the watch for too long.
async fn left_alone(status: &mut channel::Receiver<WatchStatus>, since: &mut Option<Instant>) {
    let is_alone = |status: &WatchStatus| status.phase == WatchPhase::Connecting;
    loop {
        let waited = if is_alone(&status.borrow_and_update()) {
            let since = *since.get_or_insert_with(Instant::now);
            let served = status.wait_for(|status| !is_alone(status));
            match tokio::time::timeout_at(since + ALONE_MAX, served).await {
                Ok(served) => served.is_ok(),
                Err(_) => return,
            }
        } else {
            *since = None;
            status.wait_for(is_alone).await.is_ok()
        };
        if !waited {
            // The watch is over, and will say so.
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves when the client has created the watch again, from the revision after the last.
async fn moved(status: &mut channel::Receiver<WatchStatus>) {
    let again = |status: &WatchStatus| status.phase == WatchPhase::Live && 0 < status.resumes + status.parked;
    if status.wait_for(again).await.is_err() {
        // The watch is over, and will say so.
        std::future::pending::<()>().await;
    }
}

/// Resolves when somebody waits for more than was told, and it is time to ask.
async fn until_asking(awaited: &mut Awaited, told: u64, pause: Duration) {
    if awaited.wait_for(|awaited| told < *awaited).await.is_err() {
        // Nobody is left who could wait.
        std::future::pending::<()>().await;
    }
    if ASK_FIRST < pause {
        tokio::time::sleep(pause).await;
    }
}

/// `None` for what was told already. A proof says that nothing is otherwise, not that nothing happened: a
/// key that came and went in between is told of too late, and then the watch is over.
fn batch(changes: Changes, heard: u64, told: u64) -> Result<Option<Batch>, StoreError> {
    let revision = unsigned(changes.revision);
    if revision <= told {
        let is_late = heard < revision && !changes.events.is_empty();
        return if is_late { Err(StoreError::Compacted { oldest: revision }) } else { Ok(None) };
    }
    let changes = changes.events.into_iter().map(change).collect();
    Ok(Some(Batch { revision, changes }))
}

fn change(event: Event) -> RowChange {
    match event.kind {
        EventKind::Put(kv) => RowChange { key: kv.key.clone(), after: Some(row(kv)) },
        EventKind::Delete { key, .. } => RowChange { key, after: None },
    }
}

pub(super) fn row(kv: KeyValue) -> Row {
    Row {
        key: kv.key,
        value: kv.value,
        modified: unsigned(kv.modified),
        lease: kv.lease.map_or(0, LeaseId::get),
    }
}

fn failure(error: &WatchError) -> StoreError {
    match error {
        WatchError::Compacted { oldest, .. } => StoreError::Compacted { oldest: unsigned(*oldest) },
        error => StoreError::Unavailable(error.to_string()),
    }
}
