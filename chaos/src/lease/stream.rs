//! One LeaseKeepAlive call, raw: ids in, answers out, each as the stub has it.
//!
//! The call is opened in the background, because a server may send nothing, not even headers, until
//! it has something to answer. Dropping the stream ends the call.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Requests on their way before `send` waits.
const REQUESTS_IN_FLIGHT: usize = 64;

/// One open LeaseKeepAlive call.
#[derive(Debug)]
pub struct KeepAliveStream {
    /// None once half-closed.
    requests: Option<mpsc::Sender<LeaseKeepAliveRequest>>,
    answers: Answers,
}

#[derive(Debug)]
enum Answers {
    Opening(Abort<Result<Streaming<LeaseKeepAliveResponse>, Status>>),
    Open(Box<Streaming<LeaseKeepAliveResponse>>),
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

/// What came of waiting for an answer.
#[derive(Clone, Debug)]
pub enum Next {
    /// This one.
    Answer(LeaseKeepAliveResponse),
    /// None in the time given; the call goes on.
    Nothing,
    /// The call is over; a status if it was broken off.
    Ended(Option<Status>),
}

impl KeepAliveStream {
    /// Opens a call. Must be called on a runtime.
    pub(crate) fn open(channel: Channel) -> Self {
        let (requests, receiver) = mpsc::channel(REQUESTS_IN_FLIGHT);
        let opening = tokio::spawn(async move {
            let mut client = LeaseClient::new(channel);
            client.lease_keep_alive(ReceiverStream::new(receiver)).await.map(tonic::Response::into_inner)
        });
        Self { requests: Some(requests), answers: Answers::Opening(Abort(opening)) }
    }

    /// Asks for one lease to be renewed. If the call is over it goes nowhere; `next` says why.
    pub async fn send(&self, id: i64) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(LeaseKeepAliveRequest { id }).await;
        }
    }

    /// Says that nothing more will be asked for; answers may still come.
    pub fn half_close(&mut self) {
        self.requests = None;
    }

    /// The next answer, waiting no longer than this. May be cancelled at any await without loss.
    pub async fn next(&mut self, within: Duration) -> Next {
        match tokio::time::timeout(within, self.message()).await {
            Err(_) => Next::Nothing,
            Ok(Ok(Some(answer))) => Next::Answer(answer),
            Ok(Ok(None)) => Next::Ended(None),
            Ok(Err(status)) => Next::Ended(Some(status)),
        }
    }

    async fn message(&mut self) -> Result<Option<LeaseKeepAliveResponse>, Status> {
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
