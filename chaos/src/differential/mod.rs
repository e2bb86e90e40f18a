//! The same random steps to real etcd and to Meerkat, one at a time; every answer must be equal.
//!
//! `engine` is the run of all comparisons; each part of the API brings its steps, its generator and its
//! way to judge: `kv`, `watch`, `lease`, `auth`, `cluster`. One seed decides all steps, given what etcd
//! has answered so far. The few differences that the contract marks as newer than the etcd compared with
//! are in allow lists, with the contract's row. A run also fails if some kind of step or answer never
//! came up (`coverage`).

pub mod allow_list;
pub mod auth;
pub mod cluster;
pub mod compare;
pub mod coverage;
pub mod engine;
pub mod keys;
pub mod kv;
pub mod lease;
pub mod members;
pub mod request;
pub mod watch;

pub use kv::{Plan, run};
