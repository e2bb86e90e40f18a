//! Users, roles and permissions: who may do what.
//!
//! Always true: what a member answers about rights depends on the log alone, and changes with the
//! same batch as everything else, so a snapshot carries it and a reader sees rights and data of one
//! point. In memory there is nothing that the rows of `meta` do not say; it is read from them
//! whenever a state is opened, at start as after an install.
//!
//! `keys` is a set of keys as merged intervals, `book` the users and roles and how they change,
//! `judge` what each command needs and
//! whether who asks has it, `apply` both for one entry of the log, `row` how it all lies on disk.

mod apply;
mod book;
mod judge;
mod keys;
mod row;

pub use book::{AuthBook, User};
pub use judge::{Need, needs, needs_of_txn};
pub(crate) use row::{load, rows};
