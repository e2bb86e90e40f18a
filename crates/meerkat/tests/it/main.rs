//! The binary from the outside: run as a user runs it, judged by what it prints and how it exits.

mod bench;
mod bench_watch;
mod demo;
mod dev;
mod etcd;
mod process;
mod same_as_etcdctl;
mod serve;
mod times;
mod watch;
mod watch_beyond;
