//! The same random life with users and roles on real etcd and on Meerkat; every answer must be equal.
//!
//! One seed decides all steps: everything the Auth service takes, and reads, writes, transactions,
//! leases and watches by users with many rights, few and none, with tokens that stand, stale ones and
//! none at all. `step` is what is asked and by whom, `side` one cluster with the tokens it gave out,
//! `run` keeps both in step and judges.
//!
//! Some differences of late releases would let the two stores part, so no step asks for them: tokens while
//! authentication is off, a permission of no keys, compactions and leases by nobody, and previous
//! values and leases inside a transaction.

pub mod run;
pub mod side;
pub mod step;

pub use run::{Plan, run};
