//! What kinds are made of and how they are spoken to, as OpenAPI tells it: enough for kubectl to validate, to
//! explain and to make patches.
//!
//! Three sorts of kinds are told of differently. Those with a table in `protobuf` have a full schema.
//! Custom ones have the schema of their definition. All others are opaque: their metadata is known and the
//! rest is free.
//!
//! kubectl makes strategic patches of a built-in kind by the published schema if it finds one, and by its
//! own knowledge if not. For an opaque kind its own knowledge is better: by a schema that knows no list it
//! would replace lists that are to be merged. So an opaque kind offers no strategic patch here, though the
//! door takes them, and version 2, where older clients look for nothing but the schema, does not name its
//! kind.

pub mod gnostic;
mod operation;
mod schema;
pub mod v2;
pub mod v3;

use serde_json::{Value, json};

/// The two forms differ in where they keep things more than in what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

fn info() -> Value {
    json!({ "title": "Meerkat", "version": crate::version::git_version() })
}
