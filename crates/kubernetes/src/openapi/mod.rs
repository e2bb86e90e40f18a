//! What kinds are made of and how they are spoken to, as OpenAPI tells it: enough for kubectl to validate, to
//! explain and to make patches.
//!
//! Built-in kinds are told of by the tables in [`published`](crate::published), to their last field and with
//! what a strategic patch does with their lists. Custom ones have the schema of their definition.

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
