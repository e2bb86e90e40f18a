//! The layer around all services that gives calls their spans.
//!
//! A span lasts as long as its call: to the answer's trailers, or to the end of the stream. A call that its
//! client gave up ends as `Cancelled`.

use super::span::{self, Begun};
use super::stage::{self, Here};
use super::{Method, Tracer};
use crate::client_port::ClientAddress;
use axum::body::Body;
use http::{Request, Response};
use http_body::Frame;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::{Code, Status};
use tower::Service;

#[derive(Clone)]
pub(crate) struct Traced<S> {
    inner: S,
    tracer: Tracer,
}

impl<S> Traced<S> {
    pub(crate) fn new(inner: S, tracer: Tracer) -> Traced<S> {
        Traced { inner, tracer }
    }
}

impl<S> Service<Request<Body>> for Traced<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some((begun, method)) = self.tracer.begin(request.uri().path(), request.headers()) else {
            return Box::pin(self.inner.call(request));
        };
        let client = request.extensions().get::<ClientAddress>().map(|client| client.0);
        let here = Here { tracer: self.tracer.clone(), trace: begun.trace, span: begun.span };
        let mut call = Call { tracer: self.tracer.clone(), begun, method, client, ended: false };
        let response = stage::within(here, self.inner.call(request));
        Box::pin(async move {
            let response = response.await?;
            if let Some(status) = Status::from_header_map(response.headers()) {
                call.end(status.code(), status.message());
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(Followed { body, call })))
        })
    }
}

/// A call under way. One that is dropped was given up by its client.
struct Call {
    tracer: Tracer,
    begun: Begun,
    method: Arc<Method>,
    client: Option<SocketAddr>,
    ended: bool,
}

impl Call {
    fn end(&mut self, code: Code, message: &str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut attributes = vec![
            span::text("rpc.system", "grpc"),
            span::text("rpc.service", self.method.service.as_str()),
            span::text("rpc.method", self.method.method.as_str()),
            span::number("rpc.grpc.status_code", i64::from(code as i32)),
        ];
        // A client at a unix socket has none.
        if let Some(client) = self.client.filter(|client| !client.ip().is_unspecified()) {
            attributes.push(span::text("net.sock.peer.addr", client.ip().to_string()));
            attributes.push(span::number("net.sock.peer.port", client.port().into()));
        }
        self.tracer.record(self.begun.ended(&self.method.name, attributes, span::status(code, message)));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Code::Cancelled, "");
    }
}

/// An answer whose end is the end of its call.
struct Followed {
    body: Body,
    call: Call,
}

impl http_body::Body for Followed {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(status) = frame.trailers_ref().and_then(Status::from_header_map)
        {
            self.call.end(status.code(), status.message());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
