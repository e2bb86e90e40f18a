//! Now and then the cache is compared with the store, at one revision.
//!
//! They cannot differ, unless one of them is wrong. Then no list of the past is answered from memory any
//! more, and whoever reads the log or the counters knows.

use super::reflector::Pages;
use super::shared::Shared;
use crate::cacher::At;
use crate::cacher::consistency::Digest;
use crate::cacher::entry::Entry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let every = shared.settings.check_every;
    loop {
        let chance: f64 = rand::random();
        tokio::time::sleep(every + every.mul_f64(chance / 2.0)).await;
        match once(&shared).await {
            Ok(()) => {}
            Err(StoreError::Compacted { oldest }) => shared.locked(|hub, _| hub.cache.compact(oldest)),
            // The next one may come through.
            Err(why) => tracing::debug!(place = shared.place(), %why, "the cache was not checked"),
        }
        // However short the period: others run too.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn once(shared: &Shared) -> Result<(), StoreError> {
    let now_ms = shared.now_ms();
    let history = shared.store.history();
    let newest =
        shared.locked(|hub, _| hub.is_of(history).and_then(|()| hub.cache.version(At::Newest, now_ms)));
    let Ok(version) = newest else { return Ok(()) };
    let mut pages = Pages::new(shared, Some(version.revision()));
    let mut stored = Digest::default();
    while let Some(page) = pages.next().await? {
        for row in &page.rows {
            let Some(name) = shared.name_of(&row.key) else { continue };
            // What is no object is rightly missing.
            let is_object = || Entry::decode(&shared.shape, name, &row.value, row.modified).is_ok();
            if version.get(name).is_some() || is_object() {
                stored.add(name, row.modified);
            }
        }
    }
    if shared.store.history() != history {
        return Err(StoreError::OtherHistory);
    }
    let agrees = stored == version.digest();
    shared.locked(|hub, _| {
        hub.tally.checks += 1;
        if !agrees {
            hub.tally.mismatches += 1;
            hub.cache.drop_past();
        }
    });
    if !agrees {
        let (revision, objects) = (version.revision(), version.len());
        let stored = stored.objects();
        tracing::error!(
            place = shared.place(),
            revision,
            objects,
            stored,
            "the cache differs from the store"
        );
    }
    Ok(())
}
