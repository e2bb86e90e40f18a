//! Transactions written as plain code: read, decide, write, and it happens as if alone in the world.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), meerkat_client::stm::StmError> {
//! let moved = client
//!     .transact(|tx| {
//!         Box::pin(async move {
//!             let here = tx.get("stock/here").await?.unwrap_or_default();
//!             tx.put("stock/there", here.clone());
//!             tx.delete("stock/here");
//!             Ok(here)
//!         })
//!     })
//!     .await?;
//! println!("moved {:?} at revision {}", moved.value, moved.revision);
//! # Ok(())
//! # }
//! ```
//!
//! What is always true:
//! * All reads of one run of the body see one revision, that of the first read. The body never sees
//!   half of somebody else's transaction, not even in a run that is thrown away later.
//! * Writes wait in memory, and the body reads its own. They are sent at the end, in one transaction
//!   with a guard that holds only if everything that was read is still so: see `reads` for why that
//!   includes keys that were read as missing, and keys that were not there when a range was read.
//! * So what commits is serializable, and in the order of revisions: it is as if the whole body had run
//!   at the revision of its commit. A body that writes nothing commits nothing, and is serializable as
//!   of the revision it read.
//! * A body whose guard fails is run again, on fresh reads, after a pause that grows and is drawn at
//!   random. After [`Stm::attempts`] runs the answer is [`StmError::Conflict`].
//!
//! The body may run many times: it must not do anything that cannot be thrown away.
//!
//! If the commit's answer is lost, the error's fate is [`Fate::Unknown`], unless there is a
//! [`Stm::witness`].

mod reads;
mod witness;
mod writes;

use crate::balancer::picker::fraction;
use crate::{Client, Error, EtcdError, Fate, Keys, LeaseId, Op, OpResult, Revision, TxnResponse};
use bytes::Bytes;
use futures::future::BoxFuture;
use reads::Reads;
use std::time::Duration;
use witness::{Settled, Witness};
use writes::{Write, Writes};

/// How often a body is run before it is given up, unless said otherwise.
const ATTEMPTS: u32 = 64;
/// The pause after the first conflict is below this; the bound doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(4);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the body returned.
    pub value: T,
    /// The revision of its writes. If it wrote nothing, the revision it read; if it read nothing
    /// either, zero.
    pub revision: Revision,
    /// How often the body was run.
    pub attempts: u32,
}

/// Why a transaction did not commit, or is not known to have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StmError {
    /// Others were faster, each time. Nothing was written.
    #[error(
        "given up after {attempts} runs, each overtaken by another writer: nothing was written, try later"
    )]
    Conflict {
        /// How often the body was run.
        attempts: u32,
    },
    /// A request failed. If it was the commit, its fate may be unknown.
    #[error(transparent)]
    Client(#[from] Error),
    /// The body said no. Nothing was written.
    #[error("the transaction was called off: {0}")]
    Aborted(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StmError {
    /// For a body that wants to call its transaction off.
    pub fn abort(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StmError {
        StmError::Aborted(reason.into())
    }

    /// What became of the transaction's writes.
    pub fn fate(&self) -> Fate {
        match self {
            StmError::Conflict { .. } => Fate::NotDone,
            StmError::Client(error) => error.fate(),
            StmError::Aborted(_) => Fate::Refused,
        }
    }
}

impl Client {
    /// Runs a body as one serializable transaction, again and again until nobody interferes. See
    /// [`crate::stm`]; for settings see [`Stm`].
    ///
    /// # Errors
    /// [`StmError`]: the body called it off, a request failed, or there were too many conflicts.
    pub async fn transact<T, F>(&self, body: F) -> Result<Committed<T>, StmError>
    where
        F: for<'t> FnMut(&'t mut StmTxn) -> BoxFuture<'t, Result<T, StmError>>,
    {
        Stm::new(self).run(body).await
    }
}

/// How to run transactions.
#[derive(Clone, Debug)]
pub struct Stm {
    client: Client,
    attempts: u32,
    witness: Option<Bytes>,
}

impl Stm {
    /// With the settings of [`Client::transact`].
    pub fn new(client: &Client) -> Stm {
        Stm { client: client.clone(), attempts: ATTEMPTS, witness: None }
    }

    /// How often the body may be run, at least once. 64 unless set.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Stm {
        self.attempts = attempts.max(1);
        self
    }

    /// Makes the outcome of a commit decidable even if its answer is lost.
    ///
    /// Each commit then also writes a name drawn at random into this key, guarded by the key's last
    /// revision. When the answer to a commit is lost, this library overwrites the key under the same
    /// guard. If that works, the commit has not happened and never will, and the body is run again; if
    /// the key is found to hold the commit's name, it has happened.
    ///
    /// It costs a read per transaction and a write per commit. The key must be used by one task at a
    /// time: one key for each worker, say. Two that share one conflict with each other, and may hear
    /// [`Fate::Unknown`] after all.
    #[must_use]
    pub fn witness(mut self, key: impl Into<Bytes>) -> Stm {
        self.witness = Some(key.into());
        self
    }

    /// Runs a body as one transaction.
    ///
    /// # Errors
    /// As [`Client::transact`].
    pub async fn run<T, F>(&self, mut body: F) -> Result<Committed<T>, StmError>
    where
        F: for<'t> FnMut(&'t mut StmTxn) -> BoxFuture<'t, Result<T, StmError>>,
    {
        let mut witness = match &self.witness {
            Some(key) => Some(Witness::find(&self.client, key.clone()).await?),
            None => None,
        };
        for attempt in 1..=self.attempts {
            let mut tx = StmTxn::new(&self.client);
            let answer = body(&mut tx).await;
            // What was read is gone from history: whatever the body made of that error, run it again.
            if !tx.stale {
                let value = answer?;
                if let Some(revision) = tx.commit(witness.as_mut()).await? {
                    return Ok(Committed { value, revision, attempts: attempt });
                }
            }
            if attempt < self.attempts {
                tokio::time::sleep(fraction(pause_bound(attempt), rand::random())).await;
            }
        }
        Err(StmError::Conflict { attempts: self.attempts })
    }
}

/// What a body reads and writes through.
#[derive(Debug)]
pub struct StmTxn {
    client: Client,
    reads: Reads,
    writes: Writes,
    /// The revision that is being read was compacted.
    stale: bool,
    /// The first read that failed. Nothing guards it, so there is no commit after it.
    failed: Option<Error>,
}

impl StmTxn {
    fn new(client: &Client) -> StmTxn {
        let (reads, writes) = (Reads::default(), Writes::default());
        StmTxn { client: client.clone(), reads, writes, stale: false, failed: None }
    }

    /// The value of a key, or `None` if it does not exist.
    ///
    /// # Errors
    /// If the read fails. Hand it on: if running the body again helps, that is done. A body that goes
    /// on all the same fails with this error at its end, and writes nothing.
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, StmError> {
        let key = key.into();
        if let Some(written) = self.writes.of(&key) {
            return Ok(written);
        }
        if let Some(known) = self.reads.known(&key) {
            return Ok(known.map(|kv| kv.value.clone()));
        }
        let got = self.read(Keys::one(key.clone())).await?;
        let found = got.into_iter().next();
        let value = found.as_ref().map(|kv| kv.value.clone());
        self.reads.note_key(key, found);
        Ok(value)
    }

    /// All keys of a range with their values, in key order.
    ///
    /// Each key found needs a comparison of its own when the transaction commits, and a server takes
    /// 128 of them unless configured otherwise: ranges of more than about a hundred keys are refused at
    /// the commit, with [`EtcdError::TooManyOps`].
    ///
    /// # Errors
    /// As [`StmTxn::get`].
    pub async fn range(&mut self, keys: impl Into<Keys>) -> Result<Vec<(Bytes, Bytes)>, StmError> {
        let keys = keys.into();
        let range = keys.range().map_err(|error| self.failed(error))?.clone();
        let found = self.read(keys).await?;
        let seen = self.writes.overlay(&range, &found);
        self.reads.note_range(range, found);
        Ok(seen)
    }

    /// Writes a key, without a lease.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.writes.set(key.into(), Write::Put { value: value.into(), lease: None });
    }

    /// Writes a key that goes away with this lease.
    pub fn put_with_lease(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) {
        self.writes.set(key.into(), Write::Put { value: value.into(), lease: Some(lease) });
    }

    /// Deletes a key, if it exists.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.writes.set(key.into(), Write::Delete);
    }

    /// The revision that this run reads; `None` before the first read.
    pub fn revision(&self) -> Option<Revision> {
        self.reads.at()
    }

    async fn read(&mut self, keys: Keys) -> Result<Vec<crate::KeyValue>, StmError> {
        let mut get = self.client.get(keys);
        if let Some(at) = self.reads.at() {
            get = get.revision(at);
        }
        match get.await {
            Ok(got) => {
                self.reads.begin(got.revision);
                Ok(got.kvs)
            }
            Err(error) => {
                self.stale |= error.etcd() == Some(EtcdError::Compacted);
                Err(self.failed(error).into())
            }
        }
    }

    /// Notes a failed read.
    fn failed(&mut self, error: Error) -> Error {
        self.failed.get_or_insert_with(|| error.clone());
        error
    }

    /// The revision of the commit; `None` if someone interfered.
    async fn commit(self, witness: Option<&mut Witness>) -> Result<Option<Revision>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.writes.is_empty() {
            return Ok(Some(self.reads.at().unwrap_or(Revision::new(0))));
        }
        let txn = self.client.txn().when(self.reads.compares()).then(self.writes.ops());
        let Some(witness) = witness else {
            let done = txn.await?;
            return Ok(done.succeeded.then_some(done.revision));
        };
        let name = witness::draw();
        let txn = txn.when([witness.guard()]).then([witness.sign(&name)]).otherwise([Op::get(witness.key())]);
        match txn.await {
            Ok(done) if done.succeeded => {
                witness.at = done.revision;
                Ok(Some(done.revision))
            }
            Ok(done) => {
                witness.moved_to(found(&done));
                Ok(None)
            }
            Err(error) if error.fate() == Fate::Unknown => match witness.settle(&self.client, &name).await {
                Settled::Done(revision) => Ok(Some(revision)),
                Settled::NotDone => Ok(None),
                Settled::Undecided => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// The key-value that the only read of a transaction found.
fn found(done: &TxnResponse) -> Option<&crate::KeyValue> {
    done.results.first().and_then(OpResult::get).and_then(|got| got.first())
}

/// The longest pause after this many conflicts.
fn pause_bound(conflicts: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << conflicts.saturating_sub(1).min(10)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let bounds: Vec<u128> =
            [1, 2, 3, 7, 8, 9, u32::MAX].iter().map(|n| pause_bound(*n).as_millis()).collect();
        assert_eq!(bounds, [4, 8, 16, 256, 500, 500, 500]);
    }

    #[tokio::test]
    async fn a_body_that_passes_over_a_failed_read_writes_nothing() {
        let config = crate::Config::new(["http://127.0.0.1:1"]).lazy();
        let client = Client::connect_with(config).await.expect("a lazy client");
        let mut tx = StmTxn::new(&client);
        assert!(tx.range(Keys::one("")).await.is_err(), "there is no empty key");
        tx.put("k", "decided without what was to be read");
        let error = tx.commit(None).await.expect_err("an unguarded read");
        assert_eq!((error.fate(), error.etcd()), (Fate::Refused, Some(EtcdError::EmptyKey)));
    }

    #[test]
    fn errors_say_what_became_of_the_writes() {
        assert_eq!(StmError::Conflict { attempts: 3 }.fate(), Fate::NotDone);
        assert_eq!(StmError::abort("too poor").fate(), Fate::Refused);
        assert_eq!(StmError::abort("too poor").to_string(), "the transaction was called off: too poor");
    }
}
