//! The checked door between the wire and `types`.
//!
//! On the way in, a message is taken whole and becomes a valid value or a [`BadRequest`]; what is
//! refused, and in which order the reasons are looked for, is what an etcd client would see. On the
//! way out nothing can fail.
//!
//! Never read a request's fields past this door.

pub mod answer;
pub mod auth;
mod bad_request;
pub mod kv;
mod overlap;
pub mod txn;
pub mod watch;

pub use bad_request::BadRequest;
