//! One watch stream at the level of gRPC messages.
//!
//! Requests go out as bytes, so that a message which no generated stub can build (an empty union, a
//! union of a kind nobody knows) can be sent too. Everything that comes back is written into a
//! [`Transcript`] by a task of its own: a caller only asks what has been heard so far, and waits
//! for it to become more. Servers send no headers before their first answer, so opening a stream
//! never waits for one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use meerkat_proto::pb::etcdserver::{WatchRequest, WatchResponse, watch_request};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::transcript::{Identity, Transcript};
use crate::Failure;
use crate::driver::Product;

/// Within which time anything owed must have come.
pub const HEARD_WITHIN: Duration = Duration::from_secs(10);
const PATH: &str = "/etcdserverpb.Watch/Watch";
/// Requests that may wait to be sent. A caller waits for the answer to each, so few ever do.
const REQUESTS_QUEUED_MAX: usize = 16;

/// A watch stream; closed when dropped.
#[derive(Debug)]
pub struct WatchStream {
    whose: Product,
    requests: Option<mpsc::Sender<Bytes>>,
    heard: Arc<Mutex<Transcript>>,
    changed: watch::Receiver<u64>,
    reader: JoinHandle<()>,
}

impl WatchStream {
    /// Opens a stream to the member behind a channel. With `requires_leader` it says so.
    pub fn open(whose: Product, channel: &Channel, identity: Identity, requires_leader: bool) -> Self {
        let (requests, queued) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let heard = Arc::new(Mutex::new(Transcript::new(identity)));
        let (notify, changed) = watch::channel(0);
        let mut request = Request::new(ReceiverStream::new(queued));
        if requires_leader {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        let reader = tokio::spawn(read(channel.clone(), request, heard.clone(), notify));
        Self { whose, requests: Some(requests), heard, changed, reader }
    }

    /// Sends a request.
    pub async fn send(&self, union: watch_request::RequestUnion) -> Result<(), Failure> {
        self.send_raw(WatchRequest { request_union: Some(union) }.encode_to_vec().into()).await
    }

    /// Sends bytes as a request.
    pub async fn send_raw(&self, message: Bytes) -> Result<(), Failure> {
        let Some(requests) = &self.requests else {
            return Err(Failure::harness("a half-closed stream was asked to send"));
        };
        requests.send(message).await.map_err(|_| {
            Failure::broken(format!(
                "a watch stream ended by itself: {:?}",
                self.look(|heard| heard.ended().cloned())
            ))
        })
    }

    /// Ends the sending side; the other stays open.
    pub fn half_close(&mut self) {
        self.requests = None;
    }

    /// Looks at what has been heard.
    pub fn look<T>(&self, at: impl FnOnce(&Transcript) -> T) -> T {
        at(&self.heard.lock().expect("nobody panics while writing a transcript"))
    }

    /// Changes what has been heard: for the few wanted differences.
    pub fn amend(&self, change: impl FnOnce(&mut Transcript)) {
        change(&mut self.heard.lock().expect("nobody panics while writing a transcript"));
    }

    /// Waits for something that is owed.
    pub async fn await_heard(&self, what: &str, enough: impl Fn(&Transcript) -> bool) -> Result<(), Failure> {
        if self.wait_until(HEARD_WITHIN, enough).await {
            return Ok(());
        }
        let ended = self.look(|heard| heard.ended().cloned());
        Err(Failure::broken(format!(
            "{:?} has not sent {what} within {HEARD_WITHIN:?}; the stream's end: {ended:?}",
            self.whose
        )))
    }

    /// Waits until what has been heard is enough. Says whether it became so in time.
    pub async fn wait_until(&self, within: Duration, enough: impl Fn(&Transcript) -> bool) -> bool {
        let mut changed = self.changed.clone();
        let waiting = async {
            loop {
                changed.mark_unchanged();
                if self.look(&enough) {
                    return true;
                }
                if changed.changed().await.is_err() {
                    return self.look(&enough);
                }
            }
        };
        tokio::time::timeout(within, waiting).await.unwrap_or(false)
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(
    channel: Channel,
    request: Request<ReceiverStream<Bytes>>,
    heard: Arc<Mutex<Transcript>>,
    notify: watch::Sender<u64>,
) {
    let note = |change: &mut dyn FnMut(&mut Transcript)| {
        change(&mut heard.lock().expect("nobody panics while writing a transcript"));
        notify.send_modify(|count| *count += 1);
    };
    let ended = match open(channel, request).await {
        Err(status) => Some(status),
        Ok(mut responses) => loop {
            match responses.next().await {
                Some(Ok(response)) => note(&mut |heard| heard.note(&response)),
                Some(Err(status)) => break Some(status),
                None => break None,
            }
        },
    };
    note(&mut |heard| heard.note_end(ended.as_ref()));
}

async fn open(
    channel: Channel,
    request: Request<ReceiverStream<Bytes>>,
) -> Result<tonic::Streaming<WatchResponse>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static(PATH);
    Ok(grpc.streaming(request, path, WatchCodec).await?.into_inner())
}

/// Bytes out, responses in.
#[derive(Clone, Copy, Debug)]
struct WatchCodec;

impl Codec for WatchCodec {
    type Encode = Bytes;
    type Decode = WatchResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for WatchCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for WatchCodec {
    type Item = WatchResponse;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<WatchResponse>, Status> {
        WatchResponse::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
