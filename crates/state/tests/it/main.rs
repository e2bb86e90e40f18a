//! The state machine against a naive model, and against itself with other batches, other
//! compaction schedules and crashes.
//!
//! Everything is drawn from one seed. A failing run prints the line that repeats it.

mod alarms;
mod answers;
mod auth;
mod backups;
mod counting;
mod generate;
mod hostile;
mod model;
mod pace;
mod property;
mod recovery;
mod rig;
mod rules;
