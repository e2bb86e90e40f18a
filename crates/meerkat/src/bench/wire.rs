//! The cheapest honest way to send single requests: one HTTP/2 connection, no queue in front of it, and
//! answers left undecoded until somebody looks.
//!
//! The generator shares its machine with the servers it measures, so what it spends on an answer
//! comes off the result. A closed connection is opened again by the next call; a call in flight
//! when it closes fails, and is reported as failed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::uri::PathAndQuery;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::endpoint::Endpoint;

/// Room for whole answers in flight: a range of a thousand values must not wait for window updates.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A request of the kinds that are measured, and those that the measuring needs.
#[derive(Clone, Debug)]
pub enum Call {
    Put(pb::PutRequest),
    Range(pb::RangeRequest),
    Txn(pb::TxnRequest),
    Status(pb::StatusRequest),
    LeaseGrant(pb::LeaseGrantRequest),
    LeaseRevoke(pb::LeaseRevokeRequest),
}

impl Call {
    fn path(&self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Call::Put(_) => "/etcdserverpb.KV/Put",
            Call::Range(_) => "/etcdserverpb.KV/Range",
            Call::Txn(_) => "/etcdserverpb.KV/Txn",
            Call::Status(_) => "/etcdserverpb.Maintenance/Status",
            Call::LeaseGrant(_) => "/etcdserverpb.Lease/LeaseGrant",
            Call::LeaseRevoke(_) => "/etcdserverpb.Lease/LeaseRevoke",
        })
    }
}

/// A connection to one endpoint. Belongs to one thread; many calls may be in flight on it.
pub struct Connection {
    endpoint: Endpoint,
    sender: RefCell<Option<Sender>>,
    /// Set while one caller opens the connection, so that the others wait instead of opening more.
    opening: Cell<bool>,
    opened: tokio::sync::Notify,
}

type Sender = http2::SendRequest<tonic::body::Body>;

impl Connection {
    pub fn new(endpoint: Endpoint) -> Connection {
        Connection {
            endpoint,
            sender: RefCell::new(None),
            opening: Cell::new(false),
            opened: tokio::sync::Notify::new(),
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request and gives back the answer's bytes, undecoded.
    pub async fn call(&self, call: Call) -> Result<Bytes, Status> {
        let service = Service(self.sender().await?);
        let mut grpc = tonic::client::Grpc::new(service).max_decoding_message_size(usize::MAX);
        let path = call.path();
        let answer = grpc.unary(Request::new(call), path, Undecoded).await?;
        Ok(answer.into_inner())
    }

    async fn sender(&self) -> Result<Sender, Status> {
        loop {
            if let Some(sender) = self.sender.borrow().as_ref().filter(|sender| !sender.is_closed()) {
                return Ok(sender.clone());
            }
            if self.opening.replace(true) {
                self.opened.notified().await;
                continue;
            }
            let opened = self.open().await;
            self.opening.set(false);
            self.opened.notify_waiters();
            self.sender.replace(Some(opened?));
        }
    }

    async fn open(&self) -> Result<Sender, Status> {
        let unavailable =
            |why: String| Status::unavailable(format!("cannot connect to {}: {why}", self.endpoint));
        let dial = tokio::net::TcpStream::connect(self.endpoint.authority());
        let tcp = match tokio::time::timeout(CONNECT_TIMEOUT, dial).await {
            Ok(Ok(tcp)) => tcp,
            Ok(Err(error)) => return Err(unavailable(error.to_string())),
            Err(_) => return Err(unavailable("timed out".to_owned())),
        };
        tcp.set_nodelay(true).map_err(|error| unavailable(error.to_string()))?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(tcp))
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        // Ends with the connection; its failure reaches every call in flight.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// hyper's sender as the service tonic wants. Holds no queue: HTTP/2's own stream limit is the bound.
struct Service(Sender);

impl tower::Service<http::Request<tonic::body::Body>> for Service {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        // HTTP/2 needs scheme and authority, and gRPC servers do not look at them.
        let path = request.uri().path();
        *request.uri_mut() = http::Uri::builder()
            .scheme("http")
            .authority("bench")
            .path_and_query(path)
            .build()
            .expect("the paths are constants");
        Box::pin(self.0.send_request(request))
    }
}

/// Encodes a [`Call`] straight into the frame, and hands answers over as they came.
#[derive(Clone, Copy)]
struct Undecoded;

impl Codec for Undecoded {
    type Encode = Call;
    type Decode = Bytes;
    type Encoder = Undecoded;
    type Decoder = Undecoded;

    fn encoder(&mut self) -> Undecoded {
        Undecoded
    }

    fn decoder(&mut self) -> Undecoded {
        Undecoded
    }
}

impl Encoder for Undecoded {
    type Item = Call;
    type Error = Status;

    fn encode(&mut self, call: Call, frame: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let written = match call {
            Call::Put(request) => request.encode(frame),
            Call::Range(request) => request.encode(frame),
            Call::Txn(request) => request.encode(frame),
            Call::Status(request) => request.encode(frame),
            Call::LeaseGrant(request) => request.encode(frame),
            Call::LeaseRevoke(request) => request.encode(frame),
        };
        written.map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Undecoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(frame.copy_to_bytes(frame.remaining())))
    }
}
