//! Defragmentation at the start, where that was asked for and gives enough back. Beside traffic, which
//! etcd does not serve meanwhile.

use meerkat_raft::RaftNode;

/// `worth`: the bytes that must be to be gained.
pub(crate) async fn defragment_if_worth_it(raft: &RaftNode, worth: u64) {
    let size = match raft.database().approximate_size() {
        Ok(size) => size.total_bytes,
        Err(error) => {
            return tracing::warn!(%error, "the size of the state is not known; it is not defragmented");
        }
    };
    let in_use = raft.live_bytes().min(size);
    if size - in_use < worth {
        tracing::info!(
            current_db_size_bytes = size,
            current_db_size_in_use_bytes = in_use,
            bootstrap_defrag_threshold_bytes = worth,
            "Skipping defragmentation"
        );
        return;
    }
    tracing::info!(current_db_size_bytes = size, current_db_size_in_use_bytes = in_use, "defragmenting");
    match raft.defragment().await {
        Ok(()) => tracing::info!("finished defragmenting directory"),
        Err(error) => tracing::error!(%error, "the state could not be defragmented"),
    }
}
