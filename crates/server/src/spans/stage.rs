//! Spans of what is done for a call, below the call's own.
//!
//! Which call that is, the task knows that serves it: nothing has to be handed through. What is done on
//! another task has no span.

use super::Tracer;
use super::span::Begun;
use super::trace_context::{SpanId, TraceId};
use std::future::Future;

/// The span that work belongs to.
#[derive(Clone)]
pub(super) struct Here {
    pub(super) tracer: Tracer,
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
}

tokio::task_local! {
    static HERE: Here;
}

/// Work below a span.
pub(super) fn within<F: Future>(here: Here, work: F) -> impl Future<Output = F::Output> {
    HERE.scope(here, work)
}

/// Does the work, as a span of that name if it is done for a call that is traced. Costs one look at a variable
/// of the thread otherwise.
pub(crate) async fn stage<F: Future>(name: &'static str, work: F) -> F::Output {
    let _under_way = HERE.try_with(|here| UnderWay {
        begun: Begun::part(here.trace, here.span),
        tracer: here.tracer.clone(),
        name,
    });
    work.await
}

/// Ends with the work, whether that is finished or given up.
struct UnderWay {
    tracer: Tracer,
    begun: Begun,
    name: &'static str,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.tracer.record(self.begun.ended(self.name, Vec::new(), None));
    }
}
