//! Load that records what it did.
//!
//! `unique` writes and reads under faults for the checkers; `counter` raises one number and watches
//! for reads that go back; `fill` makes a store large, quickly; `latency` measures.

pub mod counter;
pub mod fill;
pub mod latency;
pub mod unique;
