//! The binary from the outside: run as a user runs it, judged by what it prints and how it exits.

mod authority;
mod bench;
mod bench_lease;
mod bench_watch;
mod certificate_users;
mod demo;
mod dev;
mod disaster;
mod drop_in;
mod etcd;
mod etcdctl_parity;
mod lease;
mod member;
mod migrate;
mod process;
mod same_as_etcdctl;
mod serve;
mod snapshot;
mod snapshot_rules;
mod times;
mod tls;
mod tracing;
mod watch;
mod watch_beyond;
