//! The pages about the server: which kinds there are, how they are made, whether it is well.

use super::answer::{self, Body, Look, header};
use super::metrics::Gauges;
use super::{Door, health};
use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use meerkat_kubernetes::discovery;
use meerkat_kubernetes::negotiation::{Media, negotiate};
use meerkat_kubernetes::openapi::{v2, v3};
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::registry::Registry;
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::version;
use meerkat_watchcache::request_path::Page;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a page waits for the newest definitions before it tells of those that it knows.
const FRESH_TIMEOUT: Duration = Duration::from_secs(3);
/// Documents that are kept: those of one registry in all forms, and some more.
const KEPT_MAX: usize = 256;

/// Documents that take long to make, by the hash of what they are made from.
#[derive(Debug, Default)]
pub struct Kept(Mutex<HashMap<String, Bytes>>);

impl Kept {
    fn get(&self, key: String, make: impl FnOnce() -> Option<Vec<u8>>) -> Option<Bytes> {
        if let Some(bytes) = self.0.lock().get(&key) {
            return Some(bytes.clone());
        }
        // Two may make the same one. That is better than one waiting for the other with a lock held.
        let bytes = Bytes::from(make()?);
        let mut kept = self.0.lock();
        if KEPT_MAX <= kept.len() {
            kept.clear();
        }
        kept.insert(key, bytes.clone());
        Some(bytes)
    }
}

pub async fn answer(
    door: &Arc<Door>,
    page: &Page,
    query: &Query,
    headers: &HeaderMap,
    look: &Look,
) -> Result<Response<Body>, Refusal> {
    match page {
        Page::Root => Ok(json_page(&root(registry(door).await.as_ref()), look)),
        Page::Version => Ok(json_page(&version::document(), look)),
        Page::Health { probe, check } => health::answer(door, *probe, check.as_deref(), query).await,
        Page::Metrics => Ok(metrics(door)),
        Page::CoreVersions | Page::Groups => {
            let form = negotiate(&look.accept, &discovery::OFFER)?;
            let registry = registry(door).await;
            let etag = discovery::etag(&registry, form.aggregated());
            if has_already(headers, &etag) {
                return Ok(unchanged(&etag));
            }
            let document = match page {
                Page::Groups => discovery::groups(&registry, form.aggregated()),
                _ => discovery::core(&registry, form.aggregated()),
            };
            Ok(with_etag(answer::value(StatusCode::OK, &form, look, &document)?, &etag))
        }
        Page::CoreResources { version } => resources(door, "", version, headers, look).await,
        Page::GroupResources { group, version } => resources(door, group, version, headers, look).await,
        Page::Group { group } => {
            let registry = registry(door).await;
            let document = discovery::group(&registry, group).ok_or_else(Refusal::no_such_page)?;
            Ok(json_page(&document, look))
        }
        Page::OpenApiV2 => openapi_v2(door, headers, look).await,
        Page::OpenApiV3Index => Ok(json_page(&v3::index(registry(door).await.as_ref()), look)),
        Page::OpenApiV3 { document } => openapi_v3(door, document, headers).await,
    }
}

/// With all definitions that were acknowledged, if the store can be asked.
async fn registry(door: &Door) -> Arc<Registry> {
    match tokio::time::timeout(FRESH_TIMEOUT, door.storage.kinds().fresh()).await {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(_)) | Err(_) => door.storage.kinds().now(),
    }
}

fn json_page(document: &Value, look: &Look) -> Response<Body> {
    let bytes = if look.pretty { super::show::indented(document) } else { document.to_string().into_bytes() };
    answer::new(StatusCode::OK, Media::Json.mime(), answer::full(bytes))
}

fn root(registry: &Registry) -> Value {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
    for group in registry.groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|each| format!("/apis/{}/{}", group.name, each.version)));
    }
    let others = ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(others.map(str::to_owned));
    json!({ "paths": paths })
}

async fn resources(
    door: &Door,
    group: &str,
    version: &str,
    headers: &HeaderMap,
    look: &Look,
) -> Result<Response<Body>, Refusal> {
    let registry = registry(door).await;
    let document = discovery::resources(&registry, group, version).ok_or_else(Refusal::no_such_page)?;
    let etag = discovery::etag(&registry, None);
    if has_already(headers, &etag) {
        return Ok(unchanged(&etag));
    }
    Ok(with_etag(json_page(&document, look), &etag))
}

async fn openapi_v2(door: &Arc<Door>, headers: &HeaderMap, look: &Look) -> Result<Response<Body>, Refusal> {
    let form = negotiate(&look.accept, &v2::OFFER)?;
    let registry = registry(door).await;
    let etag = format!("\"{}-{:?}\"", registry.hash(), form.media);
    if has_already(headers, &etag) {
        return Ok(unchanged(&etag));
    }
    let bytes = door
        .kept
        .get(format!("v2 {etag}"), || Some(v2::body(&registry, form.media)))
        .ok_or_else(Refusal::no_such_page)?;
    Ok(with_etag(answer::new(StatusCode::OK, form.content_type(), answer::full(bytes)), &etag))
}

async fn openapi_v3(
    door: &Arc<Door>,
    document: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let parts: Vec<&str> = document.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Err(Refusal::no_such_page()),
    };
    let registry = registry(door).await;
    let etag = v3::etag(&registry, group, version).ok_or_else(Refusal::no_such_page)?;
    if has_already(headers, &etag) {
        return Ok(unchanged(&etag));
    }
    let make = || v3::document(&registry, group, version).map(|document| document.to_string().into_bytes());
    let bytes = door.kept.get(format!("v3 {document} {etag}"), make).ok_or_else(Refusal::no_such_page)?;
    Ok(with_etag(answer::new(StatusCode::OK, Media::Json.mime(), answer::full(bytes)), &etag))
}

fn has_already(headers: &HeaderMap, etag: &str) -> bool {
    header(headers, &IF_NONE_MATCH).split(',').map(str::trim).any(|known| known == etag || known == "*")
}

fn unchanged(etag: &str) -> Response<Body> {
    let mut response = answer::new(StatusCode::NOT_MODIFIED, Media::Json.mime(), answer::full(""));
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    with_etag(response, etag)
}

fn with_etag(mut response: Response<Body>, etag: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

fn text(body: impl Into<Bytes>) -> Response<Body> {
    answer::new(StatusCode::OK, "text/plain; charset=utf-8", answer::full(body))
}

fn metrics(door: &Door) -> Response<Body> {
    let (in_flight, waiting) = door.gate.counts();
    let gauges = Gauges {
        in_flight,
        waiting,
        watches: door.watches.load(Ordering::Relaxed),
        connections: door.connections_max - door.connections.available_permits(),
    };
    let feeds = super::metrics::of_feeds(&door.storage.feeds().counters());
    let keeper = super::metrics::of_keeper(&door.keeper);
    let mut response = text(door.metrics.text(&gauges) + &feeds + &keeper);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}
