//! The same random changes of membership on real etcd and on Meerkat; every answer must be equal.
//!
//! One seed decides all steps: everything a client can ask of the Cluster service and of MoveLeader,
//! good and bad, at leaders, followers and learners, while members are added, started, killed,
//! promoted and removed. `world` is what etcd has answered so far, `generator` draws the next step
//! from it, `side` is one cluster, `run` keeps both in step, `answer` hides ids and ports behind
//! numbers. Differences that the contract wants are in `allow_list`. A run also fails if some kind of
//! step or answer never came up.

pub mod allow_list;
pub mod answer;
pub mod coverage;
pub mod generator;
pub mod learner;
pub mod run;
pub mod side;
pub mod step;
pub mod world;

pub use run::{Plan, run};
