//! The second door: the HTTP API of Kubernetes over the same store and the same revisions.
//!
//! ```text
//!  door             requests and answers: limits, users, lists, watches, writes
//!  storage          reads and writes of objects: a rule, a swap, another try
//!  write_options,
//!  write_rules      what a request may write
//!  keeper           namespaces that empty, dependents that go with their owners, definitions
//! ```
//!
//! Kinds and objects are those of `meerkat_kubernetes`, the watch cache is that of `meerkat_watchcache`.
//! A Kubernetes client must not notice the difference, so each part names the rules it keeps, and none makes an
//! answer of its own to a refused request: that is `status`'s.

pub mod door;
mod keeper;
mod storage;
mod write_options;
mod write_rules;
