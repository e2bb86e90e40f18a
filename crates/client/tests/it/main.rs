//! The client against real members.

mod watch;
mod watch_cluster;
mod watch_faults;
mod watch_many;
