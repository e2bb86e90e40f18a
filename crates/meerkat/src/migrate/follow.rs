//! The changes since the copy, as the source's watch tells them, until the cut over.

use std::time::Duration;

use futures::FutureExt;
use meerkat_client::{Changes, Keys, Revision, Watch, WatchError};

use super::batch::{Change, changes_of, fitting, joins};
use super::carry::Carrier;
use super::progress::Progress;
use super::revision_of;
use crate::failure::Failure;

/// How often lag is told, and leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How soon a migration that only waits for its end looks for it.
const LOOK: Duration = Duration::from_millis(100);

/// Follows the source until told to stop. Gives the last revision that is carried.
pub async fn follow(carrier: &mut Carrier, until_caught_up: bool) -> Result<i64, Failure> {
    let (next, _) = carrier.next();
    let mut watch = carrier.from.watch(Keys::all()).from(Revision::new(next)).start();
    let mut tick = tokio::time::interval(TICK);
    let mut goal: Option<i64> = None;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let (next, _) = carrier.next();
        if goal.is_some_and(|goal| goal < next) {
            carrier.leases.refresh().await?;
            carrier.leases.end_before(next).await?;
            return Ok(next - 1);
        }
        tokio::select! {
            changes = watch.next() => take(carrier, &mut watch, changes).await?,
            _ = tick.tick() => look_around(carrier).await?,
            // Only until there is a goal: the first one stands.
            _ = &mut interrupted, if goal.is_none() => {
                goal = Some(revision_of(&carrier.from).await?);
                println!("told to cut over; carrying what is left");
            }
            () = tokio::time::sleep(LOOK), if until_caught_up && goal.is_none() => {
                let newest = revision_of(&carrier.from).await?;
                goal = (newest < carrier.next().0).then_some(newest);
            }
        }
    }
}

async fn look_around(carrier: &mut Carrier) -> Result<(), Failure> {
    let newest = revision_of(&carrier.from).await?;
    let next = carrier.next().0;
    println!(
        "carried up to revision {}, source is at {newest}: lag {}",
        next - 1,
        (newest + 1 - next).max(0)
    );
    carrier.leases.refresh().await?;
    carrier.leases.end_before(next).await
}

/// Carries what the watch has told, and whatever else it has ready.
async fn take(
    carrier: &mut Carrier,
    watch: &mut Watch,
    first: Option<Result<Changes, WatchError>>,
) -> Result<(), Failure> {
    let mut pending: Vec<Change> = Vec::new();
    let mut told = first;
    loop {
        let Changes { revision, events } = match told {
            Some(Ok(changes)) => changes,
            Some(Err(error)) => return Err(Failure::error(format!("--from: {error}"))),
            None => return Err(Failure::error("--from: the watch has ended")),
        };
        let changes = changes_of(&events);
        if !joins(&pending, &changes) {
            let before = Progress::Following { next: revision.get(), done: 0 };
            flush(carrier, &mut pending, before).await?;
        }
        let after = Progress::Following { next: revision.get() + 1, done: 0 };
        let (next, done) = carrier.next();
        let partly_carried = next == revision.get() && 0 < done;
        if joins(&pending, &changes) && !partly_carried {
            pending.extend(changes);
        } else {
            carry_in_pieces(carrier, revision.get(), &changes).await?;
        }
        match watch.next().now_or_never() {
            Some(next) => told = next,
            None => return flush(carrier, &mut pending, after).await,
        }
    }
}

async fn flush(carrier: &mut Carrier, pending: &mut Vec<Change>, progress: Progress) -> Result<(), Failure> {
    if carrier.next().0 < progress_next(&progress) {
        carrier.carry(pending, progress).await?;
    }
    pending.clear();
    Ok(())
}

fn progress_next(progress: &Progress) -> i64 {
    match progress {
        Progress::Following { next, .. } => *next,
        Progress::Copying { at, .. } => *at,
    }
}

/// A revision too large for one transaction, or one of which a part was carried before.
async fn carry_in_pieces(carrier: &mut Carrier, revision: i64, changes: &[Change]) -> Result<(), Failure> {
    let (next, done) = carrier.next();
    let mut done = if next == revision { done.min(changes.len()) } else { 0 };
    loop {
        let left = &changes[done..];
        let now = &left[..fitting(left)];
        done += now.len();
        if done == changes.len() {
            return carrier.carry(now, Progress::Following { next: revision + 1, done: 0 }).await;
        }
        carrier.carry(now, Progress::Following { next: revision, done }).await?;
    }
}
