//! A cache of objects: each controller has its own, as programs of their own would.

use std::time::Duration;

use futures::future::select_all;
use meerkat_client::informer::InformerStatus;
use meerkat_client::listwatch::{Door, Resource};
use meerkat_client::{Informer, Revision};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::board::Board;

/// Controllers look again after this even if nothing has changed: what failed is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Changes that come together are acted on together.
const GATHER: Duration = Duration::from_millis(20);

pub struct Cache {
    pub informer: Informer<Value>,
    /// Knows what was looked at already.
    monitor: watch::Receiver<InformerStatus>,
}

impl Cache {
    pub fn start(door: &Door, resource: Resource, name: &str, board: &Board) -> Cache {
        let source = Informer::objects(door, resource);
        let trail = source.trail();
        let informer = source.json::<Value>().start();
        board.follow(name, informer.clone(), trail);
        Cache { monitor: informer.monitor(), informer }
    }

    /// Whether it shows everything up to this version.
    pub fn reached(&self, version: i64) -> bool {
        self.informer.store().revision().is_some_and(|revision| Revision::new(version) <= revision)
    }
}

/// Waits until one of these has changed since it was last waited for, or for a while.
pub async fn stirred(caches: &mut [&mut Cache]) {
    let changes = caches.iter_mut().map(|cache| Box::pin(cache.monitor.changed()));
    // A stopped informer never changes again; then only the time passes.
    let stopped = matches!(timeout(LOOK_AGAIN, select_all(changes)).await, Ok((Err(_), ..)));
    sleep(if stopped { LOOK_AGAIN } else { GATHER }).await;
}
