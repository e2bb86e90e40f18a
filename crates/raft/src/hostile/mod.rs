//! Bytes that no member of this release wrote: what the log's entries, the peers' messages and a snapshot's
//! chunks are read from, mutated. Readers refuse or understand; they never panic.
//!
//! `crates/raft/corpus` has the inputs that were of interest once. They are read first, in every run.

mod peers;
mod proposals;
mod snapshots;
