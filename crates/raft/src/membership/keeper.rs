//! Keeps the promise made to members that were added as voters: a vote, as soon as they can use it.
//!
//! Runs on every member and acts on the leader. What one leader did not get to, the next one does.

use super::Changer;
use std::sync::Arc;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

/// Runs until Raft stops.
pub(crate) async fn run(changer: Arc<Changer>) {
    while changer.keep_a_promise().await {
        tokio::time::sleep(TICK).await;
    }
}
