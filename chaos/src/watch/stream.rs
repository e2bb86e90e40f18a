//! One Watch call, raw: requests in, responses out, each as the stub has it.
//!
//! The call is opened in the background, because a server may send nothing, not even headers, until
//! it has something to say. Dropping the stream ends the call.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use meerkat_proto::pb::etcdserver::{WatchRequest, WatchResponse};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::Failure;

/// Requests on their way before `send` waits.
const REQUESTS_IN_FLIGHT: usize = 1024;

/// One open Watch call.
#[derive(Debug)]
pub struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    answers: Answers,
}

#[derive(Debug)]
enum Answers {
    Opening(Abort<Result<Streaming<WatchResponse>, Status>>),
    Open(Box<Streaming<WatchResponse>>),
    Refused(Status),
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Abort<T>(JoinHandle<T>);

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
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
    pub(crate) fn open(channel: Channel, metadata: &[(&'static str, &str)]) -> Result<Self, Failure> {
        let mut headers = MetadataMap::new();
        for (name, value) in metadata {
            let value = MetadataValue::try_from(*value)
                .map_err(|error| Failure::harness(format!("metadata {name}: {value:?}: {error}")))?;
            headers.insert(*name, value);
        }
        let (requests, receiver) = mpsc::channel(REQUESTS_IN_FLIGHT);
        let opening = tokio::spawn(async move {
            let mut request = Request::new(ReceiverStream::new(receiver));
            *request.metadata_mut() = headers;
            let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
            client.watch(request).await.map(tonic::Response::into_inner)
        });
        Ok(Self { requests, answers: Answers::Opening(Abort(opening)) })
    }

    /// Sends a request. If the call is over it goes nowhere; `next` says why.
    pub async fn send(&self, request: WatchRequest) {
        let _ = self.requests.send(request).await;
    }

    /// The next response, waiting no longer than this. May be cancelled at any await without loss.
    pub async fn next(&mut self, within: Duration) -> Next {
        match tokio::time::timeout(within, self.message()).await {
            Err(_) => Next::Nothing,
            Ok(Ok(Some(response))) => Next::Response(Box::new(response)),
            Ok(Ok(None)) => Next::Ended(None),
            Ok(Err(status)) => Next::Ended(Some(status)),
        }
    }

    async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        if let Answers::Opening(opening) = &mut self.answers {
            self.answers = match (&mut opening.0).await {
                Ok(Ok(open)) => Answers::Open(Box::new(open)),
                Ok(Err(status)) => Answers::Refused(status),
                Err(error) => Answers::Refused(Status::unknown(format!("the opening task ended: {error}"))),
            };
        }
        match &mut self.answers {
            Answers::Open(open) => open.message().await,
            Answers::Refused(status) => Err(status.clone()),
            Answers::Opening(_) => Ok(None),
        }
    }
}
