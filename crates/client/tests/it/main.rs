//! The client from outside.

mod informer_property;
