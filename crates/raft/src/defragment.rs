//! Rewriting the state's files at an operator's wish, beside traffic.
//!
//! One at a time; whoever asks meanwhile waits for a turn. A member that stops does not wait for it. The
//! turn is the work's, not the caller's: one who goes away leaves it going on, and it still counts.

use crate::node::RaftNode;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Defragmenting {
    turn: Arc<tokio::sync::Mutex<()>>,
    running: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
}

impl Defragmenting {
    /// Whether one is running that must be ended before the database is closed.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.running.load(Ordering::SeqCst)
    }

    /// Does the work in its turn. It is told when it should end early.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn.clone().lock_owned().await;
        let running = Running::begin(self.running.clone());
        let stopping = self.stopping.clone();
        let done = crate::threads::spawn_blocking(move || {
            let _until_the_end = (running, turn);
            work(&stopping)
        });
        done.await.map_err(io::Error::other)
    }
}

impl RaftNode {
    /// Brings everything that was deleted off the disk; returns when that is done.
    pub async fn defragment(&self) -> io::Result<()> {
        let db = self.database();
        let compact = move |stopping: &AtomicBool| db.compact(|| !stopping.load(Ordering::SeqCst));
        self.defragmenting().run(compact).await?.map_err(io::Error::other)
    }

    pub fn is_defragmenting(&self) -> bool {
        self.defragmenting().running.load(Ordering::Relaxed)
    }
}

/// Until it is dropped.
struct Running(Arc<AtomicBool>);

impl Running {
    fn begin(flag: Arc<AtomicBool>) -> Running {
        flag.store(true, Ordering::SeqCst);
        Running(flag)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn what_its_caller_has_left_still_runs_in_its_turn() {
        let it = Arc::new(Defragmenting::default());
        let (began, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let first = it.clone();
        let first = tokio::spawn(async move {
            let work = move |_: &AtomicBool| {
                let _ = began.send(());
                let _ = may_end.recv();
            };
            first.run(work).await
        });
        has_begun.await.expect("it begins");
        first.abort();
        assert!(first.await.is_err(), "its caller has gone");
        let second = tokio::time::timeout(Duration::from_millis(100), it.run(|_| ())).await;
        assert!(second.is_err(), "one at a time");
        assert!(it.stop(), "one runs");
        end.send(()).expect("it waits");
        let stopping = it.run(|stopping| stopping.load(Ordering::SeqCst)).await;
        assert!(stopping.expect("its turn"), "it is told to end early");
        assert!(!it.stop(), "none runs");
    }
}
