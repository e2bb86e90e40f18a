//! The same random requests to real etcd and to Meerkat, one at a time; every answer must be equal.
//!
//! One seed decides all requests, given the revisions that the answers show, which are themselves
//! part of what is compared. Ids, terms and hashes differ by nature and are not looked at; the few
//! differences that the contract marks as newer than the etcd compared with are in `allow_list`,
//! with the contract's row. A run also fails if some kind of request or error never came up.

pub mod allow_list;
pub mod auth;
pub mod cluster;
pub mod compare;
pub mod coverage;
pub mod generator;
pub mod keys;
pub mod lease;
pub mod request;
pub mod run;
pub mod watch;

pub use run::{Plan, Report, run};
