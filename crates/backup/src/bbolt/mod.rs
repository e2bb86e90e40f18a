//! bbolt's file format, version 2: a copy-on-write B+ tree of buckets, as it is at rest.
//!
//! ```text
//! page 0, 1   meta: where the root bucket and the free list are; the newer valid one counts
//! page 2..    leaf pages (rows), branch pages (first key -> page), a free list
//! ```
//!
//! All pages have one size; a row too large for one makes its page run over into those behind it.
//! The values of the root bucket's rows are buckets: the number of their own root page, or, with 0
//! there, a small leaf page inside the value.
//!
//! Written in one pass and never changed: there is one transaction in a file of ours, and nothing is
//! free in it.

mod layout;
mod page;
mod reader;
mod tree;
mod writer;

pub use reader::{Bolt, BoltError, Bucket, KeyAndValue, Rows, Source};
pub use writer::{BoltWriter, BucketWriter};
