//! The second door: Kubernetes-style lists and watches over the same store and the same revisions.
//!
//! Here are the rooms that decide. They are pure: no clock, no socket, no task.
//!
//! ```text
//!  request_path, query, negotiation ──► list_plan, watch_plan      what is asked for
//!  registry, crd, published, discovery, openapi                    which kinds there are
//!  object, patch, schema, values, write_rules, scale               what a write may change
//!  cacher                                                          who sees which objects and events
//!  table, metadata_form, protobuf                                  in which form
//!  store                                                           what all of it needs of the store
//! ```
//!
//! A Kubernetes client must not notice the difference, so each room names the rules it keeps, and none
//! makes an answer of its own to a refused request: that is [`status`]'s.

mod accept;
pub mod cacher;
pub mod continue_token;
pub mod crd;
pub mod discovery;
pub mod door;
mod excerpt;
pub mod feed;
pub mod fingerprint;
pub mod json_path;
pub mod keep_running;
pub mod keeper;
pub mod key;
pub mod list_options;
pub mod list_plan;
pub mod memory_store;
pub mod metadata_form;
pub mod names;
pub mod negotiation;
pub mod object;
pub mod openapi;
pub mod patch;
mod percent;
pub mod protobuf;
pub mod published;
pub mod query;
pub mod registry;
pub mod request_path;
pub mod resource_version;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod status;
pub mod storage;
pub mod store;
pub mod stored_form;
pub mod table;
pub mod timestamp;
mod values;
pub mod version;
pub mod watch_plan;
pub mod write_options;
pub mod write_rules;
