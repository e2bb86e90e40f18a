//! Plain HTTP on the client port and on the metrics port: health, version, metrics; and on the client port
//! the JSON gateway.

mod access;
mod checks;
mod debug_vars;

use crate::config::Config;
use crate::gateway;
use crate::grpc;
use crate::memory::Pressure;
use crate::metrics::Metrics;
use crate::version::{CLUSTER_VERSION, SERVER_VERSION, STORAGE_VERSION};
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use checks::{Check, Query};
use meerkat_raft::RaftNode;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct HttpState {
    pub(crate) raft: Arc<RaftNode>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pressure: Arc<Pressure>,
}

/// Everything that is served over HTTP beside gRPC, the JSON gateway to it included, which is asked first
/// where it comes from.
pub(crate) fn beside(services: &Router, state: HttpState, config: &Config) -> Router {
    let raft = state.raft.clone();
    let pressure = state.pressure.clone();
    let mut plain = router(state).fallback(grpc::unknown_service);
    if config.http.gateway {
        plain = plain.merge(gateway::router(services.clone(), config, pressure));
    }
    access::guarded(plain, &config.http, Arc::new(move || raft.reader().auth_enabled()))
}

/// Answers GET only; anything else is 405.
pub(crate) fn router(state: HttpState) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/livez", get(livez))
        .route("/livez/{check}", get(livez_one))
        .route("/readyz", get(readyz))
        .route("/readyz/{check}", get(readyz_one))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .route("/debug/vars", get(vars))
        .with_state(state)
}

async fn health(State(state): State<HttpState>, RawQuery(query): RawQuery) -> Response {
    let query = Query::parse(query.as_deref().unwrap_or_default());
    let problem = checks::health(&state.raft, &query).await;
    state.metrics.count_health(problem.is_none());
    let (code, healthy, reason) = match &problem {
        None => (StatusCode::OK, "true", ""),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, "false", reason.as_str()),
    };
    let body = serde_json::json!({ "health": healthy, "reason": reason }).to_string();
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

async fn livez(State(state): State<HttpState>, RawQuery(query): RawQuery) -> Response {
    report(&state, "livez", checks::LIVE, query.as_deref()).await
}

async fn readyz(State(state): State<HttpState>, RawQuery(query): RawQuery) -> Response {
    report(&state, "readyz", checks::READY, query.as_deref()).await
}

async fn livez_one(state: State<HttpState>, Path(name): Path<String>, query: RawQuery) -> Response {
    one(state, "livez", checks::LIVE, &name, query).await
}

async fn readyz_one(state: State<HttpState>, Path(name): Path<String>, query: RawQuery) -> Response {
    one(state, "readyz", checks::READY, &name, query).await
}

async fn one(
    State(state): State<HttpState>,
    path: &'static str,
    checks: &[Check],
    name: &str,
    RawQuery(query): RawQuery,
) -> Response {
    match checks.iter().find(|check| check.name() == name) {
        Some(check) => report(&state, path, &[*check], query.as_deref()).await,
        None => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
    }
}

async fn report(state: &HttpState, path: &'static str, all: &[Check], query: Option<&str>) -> Response {
    let query = Query::parse(query.unwrap_or_default());
    let report = checks::run(&state.raft, all, &query).await;
    for (check, outcome) in &report.lines {
        state.metrics.count_check(path, check, outcome.is_ok());
    }
    let code = if report.passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let heads =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, heads, report.text(query.verbose)).into_response()
}

async fn version() -> Response {
    let body = format!(
        "{{\"etcdserver\":\"{SERVER_VERSION}\",\"etcdcluster\":\"{CLUSTER_VERSION}\",\"storage\":\"{STORAGE_VERSION}\"}}"
    );
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn metrics(State(state): State<HttpState>) -> Response {
    let body = state.metrics.render(&state.raft);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], body).into_response()
}

async fn vars(State(state): State<HttpState>) -> Response {
    let body = debug_vars::render(&state.raft);
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], body).into_response()
}
