//! Requests to one member, and its answers.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

use super::error::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that nobody used for so long are closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A body that is read whole is never longer: a page of a list is bounded by the number of its objects.
const BODY_MAX: usize = 512 << 20;
/// For a member to say whether it serves.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// See the module. Connections are kept for the next request.
pub(crate) struct Wire {
    client: Client<HttpConnector, Full<Bytes>>,
    token: Option<HeaderValue>,
}

/// A request as it is sent to whichever member.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get() -> Call {
        Call { method: Method::GET, content_type: "", body: Bytes::new() }
    }
}

/// Why no answer came.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The member was not reached.
    NotSent(String),
    /// It may have heard the request.
    Lost(String),
}

/// An answer whose body is yet to be read.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Incoming,
}

impl Wire {
    pub(crate) fn new(token: Option<&str>) -> Result<Wire, Error> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let mut token =
            token.transpose().map_err(|_| Error::invalid("the token has letters that no header takes"))?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Wire { client, token })
    }

    /// Sends it, and waits until the member begins to answer, or until the time is over.
    pub(crate) async fn send(&self, url: &str, call: &Call, within: Duration) -> Result<Reply, Failed> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(url)
            .header(ACCEPT, "application/json")
            .body(Full::new(call.body.clone()))
            .map_err(|error| Failed::NotSent(error.to_string()))?;
        if !call.content_type.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        match tokio::time::timeout(within, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(reply(response)),
            Ok(Err(error)) if error.is_connect() => Err(Failed::NotSent(told(&error))),
            Ok(Err(error)) => Err(Failed::Lost(told(&error))),
            Err(_) => Err(Failed::Lost(format!("no answer within {within:?}"))),
        }
    }

    /// Whether the member at this base URL says that it serves.
    pub(crate) async fn serves(&self, url: &str) -> bool {
        let asked = self.send(&format!("{url}/readyz"), &Call::get(), PROBE_TIMEOUT).await;
        asked.is_ok_and(|reply| reply.code == 200)
    }
}

fn reply(response: Response<Incoming>) -> Reply {
    let seconds =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Reply {
        code: response.status().as_u16(),
        retry_after: seconds.map(Duration::from_secs),
        body: response.into_body(),
    }
}

/// The whole of a body.
pub(crate) async fn whole(body: Incoming, within: Duration) -> Result<Bytes, String> {
    match tokio::time::timeout(within, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("half an answer within {within:?}")),
    }
}

/// An error of hyper names what went wrong only in its sources.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
