//! The same random watches on real etcd and on Meerkat; every watcher must hear the same.
//!
//! One seed decides all steps: writes, compactions, and everything a client can do with a watch
//! stream. `wire` carries a stream, `transcript` sorts what it said, `world` knows what was asked,
//! `run` keeps both clusters in step and waits, `compare` judges. Batching is each server's own
//! affair; that a revision is never split, and that order and marks hold, is judged on both without
//! the other. The few differences that are wanted are in `allow_list`. A run also fails if some kind
//! of step or reply never came up.

pub mod allow_list;
pub mod compare;
pub mod coverage;
pub mod fragment;
pub mod generator;
pub mod late;
pub mod leaderless;
pub mod run;
pub mod side;
pub mod step;
pub mod transcript;
pub mod wire;
pub mod world;

pub use run::{Plan, run};
