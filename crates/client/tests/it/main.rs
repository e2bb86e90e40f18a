//! The client against real members.

mod heap;
mod watch;
mod watch_auth;
mod watch_cluster;
mod watch_faults;
mod watch_many;
