//! The client against real servers, each test on etcd 3.5 and on Meerkat alike, and against a fake
//! one that answers what no real server would.
//!
//! Programs are found as `server.rs` says; one that is missing fails the test that needs it.

mod auth;
mod election;
mod etcdctl;
mod examples;
mod failover;
mod fake;
mod fates;
mod garbled;
mod heap;
mod informer_cluster;
mod informer_property;
mod kv;
mod lease;
mod lock;
mod members;
mod namespace;
#[cfg(feature = "listwatch")]
mod objects;
#[cfg(feature = "listwatch")]
mod objects_fake;
mod patience;
mod server;
mod session;
mod stalls;
mod stm;
#[cfg(feature = "tls")]
mod tls;
mod txn;
mod watch;
mod watch_auth;
mod watch_cluster;
mod watch_faults;
mod watch_many;
