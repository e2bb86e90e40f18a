//! Kubernetes' kinds and objects: what they are made of, and what a write may change.
//!
//! Every rule here is a synchronous function of its arguments: no clock, no chance, no task, no socket.
//!
//! ```text
//!  registry, crd, published, discovery, openapi     which kinds there are, and their fields
//!  object, patch, schema, values, scale             what an object is, and what a write may make of it
//!  negotiation, table, metadata_form, protobuf      in which form an object is shown
//!  status                                           what a refused request is answered
//! ```

mod accept;
pub mod crd;
pub mod discovery;
pub mod excerpt;
pub mod fingerprint;
pub mod json_path;
pub mod metadata_form;
pub mod names;
pub mod negotiation;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod percent;
pub mod protobuf;
pub mod published;
pub mod query;
pub mod registry;
pub mod scale;
pub mod schema;
pub mod status;
pub mod stored_form;
pub mod table;
pub mod timestamp;
pub mod values;
pub mod version;
