//! Agreement: openraft, given a log, a state machine, a network and snapshots.

pub mod type_config;
