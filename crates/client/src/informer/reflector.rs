//! The task behind an informer: asks the source what the machine says, and shows what comes of it.

use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::list_watch::{ListWatch, SourceError};
use super::machine::{Input, Loss, Machine, Next, Show};
use super::shared::Shared;
use super::status::{InformerStatus, Phase};
use super::store::Writer;

/// See the module. Owns the source and the writing side of the cache.
pub(crate) struct Reflector<S: ListWatch, T> {
    pub(crate) source: S,
    pub(crate) writer: Writer<T>,
    pub(crate) shared: Arc<Shared<T>>,
    pub(crate) page_size: u64,
    pub(crate) seed: u64,
}

impl<S: ListWatch, T: Send + Sync + 'static> Reflector<S, T> {
    /// Runs until it is aborted.
    pub(crate) async fn run(mut self) {
        let mut draws = StdRng::seed_from_u64(self.seed);
        let (mut machine, mut next) = Machine::start(self.page_size);
        let mut open: Option<S::Watch> = None;
        loop {
            let input = self.carry_out(next, &mut open).await;
            let step = machine.step(input, Instant::now().into_std(), draws.random());
            if let Some(show) = step.show {
                self.show(show);
            }
            next = step.next;
        }
    }

    async fn carry_out(&mut self, next: Next, open: &mut Option<S::Watch>) -> Input {
        match next {
            Next::List(request) => {
                *open = None;
                self.note(|status| status.phase = Phase::Listing);
                match self.source.list(request).await {
                    Ok(page) => Input::Listed(page),
                    Err(error) => Input::ListFailed(self.lost(&error)),
                }
            }
            Next::Watch { from } => {
                self.note(|status| {
                    status.phase = Phase::Watching;
                    status.watches += 1;
                });
                let watch = open.insert(self.source.watch(from));
                let heard = watch.next().await;
                self.heard(heard)
            }
            Next::Listen => {
                let heard = match open {
                    Some(watch) => watch.next().await,
                    None => None,
                };
                self.heard(heard)
            }
            Next::Wait(wait) => {
                *open = None;
                self.note(|status| status.phase = Phase::Waiting);
                tokio::time::sleep(wait).await;
                Input::Waited
            }
        }
    }

    fn heard(&self, heard: Option<Result<crate::watch::Changes, SourceError>>) -> Input {
        match heard {
            Some(Ok(changes)) => Input::Changed(changes),
            Some(Err(error)) => Input::WatchFailed(self.lost(&error)),
            None => Input::WatchFailed(Loss::Ended),
        }
    }

    fn lost(&self, error: &SourceError) -> Loss {
        debug!(%error, "an informer's source did not answer");
        self.note(|status| {
            status.failures += 1;
            status.last_failure = Some(error.to_string().into());
        });
        match error {
            SourceError::Compacted => Loss::Compacted,
            SourceError::Failed(_) => Loss::Failed,
        }
    }

    /// Changes the cache and tells the handlers. Synchronous, so that stopping the informer can never
    /// leave it half done.
    fn show(&mut self, show: Show) {
        let errors_before = self.writer.decode_errors();
        let (deltas, revision, listed) = match show {
            Show::Replace { revision, kvs } => (self.writer.replace(revision, &kvs), revision, 1),
            Show::Apply(changes) => (self.writer.apply(&changes), changes.revision, 0),
        };
        self.shared.publish(&self.writer, &deltas);
        let decode_errors = self.writer.decode_errors();
        if errors_before < decode_errors {
            warn!(%revision, count = decode_errors - errors_before, "values could not be decoded and are kept out of the cache");
        }
        self.note(|status| {
            status.revision = Some(revision);
            status.lists += listed;
            status.decode_errors = decode_errors;
        });
    }

    fn note(&self, change: impl FnOnce(&mut InformerStatus)) {
        self.shared.status.send_modify(change);
    }
}

/// However the task ends (stopped before it ran at all, or by a panic in a decoder), nobody must wait
/// for ever.
impl<S: ListWatch, T> Drop for Reflector<S, T> {
    fn drop(&mut self) {
        self.shared.close();
    }
}
