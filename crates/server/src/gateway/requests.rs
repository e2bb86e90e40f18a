//! The messages that a body of JSON asks for, one after the other as they arrive.

use super::Malformed;
use super::frames::frame;
use super::json_in;
use super::split::Split;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use std::convert::Infallible;
use tokio::sync::oneshot;

pub(super) struct Requests {
    body: Body,
    split: Split,
    kind: MessageDescriptor,
    ended: bool,
}

impl Requests {
    pub(super) fn new(body: Body, kind: MessageDescriptor, json_bytes_max: usize) -> Requests {
        Requests { body, split: Split::new(json_bytes_max), kind, ended: false }
    }

    pub(super) async fn next(&mut self) -> Result<Option<DynamicMessage>, Malformed> {
        loop {
            if let Some(json) = self.split.next()? {
                return json_in::message(&self.kind, &json).map(Some);
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                None => {
                    self.ended = true;
                    self.split.end();
                }
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|data| self.split.push(data)),
                Some(Err(error)) => return Err(Malformed::new(format!("the body ended early: {error}"))),
            }
        }
    }

    /// The same as the body of a gRPC call. What cannot be read is told to `malformed`, and then nothing
    /// more is sent: whoever hears it ends the call.
    pub(super) fn into_body(
        self,
        first: Option<DynamicMessage>,
        malformed: oneshot::Sender<Malformed>,
    ) -> Body {
        let state = (self, first, malformed);
        Body::from_stream(futures::stream::unfold(state, |(mut requests, first, malformed)| async move {
            let next = match first {
                Some(first) => Ok(Some(first)),
                None => requests.next().await,
            };
            match next {
                Ok(Some(message)) => {
                    let sent: Result<Bytes, Infallible> = Ok(frame(&message));
                    Some((sent, (requests, None, malformed)))
                }
                Ok(None) => None,
                Err(error) => {
                    // If nobody listens, the call is over anyway.
                    let _ = malformed.send(error);
                    std::future::pending().await
                }
            }
        }))
    }
}

/// Reads what comes after the request that counts, and heeds none of it, for as long as somebody waits for
/// the answer. Left unread, it would hide the end of its client; and a connection over HTTP/1 is only there
/// for the next request if this one was read to its end.
pub(super) async fn pass_over(rest: Option<Requests>) -> Infallible {
    if let Some(mut rest) = rest {
        while let Some(Ok(_)) = rest.body.frame().await {}
    }
    std::future::pending().await
}
