//! Mistakes of our own: what ends a member when it meets one, and the points where tests make one.
//!
//! A member that goes on with half-changed state, or without one of its tasks, is worse than one that is
//! gone. So a panic ends the process, with [`STATUS`] and a line in the log that says where it happened:
//! in work that goes on for as long as the member ([`supervised`], [`spawn_thread`], [`part`]), and wherever
//! a lock of ours is held to change something ([`Mutex`], [`RwLock`]). Every other panic is that of one
//! request, is logged, and fails that request.
//!
//! Nothing of the process runs after such a panic, not even a destructor. Only `meerkat serve` and each seed
//! of the simulation ask for it ([`end_process_on_panic`]); in a process that did not, a panic unwinds as it
//! always does, and whoever joins the work is told. Never rely on a point for behaviour of the product.

mod failstop;
mod lock;
mod points;

pub use failstop::{
    STATUS, Supervised, at, end_process_on_panic, part, request_panics, spawn_thread, supervised,
};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
pub use points::{POINTS, TASKS, arm_from_environment, is_armed, pass_task, point, poisoned};
