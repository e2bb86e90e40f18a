//! Rewriting the state's files at an operator's wish, beside traffic.
//!
//! One at a time; whoever asks meanwhile waits for a turn. A member that stops does not wait for it.

use crate::node::RaftNode;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Defragmenting {
    turn: tokio::sync::Mutex<()>,
    running: AtomicBool,
    stopping: Arc<AtomicBool>,
}

impl Defragmenting {
    /// Whether one is running that must be ended before the database is closed.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.running.load(Ordering::SeqCst)
    }
}

impl RaftNode {
    /// Brings everything that was deleted off the disk; returns when that is done.
    pub async fn defragment(&self) -> io::Result<()> {
        let defragmenting = self.defragmenting();
        let _turn = defragmenting.turn.lock().await;
        let (db, stopping) = (self.database(), defragmenting.stopping.clone());
        let _running = Running::begin(&defragmenting.running);
        let compacted = move || db.compact(|| !stopping.load(Ordering::SeqCst));
        crate::threads::spawn_blocking(compacted).await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    pub fn is_defragmenting(&self) -> bool {
        self.defragmenting().running.load(Ordering::Relaxed)
    }
}

/// Until it is dropped.
struct Running<'a>(&'a AtomicBool);

impl Running<'_> {
    fn begin(flag: &AtomicBool) -> Running<'_> {
        flag.store(true, Ordering::SeqCst);
        Running(flag)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
