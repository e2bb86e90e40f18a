//! What applications meet when members fail: clients with watches and writes, and the faults.
//!
//! Here alone a client library is put between the test and the members, because it is what is
//! tested; who judges it (`checker`, the pace, the archive) still speaks through the raw stubs.
//!
//! Reading order: `schedule` says what is broken when, purely; `stage` is the cluster with a door at
//! every connection that can be broken, and breaks it; `pace` writes all the while, beside the doors;
//! `watcher` records a watch of the library, `rival` one of the `etcd-client` crate; `resume` and
//! `tally` are the sums, purely; `fate` writes through the library and holds it to its word.

pub mod fate;
pub mod pace;
pub mod resume;
#[cfg(feature = "etcd-client")]
pub mod rival;
pub mod schedule;
pub mod stage;
pub mod tally;
pub mod watcher;

pub use schedule::{Aim, Fault, Kind};
pub use stage::{Stage, Strike};
