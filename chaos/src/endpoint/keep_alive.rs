//! One LeaseKeepAlive call, raw: ids in, answers out, each as the stub has it.
//!
//! Dropping the stream ends the call.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::answers::Answers;

/// Requests on their way before `send` waits.
const REQUESTS_IN_FLIGHT: usize = 64;

/// One open LeaseKeepAlive call.
#[derive(Debug)]
pub struct KeepAliveStream {
    /// None once half-closed.
    requests: Option<mpsc::Sender<LeaseKeepAliveRequest>>,
    answers: Answers<LeaseKeepAliveResponse>,
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
    pub(super) fn open(channel: Channel) -> Self {
        let (requests, receiver) = mpsc::channel(REQUESTS_IN_FLIGHT);
        let call =
            async move { LeaseClient::new(channel).lease_keep_alive(ReceiverStream::new(receiver)).await };
        Self { requests: Some(requests), answers: Answers::of(call) }
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
        match self.answers.next(within).await {
            None => Next::Nothing,
            Some(Ok(Some(answer))) => Next::Answer(answer),
            Some(Ok(None)) => Next::Ended(None),
            Some(Err(status)) => Next::Ended(Some(status)),
        }
    }
}
