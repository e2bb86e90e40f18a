//! Leases: which there are, and which keys hang on each.
//!
//! ```text
//! key of a live head row with lease L  <->  row (L, key) in `leases`
//! row (L, key) in `leases`              ->  row L in `leases`
//! ```
//!
//! Both hold after every entry. That a lease ends is agreed here; when it does is decided by the
//! leader, whose clock this room never sees.

mod row;
mod table;

pub(crate) use row::{attach, attached, detach, read, read_all};
pub(crate) use table::LeaseTable;
