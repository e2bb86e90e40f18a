//! What happened, as plain data: the lowest layer, which every other reads and none of them owns.
//!
//! `history` is what clients wrote and read, `watch` what watchers were sent, `lease` what became of
//! leases; checkers judge these. `trace` is the outline of a run for its report, and `verdict` what was
//! found about a promise.

pub mod history;
pub mod lease;
pub mod trace;
pub mod verdict;
pub mod watch;

pub use trace::Trace;
pub use verdict::Verdict;
