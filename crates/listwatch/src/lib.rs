//! The second door: Kubernetes-style lists and watches over the same store and the same revisions.
//!
//! Here are the rooms that decide: what a request asks for, what a write may change, which objects and
//! events a client is to see, which kinds there are. They are pure: no clock, no socket, no task. A
//! Kubernetes client must not notice the difference, so each room names the rules it keeps, and none
//! makes an answer of its own to a refused request: that is [`status`]'s.

mod accept;
pub mod continue_token;
mod excerpt;
pub mod list_options;
pub mod list_plan;
pub mod negotiation;
mod percent;
pub mod query;
pub mod request_path;
pub mod resource_version;
pub mod selector;
pub mod status;
pub mod store;
pub mod watch_plan;
pub mod write_options;
