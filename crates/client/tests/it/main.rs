//! The client against real members.

mod examples;
mod informer_cluster;
mod informer_property;
mod watch;
mod watch_cluster;
mod watch_faults;
mod watch_many;
