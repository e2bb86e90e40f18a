//! A client for Meerkat and for etcd v3: it finds a healthy member, repeats only what is safe to
//! repeat, and says of every failed write whether it happened.
//!
//! ```no_run
//! # async fn run() -> Result<(), meerkat_client::Error> {
//! use meerkat_client::{Client, Keys};
//!
//! let client = Client::connect(["127.0.0.1:2379", "127.0.0.1:2381"]).await?;
//! client.put("cfg/colour", "green").await?;
//! let page = client.get(Keys::prefix("cfg/")).limit(100).await?;
//! for kv in &page.kvs {
//!     println!("{:?} = {:?} at {}", kv.key, kv.value, kv.modified);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every request is a builder that one awaits. A failure is an [`Error`], and the first thing to
//! ask of it is its [`Fate`]: refused, not done, or unknown.

#![deny(missing_docs)]

pub mod auth;
mod balancer;
mod call;
mod client;
pub mod cluster;
mod config;
pub mod election;
mod error;
pub mod informer;
mod keys;
pub mod kv;
pub mod lease;
mod line;
#[cfg(feature = "listwatch")]
pub mod listwatch;
pub mod lock;
pub mod maintenance;
mod namespace;
mod retry;
pub mod session;
pub mod stm;
#[cfg(feature = "tls")]
pub mod tls;
pub mod txn;
pub mod watch;
pub mod work_queue;

pub use auth::Auth;
pub use client::Client;
pub use cluster::Cluster;
pub use config::{Config, SlowWatches};
pub use election::{Election, Leadership};
pub use error::{Error, ErrorKind, Fate};
pub use informer::Informer;
pub use keys::Keys;
pub use kv::{DeleteResponse, GetResponse, PutResponse, Sort, SortOrder, SortTarget};
pub use lease::{KeepAlive, Leases};
pub use lock::{Lock, LockError, LockGuard};
pub use maintenance::Maintenance;
pub use meerkat_proto::error_text::EtcdError;
pub use meerkat_types::{Event, EventKind, Key, KeyRange, KeyValue, LeaseId, MemberId, Revision};
pub use session::Session;
pub use stm::{Stm, StmError, StmTxn};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use txn::{Compare, Op, OpResult, TxnResponse};
pub use watch::{Changes, Watch, WatchBuilder, WatchError, WatchPhase, WatchResponse, WatchStatus};
pub use work_queue::WorkQueue;
