//! The disk: RocksDB behind a small synchronous face.
//!
//! For: keeping the replicated state, which is large, and which the log can rebuild from any older
//! point. RocksDB's own write-ahead log is off, so nothing is synced twice.
//!
//! Always true:
//! * A [`Batch`] is all or nothing, across every [`Column`], in memory and on disk.
//! * What is on disk is a prefix of what was written: a flush takes all columns at one point.
//! * A [`View`] never changes, and outlives anything done to the [`Db`] it came from.
//! * After one failed write or flush every later write fails: see [`EngineError::Poisoned`].
//!
//! A caller must never treat a returned [`Db::write`] as durable; only [`Db::flush`],
//! [`Db::checkpoint`] and what [`Db::persisted_get`] finds are.
//!
//! No other crate names `rocksdb`.

mod batch;
mod checkpoint;
mod column;
mod cursor;
mod db;
mod either;
mod error;
mod measure;
pub mod memory;
mod options;
mod poison;
mod view;

pub use column::Column;
pub use either::{Batch, Cursor, Db, PinnedRow, View};
pub use error::EngineError;
pub use measure::{MemoryUsage, Size, Stats};
pub use options::DbOptions;
