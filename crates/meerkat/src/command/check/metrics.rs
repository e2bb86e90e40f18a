//! One number out of a member's metrics page.
//!
//! In clear the page is asked for with HTTP/1.0, which every member answers; encrypted, over the same
//! kind of connection that requests go by.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::command::cluster::Cluster;
use crate::endpoint::Endpoint;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Far above what members have to say.
const PAGE_BYTES_MAX: u64 = 16 << 20;
const NAME: &str = "process_resident_memory_bytes";

/// Of the process at the first endpoint.
pub async fn resident_memory_bytes(cluster: &Cluster) -> Result<f64, String> {
    let endpoint = &cluster.endpoints()[0];
    let page = tokio::time::timeout(TIMEOUT, page(cluster, endpoint)).await;
    let page = page.map_err(|_| format!("{endpoint}/metrics: no answer in {TIMEOUT:?}"))??;
    value(&page, NAME).ok_or_else(|| format!("{endpoint}/metrics does not tell {NAME}"))
}

async fn page(cluster: &Cluster, endpoint: &Endpoint) -> Result<String, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{endpoint}/metrics: {error}");
    let uri = cluster.dialing().uri(endpoint);
    if uri.starts_with("https://") {
        let channel = cluster.channel(endpoint).await.map_err(|error| wrong(&error))?;
        let request = http::Request::get(format!("{uri}/metrics")).body(tonic::body::Body::empty());
        let request = request.map_err(|error| wrong(&error))?;
        let answer = channel.oneshot(request).await.map_err(|error| wrong(&error))?;
        let body = answer.into_body().collect().await.map_err(|error| wrong(&error))?;
        return Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned());
    }
    let mut stream = TcpStream::connect(endpoint.authority()).await.map_err(|error| wrong(&error))?;
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", endpoint.authority());
    stream.write_all(request.as_bytes()).await.map_err(|error| wrong(&error))?;
    let mut bytes = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut bytes).await.map_err(|error| wrong(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of a metric without labels.
fn value(page: &str, name: &str) -> Option<f64> {
    let rest = page.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')))?;
    rest.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let page = "# HELP m_bytes x\nm_bytes_total 7\nm_bytes 3.6e+07\n";
        assert_eq!(value(page, "m_bytes"), Some(3.6e7));
        assert_eq!(value(page, "m"), None);
    }
}
