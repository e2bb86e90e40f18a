//! What a gRPC call answers, as JSON: one object, or a line for each message of a stream.

use super::frames::Unframe;
use super::{Malformed, errors, json_out};
use crate::grpc::status;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use http_body_util::BodyExt;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use std::convert::Infallible;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Where etcd's gateway puts the header of that name of the gRPC answer.
const GRPC_CONTENT_TYPE: HeaderName = HeaderName::from_static("grpc-metadata-content-type");

pub(super) struct Answers {
    body: Body,
    unframe: Unframe,
    kind: MessageDescriptor,
    /// The status, once it is known.
    status: Option<Status>,
}

type Failed = Option<oneshot::Receiver<Malformed>>;

impl Answers {
    pub(super) fn new(response: Response, kind: MessageDescriptor) -> Answers {
        let status = Status::from_header_map(response.headers());
        Answers { body: response.into_body(), unframe: Unframe::default(), kind, status }
    }

    /// The next message as JSON; `None` at a good end.
    async fn next(&mut self) -> Result<Option<String>, Status> {
        loop {
            if let Some(message) = self.unframe.next() {
                let message = DynamicMessage::decode(self.kind.clone(), message);
                let message = message.map_err(|error| status::malformed(&error))?;
                return Ok(Some(json_out::message(&message)));
            }
            match &self.status {
                Some(status) if status.code() == Code::Ok => return Ok(None),
                Some(status) => return Err(status.clone()),
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Status> {
        match self.body.frame().await {
            None => return Err(status::no_answer()),
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer to the gateway broke off");
                return Err(status::no_answer());
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.unframe.push(data);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    self.status = Status::from_header_map(trailers);
                }
            }
        }
        Ok(())
    }

    /// The answer to a call that has one.
    pub(super) async fn one(mut self) -> Result<Response, Status> {
        let json = self.next().await?.ok_or_else(status::no_answer)?;
        // The status comes after the message.
        while self.next().await?.is_some() {}
        Ok(json_response(Body::from(json)))
    }

    /// The answer to a call that has many. Nothing is said before the first: only then is it known whether
    /// the call was taken at all.
    pub(super) async fn stream(
        mut self,
        mut failed: Failed,
        end: Option<Instant>,
    ) -> Result<Response, Status> {
        let Some(first) = self.next_or_failed(&mut failed).await? else {
            return Ok(json_response(Body::empty()));
        };
        let state = Some((self, failed, Some(first)));
        let lines = futures::stream::unfold(state, move |state| async move {
            let (mut answers, mut failed, first) = state?;
            let next = match first {
                Some(first) => Ok(Some(first)),
                None => answers.next_before(end, &mut failed).await,
            };
            let sent = |line: String| Ok::<Bytes, Infallible>(line.into());
            match next {
                Ok(Some(json)) => {
                    Some((sent(format!("{{\"result\":{json}}}\n")), Some((answers, failed, None))))
                }
                Ok(None) => None,
                Err(status) => Some((sent(errors::line(&status)), None)),
            }
        });
        Ok(json_response(Body::from_stream(lines)))
    }

    /// The next one, if it comes in time.
    async fn next_before(
        &mut self,
        end: Option<Instant>,
        failed: &mut Failed,
    ) -> Result<Option<String>, Status> {
        let Some(end) = end else { return self.next_or_failed(failed).await };
        // A timeout looks at the clock only if there is nothing yet: a stream that always has more would
        // never end.
        if end <= Instant::now() {
            return Err(status::out_of_time());
        }
        let next = tokio::time::timeout_at(end, self.next_or_failed(failed));
        next.await.unwrap_or_else(|_| Err(status::out_of_time()))
    }

    async fn next_or_failed(&mut self, failed: &mut Failed) -> Result<Option<String>, Status> {
        let Some(receiver) = failed else { return self.next().await };
        let told = tokio::select! {
            biased;
            next = self.next() => return next,
            told = receiver => told,
        };
        // Without the other end there will be no request that cannot be read.
        *failed = None;
        match told {
            Ok(malformed) => Err(malformed.status()),
            Err(_) => self.next().await,
        }
    }
}

fn json_response(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(GRPC_CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{frames, routes::Routes};
    use futures::StreamExt;
    use meerkat_proto::pb::etcdserver::WatchResponse;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_always_has_more_ends_in_time() {
        let routes = Routes::new();
        let kind = routes.find("/v3/watch").expect("a call").descriptor.output();
        let message = frames::frame(&WatchResponse { watch_id: 7, ..WatchResponse::default() });
        let endless = futures::stream::repeat_with(move || Ok::<_, Infallible>(message.clone()));
        let answers = Answers::new(Response::new(Body::from_stream(endless)), kind);
        let end = Instant::now() + Duration::from_secs(1);
        let response = answers.stream(None, Some(end)).await.expect("it has begun");
        let mut lines = response.into_body().into_data_stream();
        for is_over in [false, false, true] {
            if is_over {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            let line = lines.next().await.expect("a line").expect("a good one");
            let expected = if is_over { "{\"error\":{\"grpc_code\":4," } else { "{\"result\":" };
            assert!(line.starts_with(expected.as_bytes()), "{is_over}: {line:?}");
        }
        assert!(lines.next().await.is_none(), "that was the last");
    }
}
