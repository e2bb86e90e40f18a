//! Backup files, read back as they were written, and refused when they were touched.

#![allow(clippy::unwrap_used)]

mod damage;
mod round_trip;
