//! The same random leases on real etcd and on Meerkat; every answer and every event must be equal.
//!
//! One seed decides all steps: everything a client can ask of the Lease service, and writes with,
//! without and about leases. `names` hides which ids a server picked itself, `side` is one cluster,
//! `run` keeps both in step, `expiry` lets short leases run out on both, `answer` judges. Remaining
//! times may differ by what a request takes, orders that the contract leaves open are not looked at;
//! all else is equal. A run also fails if some kind of step or answer never came up.
//!
//! There is no list of allowed differences: section D of the contract marks none that requests can
//! show (what late versions added concerns leadership and permissions).

pub mod answer;
pub mod coverage;
pub mod expiry;
pub mod generator;
pub mod leaderless;
pub mod names;
pub mod run;
pub mod side;
pub mod step;
pub mod world;

pub use run::{Plan, run};
