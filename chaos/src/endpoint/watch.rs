//! One Watch call, raw: requests in, responses out, each as the stub has it.
//!
//! Dropping the stream ends the call.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use meerkat_proto::pb::etcdserver::{WatchRequest, WatchResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::answers::Answers;
use crate::Failure;

/// Requests on their way before `send` waits.
const REQUESTS_IN_FLIGHT: usize = 1024;

/// One open Watch call.
#[derive(Debug)]
pub struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    answers: Answers<WatchResponse>,
}

/// What came of waiting for a response.
#[derive(Debug)]
pub enum Next {
    /// This one.
    Response(Box<WatchResponse>),
    /// None in the time given; the call goes on.
    Nothing,
    /// The call is over; a status if it was broken off.
    Ended(Option<Status>),
}

impl WatchStream {
    /// Opens a call with request metadata of the caller's choice. Must be called on a runtime.
    pub(super) fn open(channel: Channel, metadata: &[(&'static str, &str)]) -> Result<Self, Failure> {
        let mut headers = MetadataMap::new();
        for (name, value) in metadata {
            let value = MetadataValue::try_from(*value)
                .map_err(|error| Failure::harness(format!("metadata {name}: {value:?}: {error}")))?;
            headers.insert(*name, value);
        }
        let (requests, receiver) = mpsc::channel(REQUESTS_IN_FLIGHT);
        let call = async move {
            let mut request = Request::new(ReceiverStream::new(receiver));
            *request.metadata_mut() = headers;
            WatchClient::new(channel).max_decoding_message_size(usize::MAX).watch(request).await
        };
        Ok(Self { requests, answers: Answers::of(call) })
    }

    /// Sends a request. If the call is over it goes nowhere; `next` says why.
    pub async fn send(&self, request: WatchRequest) {
        let _ = self.requests.send(request).await;
    }

    /// The next response, waiting no longer than this. May be cancelled at any await without loss.
    pub async fn next(&mut self, within: Duration) -> Next {
        match self.answers.next(within).await {
            None => Next::Nothing,
            Some(Ok(Some(response))) => Next::Response(Box::new(response)),
            Some(Ok(None)) => Next::Ended(None),
            Some(Err(status)) => Next::Ended(Some(status)),
        }
    }
}
