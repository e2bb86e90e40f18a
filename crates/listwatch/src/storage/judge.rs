//! Whether an object is as the schema of its custom kind says, and as the schema's rules say.
//!
//! Patterns and rules may take a second of a processor. They are worked out on threads of their own, a few at a time,
//! so that everything else on the door's thread goes on: in a member that is Raft, too.

use super::Storage;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::schema::{Schema, cel};
use meerkat_kubernetes::status::{Cause, Refusal};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// One in two processors judges at most.
pub(super) fn judges() -> Arc<Semaphore> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((processors / 2).max(1)))
}

impl Storage {
    /// Refuses an object of a custom kind that is not as its schema says.
    pub(super) async fn judge(
        &self,
        kind: &Kind,
        schema: Option<&Arc<Schema>>,
        object: &Object,
        stored: Option<&Object>,
    ) -> Result<(), Refusal> {
        let Some(schema) = schema else { return Ok(()) };
        // Held until the work is done, also if its client goes away meanwhile. Never closed.
        let judge = self.judges.clone().acquire_owned().await;
        let (schema, judged, stored) = (schema.clone(), object.clone(), stored.cloned());
        let work = tokio::task::spawn_blocking(move || {
            let _judge = judge;
            causes(&schema, &judged, stored.as_ref())
        });
        let causes = match work.await.map_err(JoinError::try_into_panic) {
            Ok(causes) => causes,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(Err(_)) => std::future::pending().await,
        };
        if causes.is_empty() {
            return Ok(());
        }
        Err(Refusal::invalid(&kind.group, &kind.kind, object.name(), causes))
    }
}

/// What was wrong before and is still wrong in the same way is no fault of this write: the schema has become
/// stricter since.
fn causes(schema: &Schema, object: &Object, stored: Option<&Object>) -> Vec<Cause> {
    let mut causes = schema.check(object);
    if let Some(stored) = stored.filter(|_| !causes.is_empty()) {
        let before = schema.check(stored);
        causes.retain(|cause| !before.contains(cause));
    }
    if causes.is_empty() { cel::check(schema, object, stored) } else { causes }
}
