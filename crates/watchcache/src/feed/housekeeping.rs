//! What a feed does by the clock: bookmarks, and giving up on those who read nothing.

use super::shared::Shared;
use crate::cacher::bookmark;
use std::sync::Arc;
use std::time::Duration;

/// Until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let now_ms = shared.now_ms();
        let next_ms = bookmark::next_tick_ms(now_ms, rand::random());
        tokio::time::sleep(Duration::from_millis(next_ms.saturating_sub(now_ms))).await;
        shared.locked(|hub, wakers| hub.tick(shared.now_ms(), wakers));
    }
}
