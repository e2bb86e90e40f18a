//! Room: how much of it the store may take, and what happens when it is used up.
//!
//! Three parts, each with one word in it. `quota` refuses a write that this member has no room for and
//! raises the alarm NOSPACE; the state refuses, on every member alike, while that alarm is on; `keeper`
//! takes back the alarm of its own member once there is room again, unless an operator raised it.
//!
//! Each member speaks for itself: its size, its disk and its quota are its own.

mod bootstrap;
mod disk;
mod keeper;
mod quota;

pub(crate) use bootstrap::defragment_if_worth_it;
pub(crate) use disk::free_bytes;
pub(crate) use keeper::keep;
pub(crate) use quota::Quota;
