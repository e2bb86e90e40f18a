//! Carrying changes over, each with the note that it was carried.

use std::time::Duration;

use bytes::Bytes;
use meerkat_client::{Client, Compare, Error, EtcdError, Fate, Keys, Op, Revision};
use tokio::time::Instant;

use super::batch::{Change, fitting};
use super::leases::CarriedLeases;
use super::progress::{PROGRESS_KEY, Progress};
use super::{count_at, revision_of};
use crate::failure::Failure;

/// Keys of the source read at once.
const PAGE_KEYS: u64 = 200;
/// How long the destination may be without an answer before the migration ends. It can be resumed.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

pub struct Carrier {
    pub from: Client,
    to: Client,
    pub leases: CarriedLeases,
    progress: Progress,
    /// What the destination has under the key of the progress.
    stored: Option<Bytes>,
    pub carried: u64,
}

impl Carrier {
    /// Takes up a migration that was begun before, or begins one.
    pub async fn begin(from: Client, to: Client) -> Result<Carrier, Failure> {
        let answer = to.get(PROGRESS_KEY.to_vec()).await.map_err(|error| failure("--to", &error))?;
        let stored = answer.first().map(|kv| kv.value.clone());
        let progress = match &stored {
            Some(bytes) => Progress::decode(bytes)
                .ok_or_else(|| Failure::error("the destination's note of progress cannot be read"))?,
            None => {
                let (_, keys) = count_at(&to, None).await?;
                if 0 < keys {
                    return Err(Failure::error(format!(
                        "the destination has {keys} keys already; it must be empty"
                    )));
                }
                Progress::Copying { at: revision_of(&from).await?, after: Bytes::new() }
            }
        };
        let mut leases = CarriedLeases::new(from.clone(), to.clone());
        if stored.is_some() {
            println!("going on from where an earlier migration was");
            leases.take_up().await?;
        }
        let mut carrier = Carrier { from, to, leases, progress, stored, carried: 0 };
        let leases = carrier.leases.refresh().await?;
        println!("{leases} leases are at the destination");
        Ok(carrier)
    }

    /// The first revision that is not wholly carried, and how many of its changes are.
    pub fn next(&self) -> (i64, usize) {
        match &self.progress {
            Progress::Copying { at, .. } => (*at, 0),
            Progress::Following { next, done } => (*next, *done),
        }
    }

    /// Copies the keys as they were at one revision, unless that was done before.
    pub async fn copy(&mut self) -> Result<(), Failure> {
        let Progress::Copying { at, mut after } = self.progress.clone() else { return Ok(()) };
        let (_, total) = count_at(&self.from, Some(at)).await?;
        loop {
            let keys = if after.is_empty() { Keys::all() } else { Keys::from([&after, &b"\0"[..]].concat()) };
            let page = self.from.get(keys).revision(Revision::new(at)).limit(PAGE_KEYS).await;
            let page = page.map_err(|error| lost_source(&error, at))?;
            let changes: Vec<Change> =
                page.kvs.iter().filter(|kv| kv.key != PROGRESS_KEY).map(Change::put).collect();
            let mut left = changes.as_slice();
            while !left.is_empty() {
                let (now, later) = left.split_at(fitting(left));
                if let Some(last) = now.last() {
                    after = last.key.clone();
                }
                self.carry(now, Progress::Copying { at, after: after.clone() }).await?;
                left = later;
            }
            println!("copied {} of {total} keys at revision {at}", self.carried);
            if !page.more {
                break;
            }
        }
        self.carry(&[], Progress::Following { next: at + 1, done: 0 }).await
    }

    /// Carries changes and notes the progress, both or neither.
    pub async fn carry(&mut self, changes: &[Change], progress: Progress) -> Result<(), Failure> {
        let note = progress.encode();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ops = self.ops(changes, &note).await?;
            let guard = match &self.stored {
                Some(stored) => Compare::key(PROGRESS_KEY.to_vec()).value().equals(stored.clone()),
                None => Compare::key(PROGRESS_KEY.to_vec()).missing(),
            };
            match self.to.txn().when([guard]).then(ops).await {
                Ok(done) if done.succeeded => break,
                // An attempt of ours whose answer was lost, or somebody else.
                Ok(_) if self.noted().await? == Some(note.clone()) => break,
                Ok(_) => {
                    return Err(Failure::error(
                        "another migration carries to this destination; end one of the two",
                    ));
                }
                Err(error) if error.etcd() == Some(EtcdError::LeaseNotFound) => {
                    self.leases.forget(changes.iter().filter_map(|change| change.put.as_ref()?.1));
                }
                Err(error) if error.fate() == Fate::Refused || deadline < Instant::now() => {
                    return Err(failure("--to", &error));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        self.stored = Some(note);
        self.progress = progress;
        self.carried += changes.len() as u64;
        Ok(())
    }

    async fn ops(&mut self, changes: &[Change], note: &Bytes) -> Result<Vec<Op>, Failure> {
        let mut ops = vec![Op::put(PROGRESS_KEY.to_vec(), note.clone())];
        for change in changes {
            let key = change.key.clone();
            ops.push(match &change.put {
                None => Op::delete(Keys::one(key)),
                // A lease that is gone took its keys along: their deletion is still to come.
                Some((value, Some(lease))) if self.leases.ensure(*lease).await? => {
                    Op::put_with_lease(key, value.clone(), *lease)
                }
                Some((value, _)) => Op::put(key, value.clone()),
            });
        }
        Ok(ops)
    }

    async fn noted(&self) -> Result<Option<Bytes>, Failure> {
        let answer = self.to.get(PROGRESS_KEY.to_vec()).await.map_err(|error| failure("--to", &error))?;
        Ok(answer.first().map(|kv| kv.value.clone()))
    }

    /// Compares how many keys there are at both ends; gives their number.
    pub async fn verify(&self, at: i64) -> Result<u64, Failure> {
        let (_, source) = count_at(&self.from, Some(at)).await?;
        let (_, destination) = count_at(&self.to, None).await?;
        // One is the note of progress.
        if source + 1 == destination {
            return Ok(source);
        }
        Err(Failure::error(format!(
            "the source has {source} keys at revision {at} and the destination {}: was it written to by others?",
            destination.saturating_sub(1)
        )))
    }

    /// Takes the note of progress away: the migration is over.
    pub async fn finish(self) -> Result<(), Failure> {
        self.to.delete(PROGRESS_KEY.to_vec()).await.map_err(|error| failure("--to", &error))?;
        Ok(())
    }
}

fn failure(flag: &str, error: &Error) -> Failure {
    Failure::error(format!("{flag}: {error}"))
}

fn lost_source(error: &Error, at: i64) -> Failure {
    if error.etcd() == Some(EtcdError::Compacted) {
        return Failure::error(format!(
            "the source has compacted revision {at} while it was copied: let it compact less, empty the destination and begin again"
        ));
    }
    failure("--from", error)
}
