//! Runs put together from parts: a ground, workloads, nemeses, a schedule; all from one seed.
//!
//! Reading order: a `plan` is read from a scenario file, a `schedule` drawn from it, and `conduct` carries
//! both out on a ground: workloads work while nemeses strike; when the faults are over `settle` heals the
//! cluster, the workloads are ended, and each answers with a verdict for each promise it judged. `judgement`
//! says what that comes to; `command` is all of it for one line of words.

pub mod arguments;
pub mod command;
pub mod conduct;
pub mod judgement;
pub mod plan;
pub mod sample;
pub mod schedule;
pub mod settle;
