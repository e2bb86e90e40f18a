//! Where work that blocks runs: on OS threads, so that a stalled disk never stops the tasks that keep
//! leadership alive.
//!
//! Simulation has one thread, and puts the same work on tasks of the calling runtime: then the order
//! of everything follows from a seed, and dropping the runtime is a crash. Chosen for the whole
//! process by `become_tasks`; a build without the feature `sim` cannot choose.

use tokio::task::JoinHandle;

#[cfg(feature = "sim")]
static TASKS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on this process starts no threads for blocking work.
#[cfg(feature = "sim")]
pub fn become_tasks() {
    TASKS.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// Whether blocking work runs on tasks.
#[cfg(feature = "sim")]
pub fn are_tasks() -> bool {
    TASKS.load(std::sync::atomic::Ordering::Relaxed)
}

/// Whether blocking work runs on tasks.
#[cfg(not(feature = "sim"))]
pub const fn are_tasks() -> bool {
    false
}

/// Runs work that blocks, off the threads that serve everybody.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if are_tasks() { tokio::spawn(async move { work() }) } else { tokio::task::spawn_blocking(work) }
}
