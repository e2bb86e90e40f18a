//! The member process: the etcd API over everything below it.
//!
//! [`run`] is the whole life of a member: open the disk, join the cluster, serve until told to
//! stop, and take everything apart in the reverse order. It returns an error only when the member
//! cannot go on; the process should then end with a non-zero code.

mod announce;
mod around;
mod auth;
mod authority;
mod auto_compaction;
mod client_port;
pub mod config;
mod contained;
mod corked;
mod corruption;
mod descriptors;
mod gateway;
mod grpc;
mod http;
mod lease;
mod listen;
pub mod local_store;
mod member;
mod memory;
mod methods;
mod metrics;
mod node;
mod open_files;
mod pieces;
mod publish;
mod punctual;
pub mod restore;
mod saved_rules;
mod slow;
mod space;
mod spans;
pub mod tls;
mod upkeep;
mod version;
mod watch_source;

pub use announce::tell_manager;
pub use config::Config;
pub use corruption::CorruptionChecks;
pub use listen::{ListenError, Listener, Port, Ports, Socket, bind_client};
pub use local_store::LocalStore;
pub use node::{Door, Finder, RunError, Stopping, run, run_on, run_with, run_with_keys};
pub use open_files::raise_limit;
pub use version::{API_VERSION, SERVER_VERSION};

/// Arms the fault points that tests name in the environment. Call once, before [`run`].
pub fn arm_fault_points() -> Result<(), String> {
    meerkat_fault::arm_from_environment()
}
