//! The etcd v3 services, and what they share: admission, limits, the texts of transport errors.

mod admin;
mod admission;
mod auth;
mod cluster;
mod downgrade;
mod election;
mod header;
mod health;
mod kv;
mod lease;
mod line;
mod lock;
mod maintenance;
mod range_stream;
mod reflection;
mod snapshot;
pub(crate) mod status;
mod transport_errors;
pub(crate) mod watch;

use crate::auth::Passwords;
use crate::config::Config;
use crate::contained::contained;
use crate::lease::{Book, Renewals};
use crate::member::Member;
use crate::memory::Pressure;
use crate::metrics::Calls;
use crate::spans::Tracer;
use admission::Admission;
use axum::response::IntoResponse;
use header::Headers;
use meerkat_fault::Mutex;
use meerkat_proto::pb;
use meerkat_types::limits;
use meerkat_watch::Hub;
use std::sync::Arc;
use tonic::service::Routes;
use watch::{WatchCounters, WatchService};

/// Every gRPC service of the client port.
pub(crate) fn router(
    member: &Member,
    hub: &Hub,
    counters: &Arc<WatchCounters>,
    leases: (Arc<Mutex<Book>>, Renewals),
    pressure: &Arc<Pressure>,
    (calls, tracer): (Arc<Calls>, Option<Tracer>),
    config: &Config,
) -> axum::Router {
    let Member { raft, guard, .. } = member;
    let headers = Headers::new(raft.clone());
    let message_bytes_max = config.max_request_bytes + limits::REQUEST_OVERHEAD_BYTES;
    let kv = kv::KvService::new(member.clone(), headers.clone(), config);
    let kv = pb::etcdserver::kv_server::KvServer::new(kv)
        .max_decoding_message_size(message_bytes_max)
        .max_encoding_message_size(i32::MAX as usize);
    let cluster = cluster::ClusterService::new(raft.clone(), headers.clone(), guard.clone());
    let maintenance = maintenance::MaintenanceService::new(raft.clone(), headers.clone(), config);
    let lease = lease::LeaseService::new(member.clone(), headers.clone(), leases);
    let lease =
        pb::etcdserver::lease_server::LeaseServer::new(lease).max_encoding_message_size(i32::MAX as usize);
    let passwords = Passwords::new(config.auth.bcrypt_cost);
    let auth = auth::AuthService::new(raft.clone(), headers.clone(), guard.clone(), passwords);
    let watch = Arc::new(WatchService::new(headers, hub.clone(), counters.clone(), guard.clone(), config));
    let admin = admin::AdminService::new(raft.clone(), hub.clone());
    let mut routes = Routes::builder();
    routes
        .add_service(kv)
        .add_service(lease)
        .add_service(pb::etcdserver::auth_server::AuthServer::new(auth))
        .add_service(pb::etcdserver::cluster_server::ClusterServer::new(cluster))
        .add_service(pb::etcdserver::maintenance_server::MaintenanceServer::new(maintenance))
        .add_service(pb::health::health_server::HealthServer::new(health::HealthService))
        .add_service(pb::admin::admin_server::AdminServer::new(admin));
    let services = routes
        .routes()
        .into_axum_router()
        .route(
            watch::PATH,
            axum::routing::post(async move |request: http::Request<axum::body::Body>| watch.serve(request)),
        )
        .route("/etcdserverpb.Watch/{method}", axum::routing::post(unknown_method));
    let leadership = raft.leadership().clone();
    let admission = Admission::new(leadership, pressure.clone(), guard.clone(), message_bytes_max);
    let coordination = coordination(admission.before(services.clone()), message_bytes_max);
    let reflection = reflection::service();
    // Followed and counted under its newer name alone.
    let alpha = contained(reflection::as_alpha(admission.before(reflection.clone())));
    admission.observed(services.merge(coordination).merge(reflection), calls, tracer).merge(alpha)
}

/// The services that call others in their caller's name.
fn coordination(inner: axum::Router, message_bytes_max: usize) -> axum::Router {
    let inner = inner.with_state(());
    let lock = pb::lock::lock_server::LockServer::new(lock::LockService::new(inner.clone()))
        .max_decoding_message_size(message_bytes_max);
    let election = pb::election::election_server::ElectionServer::new(election::ElectionService::new(inner))
        .max_decoding_message_size(message_bytes_max);
    let mut routes = Routes::builder();
    routes.add_service(lock).add_service(election);
    routes.routes().into_axum_router().reset_fallback()
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
