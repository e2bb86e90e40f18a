//! Where work that blocks runs: on OS threads, so that a stalled disk never stops the tasks that keep
//! leadership alive.
//!
//! Simulation has one thread, and puts the same work on tasks of the calling runtime: then the order
//! of everything follows from a seed, and dropping the runtime is a crash. `become_tasks` chooses it for
//! the whole process. Only `crates/sim` calls it, which tidy checks; no flag or variable of `meerkat` does.

use tokio::task::JoinHandle;

static TASKS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on this process starts no threads for blocking work.
pub fn become_tasks() {
    TASKS.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// Whether blocking work runs on tasks.
pub fn are_tasks() -> bool {
    TASKS.load(std::sync::atomic::Ordering::Relaxed)
}

/// Runs work of one request that blocks, off the threads that serve everybody. Whoever waits is told of a
/// panic in it.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if are_tasks() {
        crate::tasks::spawn_brief(async move { work() })
    } else {
        tokio::task::spawn_blocking(work)
    }
}

/// As [`spawn_blocking`], for a part of the supervised work `name`: a panic in it ends the process.
pub fn spawn_blocking_part<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(move || meerkat_fault::part(name, work))
}
