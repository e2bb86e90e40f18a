//! A backup file: an etcd snapshot, which is a bbolt database and its SHA-256.
//!
//! For: writing what a member holds so that etcd's own tools read it, and reading what they or a
//! member wrote. Two rooms: [`bbolt`] knows pages and buckets, [`snapshot`] knows what etcd keeps in
//! which bucket.
//!
//! Always true:
//! * Memory is bounded by a few pages and the largest row, however large the file.
//! * A file is outside input: a byte that is wrong gives an error that says where and what, never a
//!   panic, an endless walk or memory that the file does not have.
//!
//! A caller must never take rows as true before [`snapshot::SnapshotFile::open`] has checked the
//! file's own checksum, unless its user asked for that.

pub mod bbolt;
pub mod snapshot;
