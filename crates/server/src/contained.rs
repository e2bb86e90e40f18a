//! A panic in the handler of one request is the failure of that request.
//!
//! Around everything that can be asked for on the ports of etcd's API and that of members. Whoever asked is answered INTERNAL, or
//! 500 where it did not speak gRPC; where it happened, the panic hook has logged and counted it.
//! A handler that panics while it changes what others share does not come this far (`meerkat_fault`). A
//! client that tried the next member after a lost connection would else take each of them down in turn.

use crate::around::{around, ask};
use crate::grpc::status;
use axum::body::Body;
use axum::response::IntoResponse;
use futures::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// All routes, each with what keeps its panics from the others.
pub(crate) fn contained(routes: axum::Router) -> axum::Router {
    around(routes, |route, request| alone(request, |request| ask(route, request)))
}

/// Answers a request; a panic on the way is its failure alone.
pub(crate) async fn alone<F: Future<Output = Response<Body>>>(
    request: Request<Body>,
    answer: impl FnOnce(Request<Body>) -> F,
) -> Response<Body> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let asked = Asked { path: request.uri().clone(), is_grpc };
    match AssertUnwindSafe(async { answer(request).await }).catch_unwind().await {
        Ok(response) => response.map(|body| Body::new(Answer { body, asked, failed: false })),
        Err(_) => asked.failed(),
    }
}

struct Asked {
    path: Uri,
    is_grpc: bool,
}

impl Asked {
    fn note(&self) {
        tracing::error!(path = self.path.path(), "a request made its handler panic");
    }

    fn failed(&self) -> Response<Body> {
        self.note();
        let status = status::panicked();
        match self.is_grpc {
            true => status.into_http(),
            false => (StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", status.message())).into_response(),
        }
    }
}

/// A body that ends when making it has panicked.
struct Answer {
    body: Body,
    asked: Asked,
    failed: bool,
}

impl Answer {
    /// With its status where there is a place for one; else cut off, so that nobody takes it for whole.
    fn end(&mut self) -> Result<Frame<bytes::Bytes>, axum::Error> {
        self.failed = true;
        self.asked.note();
        let status = status::panicked();
        match self.asked.is_grpc {
            true => {
                let mut trailers = HeaderMap::new();
                status.add_header(&mut trailers).map_err(axum::Error::new)?;
                Ok(Frame::trailers(trailers))
            }
            false => Err(axum::Error::new(status)),
        }
    }
}

impl http_body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        let me = &mut *self;
        if me.failed {
            return Poll::Ready(None);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut me.body).poll_frame(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Some(me.end())))
    }

    fn is_end_stream(&self) -> bool {
        self.failed || self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::any;
    use http_body_util::BodyExt;
    use tonic::{Code, Status};
    use tower::ServiceExt;

    async fn panics() -> &'static str {
        panic!("a mistake")
    }

    async fn panics_later() -> Body {
        let frames = futures::stream::iter(0..2).map(|number| match number {
            0 => Ok::<_, std::convert::Infallible>("first"),
            _ => panic!("a mistake"),
        });
        Body::from_stream(frames)
    }

    use futures::StreamExt;

    async fn ask(path: &str, kind: &str) -> Response<Body> {
        let routes = axum::Router::new()
            .route("/now", any(panics))
            .route("/later", any(panics_later))
            .route("/fine", any(async || "here"));
        let request = Request::post(path).header(header::CONTENT_TYPE, kind).body(Body::empty());
        let answered = contained(routes).oneshot(request.expect("a request")).await;
        answered.expect("always an answer")
    }

    #[tokio::test]
    async fn a_handler_that_panics_fails_its_request_alone() {
        let response = ask("/now", "application/grpc").await;
        let status = Status::from_header_map(response.headers()).expect("a status");
        assert_eq!(status.code(), Code::Internal);
        let response = ask("/now", "application/json").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let response = ask("/fine", "application/json").await;
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "here");
    }

    #[tokio::test]
    async fn an_answer_that_panics_half_way_ends_with_the_status_or_is_cut_off() {
        let response = ask("/later", "application/grpc").await;
        let whole = response.into_body().collect().await.expect("an end");
        let status = whole.trailers().and_then(Status::from_header_map).expect("a status");
        assert_eq!((status.code(), whole.to_bytes()), (Code::Internal, "first".into()));
        let response = ask("/later", "text/plain").await;
        assert!(response.into_body().collect().await.is_err(), "taken for whole");
    }
}
