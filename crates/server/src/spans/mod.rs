//! Spans of calls, for a collector of OpenTelemetry, if `--enable-distributed-tracing` asks for it.
//!
//! A call is traced if its caller says so, and where no caller says anything, as often as the sampling rate
//! says. Its span is named and furnished as etcd's is, so that what reads etcd's traces reads ours; below it
//! are spans of what took the time.
//!
//! Always true: no request waits for the collector. A span that finds no room in the queue is dropped, and
//! counted. Without the flag there is no [`Tracer`] and no task.

mod collector;
mod exporter;
mod sampling;
mod span;
mod stage;
mod trace_context;
mod traced;

use crate::config::TracingOptions;
use crate::methods::{self, METHODS, Method};
use collector::OverGrpc;
use exporter::Exporter;
use meerkat_fault::Mutex;
use meerkat_proto::pb::otlp;
use meerkat_raft::tasks::{spawn_part, watched};
use span::Begun;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use trace_context::{Parent, TraceId, state_of};

pub(crate) use sampling::MILLION;
pub(crate) use stage::stage;

/// Spans that may wait for the collector: some megabytes at most.
const QUEUE_SPANS: usize = 2_048;

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounters {
    /// Taken by the collector.
    pub(crate) exported: AtomicU64,
    /// There was no room in the queue.
    pub(crate) dropped: AtomicU64,
    /// The collector did not take them, however often it was asked.
    pub(crate) failed: AtomicU64,
}

/// Begins spans and sends them off. Clones are the same.
#[derive(Clone)]
pub(crate) struct Tracer(Arc<Inner>);

struct Inner {
    per_million: u32,
    queue: mpsc::Sender<otlp::Span>,
    counters: Arc<SpanCounters>,
    exporting: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Tracer {
    /// Also starts to send. Call [`Tracer::stop`], or what waits is lost.
    pub(crate) fn start(options: &TracingOptions) -> Tracer {
        let (queue, spans) = mpsc::channel(QUEUE_SPANS);
        let counters = Arc::new(SpanCounters::default());
        let collector = OverGrpc::new(options.collector.clone());
        let exporter = Exporter::new(spans, collector, resource(options), counters.clone());
        let (stop, stopped) = oneshot::channel();
        let task = spawn_part("trace export", watched("trace export", exporter.run(stopped)));
        let exporting = Mutex::new(Some((stop, task)));
        let per_million = options.per_million;
        Tracer(Arc::new(Inner { per_million, queue, counters, exporting }))
    }

    /// Sends what waits, for as long as that may take at the end; spans that come later are dropped.
    pub(crate) async fn stop(&self) {
        let exporting = self.0.exporting.lock().take();
        if let Some((stop, task)) = exporting {
            drop(stop);
            if let Err(error) = task.await {
                tracing::error!(%error, "the exporter of spans failed");
            }
        }
    }

    pub(crate) fn counters(&self) -> &SpanCounters {
        &self.0.counters
    }

    /// The span of a call, if it is to have one. What is no method of ours has none: its name would be its
    /// caller's text.
    fn begin(&self, path: &str, headers: &http::HeaderMap) -> Option<(Begun, &'static Method)> {
        let parent = Parent::of(headers);
        if parent.is_none() && self.0.per_million == 0 {
            return None;
        }
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        if !sampling::is_sampled(parent.as_ref(), &trace, self.0.per_million) {
            return None;
        }
        let method = &METHODS[methods::find(path)?];
        let state = if parent.is_some() { state_of(headers) } else { String::new() };
        Some((Begun::call(trace, parent.map(|parent| parent.span), state), method))
    }

    fn record(&self, span: otlp::Span) {
        if self.0.queue.try_send(span).is_err() {
            self.0.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Who the spans are of.
fn resource(options: &TracingOptions) -> otlp::Resource {
    let mut attributes = vec![span::text("service.name", options.service_name.as_str())];
    if let Some(id) = &options.instance_id {
        attributes.push(span::text("service.instance.id", id.as_str()));
    }
    otlp::Resource { attributes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(per_million: u32) -> (Tracer, mpsc::Receiver<otlp::Span>) {
        let (queue, spans) = mpsc::channel(1);
        let (counters, exporting) = (Arc::default(), Mutex::new(None));
        (Tracer(Arc::new(Inner { per_million, queue, counters, exporting })), spans)
    }

    fn headers(parent: Option<&str>) -> http::HeaderMap {
        let mut headers = http::HeaderMap::new();
        if let Some(parent) = parent {
            headers.insert("traceparent", parent.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn only_calls_of_known_methods_that_are_sampled_have_spans() {
        const SAMPLED: Option<&str> = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        const UNSAMPLED: Option<&str> = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        for (per_million, path, parent, expected) in [
            (0, "/etcdserverpb.KV/Put", None, None),
            (0, "/etcdserverpb.KV/Put", SAMPLED, Some("etcdserverpb.KV/Put")),
            (0, "/etcdserverpb.KV/Put", Some("nonsense"), None),
            (MILLION, "/etcdserverpb.KV/Put", None, Some("etcdserverpb.KV/Put")),
            (MILLION, "/etcdserverpb.KV/Put", Some("nonsense"), Some("etcdserverpb.KV/Put")),
            (MILLION, "/etcdserverpb.Watch/Watch", UNSAMPLED, None),
            (MILLION, "/etcdserverpb.KV/Nonsense", SAMPLED, None),
            (MILLION, "/meerkat.peer.v1.Peer/Append", SAMPLED, None),
        ] {
            let begun = tracer(per_million).0.begin(path, &headers(parent));
            let name = begun.map(|(_, method)| method.name());
            assert_eq!(name, expected, "{per_million} {path} {parent:?}");
        }
    }

    #[test]
    fn a_span_without_room_is_dropped_and_counted() {
        let (tracer, mut spans) = tracer(MILLION);
        tracer.record(otlp::Span::default());
        tracer.record(otlp::Span::default());
        tracer.record(otlp::Span::default());
        assert_eq!(tracer.counters().dropped.load(Ordering::Relaxed), 2);
        assert!(spans.try_recv().is_ok() && spans.try_recv().is_err());
    }

    #[test]
    fn a_member_has_an_instance_id_only_if_it_was_given_one() {
        let mut options = TracingOptions {
            collector: http::Uri::from_static("http://localhost:4317"),
            service_name: "s".to_owned(),
            instance_id: None,
            per_million: 0,
        };
        let keys = |options: &TracingOptions| -> Vec<String> {
            resource(options).attributes.into_iter().map(|attribute| attribute.key).collect()
        };
        assert_eq!(keys(&options), ["service.name"]);
        options.instance_id = Some("i".to_owned());
        assert_eq!(keys(&options), ["service.name", "service.instance.id"]);
    }
}
