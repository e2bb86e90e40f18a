//! The etcd v3 services, and what they share: limits, the leader check, the texts of transport
//! errors.

mod admin;
mod cluster;
mod header;
mod health;
mod kv;
mod learner;
mod lease;
mod maintenance;
mod range_stream;
mod require_leader;
pub(crate) mod status;
mod transport_errors;
pub(crate) mod watch;

use crate::config::Config;
use crate::lease::{Book, Renewals};
use axum::response::IntoResponse;
use header::Headers;
use learner::LearnerDoor;
use meerkat_proto::pb;
use meerkat_raft::RaftNode;
use meerkat_types::limits;
use meerkat_watch::Hub;
use parking_lot::Mutex;
use require_leader::RequireLeader;
use std::sync::Arc;
use tonic::service::Routes;
use watch::{WatchCounters, WatchService};

/// Every gRPC service of the client port.
pub(crate) fn router(
    raft: &Arc<RaftNode>,
    hub: &Hub,
    counters: &Arc<WatchCounters>,
    (book, renewals): (&Arc<Mutex<Book>>, Renewals),
    config: &Config,
) -> axum::Router {
    let headers = Headers::new(raft.clone());
    let message_bytes_max = config.max_request_bytes + limits::REQUEST_OVERHEAD_BYTES;
    let kv = kv::KvService::new(raft.clone(), headers.clone(), config);
    let kv = pb::etcdserver::kv_server::KvServer::new(kv)
        .max_decoding_message_size(message_bytes_max)
        .max_encoding_message_size(i32::MAX as usize);
    let cluster = cluster::ClusterService::new(raft.clone(), headers.clone());
    let maintenance = maintenance::MaintenanceService::new(raft.clone(), headers.clone(), config);
    let lease = lease::LeaseService::new(raft.clone(), headers.clone(), book.clone(), renewals, config);
    let lease =
        pb::etcdserver::lease_server::LeaseServer::new(lease).max_encoding_message_size(i32::MAX as usize);
    let watch = Arc::new(WatchService::new(headers, hub.clone(), counters.clone(), config));
    let mut routes = Routes::builder();
    routes
        .add_service(kv)
        .add_service(lease)
        .add_service(pb::etcdserver::cluster_server::ClusterServer::new(cluster))
        .add_service(pb::etcdserver::maintenance_server::MaintenanceServer::new(maintenance))
        .add_service(pb::health::health_server::HealthServer::new(health::HealthService))
        .add_service(pb::admin::admin_server::AdminServer::new(admin::AdminService::new(
            raft.clone(),
            hub.clone(),
        )));
    routes
        .routes()
        .into_axum_router()
        .route(
            watch::PATH,
            axum::routing::post(async move |request: http::Request<axum::body::Body>| watch.serve(request)),
        )
        .route("/etcdserverpb.Watch/{method}", axum::routing::post(unknown_method))
        .layer(tower::layer::layer_fn({
            let leadership = raft.leadership().clone();
            move |inner| LearnerDoor::new(inner, leadership.clone())
        }))
        .layer(tower::layer::layer_fn({
            let leadership = raft.leadership().clone();
            move |inner| RequireLeader::new(inner, leadership.clone())
        }))
        .layer(tower::layer::layer_fn(move |inner| {
            transport_errors::TransportErrors::new(inner, message_bytes_max)
        }))
}

async fn unknown_method(request: http::Request<axum::body::Body>) -> axum::response::Response {
    status::unknown_method(request.uri().path()).into_http::<axum::body::Body>()
}

/// Answers calls of services that do not exist, in the words that gRPC clients know.
pub(crate) async fn unknown_service(request: http::Request<axum::body::Body>) -> axum::response::Response {
    let is_grpc = request
        .headers()
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        return (http::StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    status::unknown_service(request.uri().path()).into_http::<axum::body::Body>()
}
