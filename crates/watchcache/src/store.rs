//! What the door needs of a store: keys with values and revisions, under one prefix.
//!
//! A member meets it with its own state, the stateless tier with a cluster far away, of Meerkat's or of
//! etcd's. It is the whole dialect: reads, one conditional write of one key, a watch, a lease. Whoever
//! implements it promises:
//!
//! * A revision is the cluster's: dense, growing, the same everywhere.
//! * `now` and a read without a revision cover every write that was acknowledged before the call.
//! * A watch tells every change of its prefix after a revision, all of one revision together, in order,
//!   none twice; or it ends with an error, and can be begun again after the last revision told.
//! * A watch says how far the store has come: soon if somebody waits for it, else every second or so.
//! * A store that cannot know whether it is behind ends its watches, rather than to be silent.
//! * If the revisions are not of the history that they were of before, [`Store::history`] says so before
//!   anything of the new one is told.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::watch;

/// The lowest revision that somebody waits for a watch to reach; 0 if nobody does.
pub type Awaited = watch::Receiver<u64>;

/// A key as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of the last write.
    pub modified: u64,
    /// 0 for none.
    pub lease: i64,
}

/// Some rows in the order of keys, all as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// What the rows are as of.
    pub revision: u64,
    /// There are more behind the last one.
    pub more: bool,
}

/// Which rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub prefix: Bytes,
    /// The first key to be read; keys before it are left out. Empty for the whole prefix.
    pub from: Bytes,
    /// At most so many rows.
    pub limit: usize,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A lease of 0 is none.
    Put {
        value: Bytes,
        lease: i64,
    },
    Delete,
}

/// One write of one key, done only if the key is as it is believed to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Bytes,
    /// The revision of its last write; 0 if it is not to be there.
    pub expected: u64,
    pub change: Change,
    pub by: By,
}

/// In whose name a write is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The door keeps house, and may do everything.
    Door,
    Somebody(Pass),
}

/// That somebody was let in. A store with users of its own does nothing in their name if its rules are
/// others by then, and says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// `None` for somebody who has no name.
    pub user: Option<String>,
    /// By which revision of users and roles; 0 where there are none, or nobody is asked.
    pub rules: u64,
}

/// What a write came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Done {
        revision: u64,
    },
    /// Nothing was done: the key is otherwise, as of `revision`.
    Otherwise {
        found: Option<Row>,
        revision: u64,
    },
}

/// What happened to one key in a revision. What it was before, whoever keeps the keys knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub key: Bytes,
    /// `None` for a deletion.
    pub after: Option<Row>,
}

/// All changes of one revision under a prefix; none if the store only says how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub revision: u64,
    pub changes: Vec<RowChange>,
}

/// Which line of revisions a store is on. One that was restored from a backup, or replaced by another,
/// begins a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Goes up with each new line.
    pub number: u64,
    /// The newest revision that was told of the lines before; 0 if there were none.
    pub lost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the history before revision {oldest} is compacted")]
    Compacted { oldest: u64 },
    #[error("revision {asked} is not reached yet")]
    Future { asked: u64 },
    #[error("the request is too large for the store")]
    TooLarge,
    #[error("the store has no space left")]
    NoSpace,
    /// Nothing was done: who may do what has changed since somebody was let in.
    #[error("users or roles have changed since the request was let in")]
    OtherRules,
    /// Nothing was done: the store does not let them.
    #[error("the store does not allow it: {0}")]
    Forbidden(String),
    /// Nothing was done, and nothing will be.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Nothing was done. The store is cut off from its cluster, or the cluster from its majority: others
    /// may be ahead of it, and it goes on where it was when it is back.
    #[error("the store is cut off: {0}")]
    CutOff(String),
    /// Nothing was done. What was learned before is of another history.
    #[error("the store has gone back in time, or is another one")]
    OtherHistory,
    /// A write that may or may not have happened.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
}

pub trait Store: Send + Sync + 'static {
    /// The revision of the newest write, or a later one.
    fn now(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// As of `revision`, or as of now.
    fn read(&self, span: Span, revision: Option<u64>) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// A key as of now, and the revision that this is as of.
    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<(Option<Row>, u64), StoreError>>;

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>>;

    /// Every change under the prefix after a revision, and how far the store has come.
    fn watch(
        &self,
        prefix: Bytes,
        after: u64,
        awaited: Awaited,
    ) -> BoxStream<'static, Result<Batch, StoreError>>;

    /// A member's own store never changes it.
    fn history(&self) -> History {
        History::default()
    }

    /// A lease that ends by itself.
    fn grant(&self, ttl_s: u64) -> BoxFuture<'_, Result<i64, StoreError>>;

    /// Gives a lease its whole time again, counted from after the call; false if it has ended. Makes no
    /// revision.
    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<bool, StoreError>>;
}
