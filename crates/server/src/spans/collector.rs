//! The collector at the other end, by OTLP over gRPC without TLS, as etcd reaches it.

use http::Uri;
use meerkat_proto::pb::otlp;
use otlp::trace_service_client::TraceServiceClient;
use std::future::Future;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// One try. A collector that takes longer is as good as gone.
const EXPORT_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// So that a connection whose other end is gone without a word is noticed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Why spans were not taken.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code:?}: {reason}")]
pub(super) struct NotTaken {
    pub(super) code: Code,
    reason: String,
}

impl NotTaken {
    pub(super) fn new(code: Code, reason: &str) -> NotTaken {
        NotTaken { code, reason: reason.to_owned() }
    }
}

impl From<Status> for NotTaken {
    fn from(status: Status) -> NotTaken {
        NotTaken::new(status.code(), status.message())
    }
}

/// Takes spans.
pub(super) trait Collector: Send + 'static {
    /// How many of the spans were not taken, and never will be.
    fn export(
        &mut self,
        spans: otlp::ExportTraceServiceRequest,
    ) -> impl Future<Output = Result<u64, NotTaken>> + Send;
}

pub(super) struct OverGrpc(TraceServiceClient<Channel>);

impl OverGrpc {
    /// Connects when there is something to send, and again whenever the connection is lost.
    pub(super) fn new(at: Uri) -> OverGrpc {
        let endpoint = Endpoint::from(at)
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(EXPORT_WITHIN);
        OverGrpc(TraceServiceClient::new(endpoint.connect_lazy()))
    }
}

impl Collector for OverGrpc {
    async fn export(&mut self, spans: otlp::ExportTraceServiceRequest) -> Result<u64, NotTaken> {
        let answer = tokio::time::timeout(EXPORT_WITHIN, self.0.export(spans)).await;
        let answer =
            answer.map_err(|_| NotTaken::new(Code::DeadlineExceeded, "no answer in time"))??.into_inner();
        let rejected = answer.partial_success.unwrap_or_default();
        if rejected.rejected_spans != 0 {
            tracing::debug!(
                spans = rejected.rejected_spans,
                reason = rejected.error_message,
                "spans were rejected"
            );
        }
        Ok(u64::try_from(rejected.rejected_spans).unwrap_or(0))
    }
}
