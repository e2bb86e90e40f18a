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
                None => {
                    let next = answers.next_or_failed(&mut failed);
                    match end {
                        None => next.await,
                        Some(end) => tokio::time::timeout_at(end, next)
                            .await
                            .unwrap_or_else(|_| Err(status::out_of_time())),
                    }
                }
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
