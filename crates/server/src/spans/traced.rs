//! What gives calls their spans.
//!
//! A span lasts as long as its call: to the answer's trailers, or to the end of the stream. A call that its
//! client gave up ends as `Cancelled`.

use super::Tracer;
use super::span::{self, Begun};
use super::stage::{self, Here};
use crate::client_port::ClientAddress;
use crate::methods::Method;
use axum::body::Body;
use http::{Request, Response};
use http_body::Frame;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::{Code, Status};

impl Tracer {
    /// Answers a call, within a span of its own if it is to have one.
    pub(crate) async fn follow<F: Future<Output = Response<Body>>>(
        &self,
        request: Request<Body>,
        answer: impl FnOnce(Request<Body>) -> F,
    ) -> Response<Body> {
        let Some((begun, method)) = self.begin(request.uri().path(), request.headers()) else {
            return answer(request).await;
        };
        let client = request.extensions().get::<ClientAddress>().map(|client| client.0);
        let here = Here { tracer: self.clone(), trace: begun.trace, span: begun.span };
        let mut call = Call { tracer: self.clone(), begun, method, client, ended: false };
        let response = stage::within(here, answer(request)).await;
        if let Some(status) = Status::from_header_map(response.headers()) {
            call.end(status.code(), status.message());
            return response;
        }
        response.map(|body| Body::new(Followed { body, call }))
    }
}

/// A call under way. One that is dropped was given up by its client.
struct Call {
    tracer: Tracer,
    begun: Begun,
    method: &'static Method,
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
            span::text("rpc.service", self.method.service()),
            span::text("rpc.method", self.method.method()),
            span::number("rpc.grpc.status_code", i64::from(code as i32)),
        ];
        // A client at a unix socket has none.
        if let Some(client) = self.client.filter(|client| !client.ip().is_unspecified()) {
            attributes.push(span::text("net.sock.peer.addr", client.ip().to_string()));
            attributes.push(span::number("net.sock.peer.port", client.port().into()));
        }
        self.tracer.record(self.begun.ended(self.method.name(), attributes, span::status(code, message)));
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
