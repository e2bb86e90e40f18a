//! The standard gRPC health service: this process serves, or it would not answer.

use super::status;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use meerkat_proto::pb::health as pb;
use meerkat_proto::pb::health::health_check_response::ServingStatus;
use meerkat_proto::pb::health::health_server::Health;
use tonic::{Request, Response, Status};

pub(crate) struct HealthService;

fn check(service: &str) -> Result<pb::HealthCheckResponse, Status> {
    // Only the server as a whole is known by a name here: the empty one.
    if !service.is_empty() {
        return Err(status::unknown_health_service());
    }
    Ok(pb::HealthCheckResponse { status: ServingStatus::Serving.into() })
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<pb::HealthCheckResponse>, Status> {
        check(&request.into_inner().service).map(Response::new)
    }

    type WatchStream = BoxStream<'static, Result<pb::HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let now = check(&request.into_inner().service)?;
        // The status never changes while the process lives; the stream stays open, as clients expect.
        Ok(Response::new(stream::once(std::future::ready(Ok(now))).chain(stream::pending()).boxed()))
    }
}
