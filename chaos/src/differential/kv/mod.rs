//! The KV service: random requests to one etcd and to a cluster whose members take turns.
//!
//! One seed decides all requests, given the revisions that the answers show, which are themselves
//! part of what is compared. Ids, terms and hashes differ by nature and are not looked at.

pub mod allow_list;
pub mod coverage;
pub mod generator;
pub mod run;

pub use run::{Plan, run};
