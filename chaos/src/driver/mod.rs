//! Starts, kills, pauses and restarts members as real processes on loopback.
//!
//! A `Cluster` owns everything it starts: its ports, its directory and its children, all of which
//! go when it is dropped, except that the directory stays, and is named, unless the run said that
//! it succeeded. Never signal a process through anything but its own `Process`.

pub mod black_hole;
pub mod cluster;
pub mod compose;
pub mod crossing;
pub mod dialer;
pub mod docker;
pub mod firewall;
pub mod growth;
pub mod interpose;
pub mod local;
pub mod member;
pub mod netns;
pub mod open_files;
pub mod power_loss;
pub mod process;
pub mod small_disk;
pub mod usage;

pub use crate::ground::Product;
pub use black_hole::{Door, Flow};
pub use cluster::{Cluster, ClusterSpec};
pub use growth::{Joined, Role};
pub use local::LocalGround;
pub use member::Member;
