//! The versions this member reports.
//!
//! Clients switch features on them, so they name the etcd release whose behaviour is matched, not
//! a release of this project.

pub const SERVER_VERSION: &str = "3.6.14";
pub const CLUSTER_VERSION: &str = "3.6.0";
/// The cluster's version as metrics and tools name it.
pub const API_VERSION: &str = "3.6";
pub const STORAGE_VERSION: &str = "3.6.0";
