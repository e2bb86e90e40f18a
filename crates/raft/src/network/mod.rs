//! The peer network: what openraft wants said, said over gRPC.
//!
//! `wire` translates, `link` connects and signs each call, `conversation` keeps a stream open for
//! small questions and `heartbeats` one for those, `client` speaks for this member,
//! `service` listens for it. Append streams, heartbeats with votes, and snapshots use connections
//! of their own, so that bulk never delays a heartbeat.

pub(crate) mod client;
pub(crate) mod conversation;
pub(crate) mod heartbeats;
pub(crate) mod link;
pub(crate) mod service;
pub(crate) mod wire;
