//! The disk: RocksDB behind a small synchronous face.

pub mod fault;
