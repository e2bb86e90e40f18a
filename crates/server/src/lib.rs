//! The member process: the etcd API over everything below it.
//!
//! [`run`] is the whole life of a member: open the disk, join the cluster, serve until told to
//! stop, and take everything apart in the reverse order. It returns an error only when the member
//! cannot go on; the process should then end with a non-zero code.

mod client_port;
pub mod config;
mod grpc;
mod http;
mod lease;
mod listen;
mod metrics;
mod node;
mod publish;
mod version;
mod watch_source;

pub use config::Config;
pub use listen::{Listener, Ports};
pub use node::{RunError, run, run_on};
pub use version::{CLUSTER_VERSION, SERVER_VERSION};

/// Arms the fault points that tests name in the environment. Call once, before [`run`].
pub fn arm_fault_points() -> Result<(), String> {
    meerkat_engine::fault::arm_from_environment()
}
