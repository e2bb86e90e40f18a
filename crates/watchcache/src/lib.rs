//! The watch cache: the objects of a kind in memory, and who is told of which change.
//!
//! ```text
//!  request_path, list_options, selector     what a list or a watch asks for
//!  list_plan, watch_plan                    from where it is answered: memory, the store, or a refusal
//!  cacher                                   objects, indexes, the ring of events, watchers that wait
//!  feed                                     the tasks that fill a cache from the store and serve watchers
//!  store                                    what the door needs of a store: a member's, or a cluster's far away
//! ```
//!
//! `cacher` and the plans are pure; `feed` is their shell.

pub mod cacher;
pub mod continue_token;
pub mod feed;
pub mod keep_running;
pub mod key;
pub mod list_options;
pub mod list_plan;
pub mod memory_store;
pub mod request_path;
mod resource_version;
pub mod selector;
pub mod store;
pub mod watch_plan;
