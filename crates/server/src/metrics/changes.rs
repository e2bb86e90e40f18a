//! What this member has applied: puts, deletions and the bytes of them.

use meerkat_types::{EventBatch, EventKind};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(super) puts: AtomicU64,
    pub(super) deletes: AtomicU64,
    /// Revisions with more than one change.
    pub(super) txns: AtomicU64,
    pub(super) put_bytes: AtomicU64,
}

impl Changes {
    /// On the apply thread: a few additions for each revision.
    pub(crate) fn note(&self, batch: &EventBatch) {
        let (mut puts, mut bytes) = (0, 0);
        for event in batch.events.iter() {
            if let EventKind::Put(kv) = &event.kind {
                puts += 1;
                bytes += kv.key.len() + kv.value.len();
            }
        }
        let deletes = batch.events.len() as u64 - puts;
        self.puts.fetch_add(puts, Ordering::Relaxed);
        self.deletes.fetch_add(deletes, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.txns.fetch_add(u64::from(1 < batch.events.len()), Ordering::Relaxed);
    }
}
