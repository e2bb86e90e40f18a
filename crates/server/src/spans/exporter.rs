//! Takes spans from the queue and brings them to the collector, in batches.
//!
//! A batch that the collector cannot take now is offered again for about half a minute, then given up and
//! counted; meanwhile the queue fills, and what finds no room in it is dropped where it is made. At the end
//! everything that waits is offered once more, for a bounded time.

use super::SpanCounters;
use super::collector::{Collector, NotTaken};
use meerkat_proto::pb::otlp;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;

const BATCH_SPANS: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
const TRIES_MAX: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// What a member that was told to stop spends on its last spans.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct Exporter<C> {
    queue: mpsc::Receiver<otlp::Span>,
    /// Taken from the queue, and neither delivered nor given up.
    batch: Vec<otlp::Span>,
    collector: C,
    resource: otlp::Resource,
    counters: Arc<SpanCounters>,
    /// Whether the last try failed, which is said once and not at each.
    failing: bool,
}

impl<C: Collector> Exporter<C> {
    pub(super) fn new(
        queue: mpsc::Receiver<otlp::Span>,
        collector: C,
        resource: otlp::Resource,
        counters: Arc<SpanCounters>,
    ) -> Exporter<C> {
        Exporter { queue, batch: Vec::new(), collector, resource, counters, failing: false }
    }

    pub(super) async fn run(mut self, stopped: impl Future) {
        let mut stopped = std::pin::pin!(stopped);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.gather() => {}
            }
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.deliver() => {}
            }
        }
        self.flush().await;
    }

    /// Fills the batch: until it is full, or its first span has waited long enough. Loses nothing if dropped.
    async fn gather(&mut self) {
        if self.queue.recv_many(&mut self.batch, BATCH_SPANS).await == 0 {
            // Nobody can make spans any more. The end will be told.
            return std::future::pending().await;
        }
        let until = Instant::now() + LINGER;
        while self.batch.len() < BATCH_SPANS {
            let room = BATCH_SPANS - self.batch.len();
            let more = tokio::time::timeout_at(until, self.queue.recv_many(&mut self.batch, room));
            if matches!(more.await, Ok(0) | Err(_)) {
                break;
            }
        }
    }

    /// Offers the batch until it is taken or given up. Dropped in between, it may be offered again.
    async fn deliver(&mut self) {
        for failed_tries in 1.. {
            let Err(error) = self.offer().await else { return };
            let Some(pause) = pause_before_next(failed_tries, error.code) else {
                self.counters.failed.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
                self.batch.clear();
                return;
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn offer(&mut self) -> Result<(), NotTaken> {
        let scope = otlp::InstrumentationScope {
            name: "meerkat".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let scope_spans = vec![otlp::ScopeSpans { scope: Some(scope), spans: self.batch.clone() }];
        let resource_spans = vec![otlp::ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        let answer = self.collector.export(otlp::ExportTraceServiceRequest { resource_spans }).await;
        match &answer {
            Ok(rejected) => {
                let rejected = (*rejected).min(self.batch.len() as u64);
                self.counters.failed.fetch_add(rejected, Ordering::Relaxed);
                self.counters.exported.fetch_add(self.batch.len() as u64 - rejected, Ordering::Relaxed);
                self.batch.clear();
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the collector of spans takes them again");
                }
            }
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                tracing::warn!(%error, "the collector of spans does not take them; what finds no room is dropped");
            }
            Err(_) => {}
        }
        answer.map(drop)
    }

    async fn flush(mut self) {
        self.queue.close();
        let _ = tokio::time::timeout(FLUSH_WITHIN, async {
            loop {
                while self.batch.len() < BATCH_SPANS
                    && let Ok(span) = self.queue.try_recv()
                {
                    self.batch.push(span);
                }
                if self.batch.is_empty() || self.offer().await.is_err() {
                    return;
                }
            }
        })
        .await;
        let mut lost = self.batch.len() as u64;
        while self.queue.try_recv().is_ok() {
            lost += 1;
        }
        self.counters.failed.fetch_add(lost, Ordering::Relaxed);
        if lost != 0 {
            tracing::warn!(spans = lost, "spans did not reach their collector before the end");
        }
    }
}

/// How long to wait before the same spans are offered again; not at all if that would not help, or has been
/// done often enough. Which failures pass by themselves, OTLP says.
fn pause_before_next(failed_tries: u32, code: Code) -> Option<Duration> {
    let passes = matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
    );
    (passes && failed_tries < TRIES_MAX).then(|| FIRST_PAUSE * 2_u32.pow(failed_tries - 1))
}

#[cfg(test)]
mod tests;
