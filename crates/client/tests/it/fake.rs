//! A server that answers whatever a test wants, down to the byte.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// What the fake says to one call.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes, as the one message of the answer.
    Message(Bytes),
    /// This status.
    Status(tonic::Code, String),
    /// Nothing, ever.
    Hang,
    /// The stream is reset.
    Cut,
}

impl Reply {
    pub fn of(message: &impl Message) -> Reply {
        Reply::Message(message.encode_to_vec().into())
    }

    pub fn etcd(error: meerkat_client::EtcdError) -> Reply {
        Reply::Status(error.code(), error.message().to_owned())
    }
}

type Answer = dyn Fn(&str, usize) -> Reply + Send + Sync;

/// A fake server, for as long as its runtime lives.
pub struct Fake {
    pub url: String,
    calls: Arc<Mutex<HashMap<String, usize>>>,
}

impl Fake {
    /// `answer` is given the method's name and how often it was called before.
    pub async fn start(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a bound port"));
        let calls: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let (answer, counted): (Arc<Answer>, _) = (Arc::new(answer), calls.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (answer, calls) = (answer.clone(), counted.clone());
                let service = hyper::service::service_fn(move |request| {
                    respond(request, answer.clone(), calls.clone())
                });
                let serve = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(async move { drop(serve.await) });
            }
        });
        Fake { url, calls }
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.calls.lock().expect("the counts").get(method).copied().unwrap_or(0)
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn respond(
    request: Request<Incoming>,
    answer: Arc<Answer>,
    calls: Arc<Mutex<HashMap<String, usize>>>,
) -> Result<Response<Body>, std::io::Error> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let before = {
        let mut calls = calls.lock().expect("the counts");
        let count = calls.entry(method.clone()).or_default();
        *count += 1;
        *count - 1
    };
    // Streams of requests have no end; the others are read whole, as a server would.
    if method != "LeaseKeepAlive" {
        drop(request.into_body().collect().await);
    }
    match answer(&method, before) {
        Reply::Message(message) => Ok(grpc(framed(&message), tonic::Code::Ok, "")),
        Reply::Status(code, text) => Ok(grpc(Bytes::new(), code, &text)),
        Reply::Hang => std::future::pending().await,
        Reply::Cut => Err(std::io::Error::other("cut")),
    }
}

/// The answer to the prober of a healthy member.
pub fn healthy() -> Reply {
    Reply::of(&pb::StatusResponse { leader: 1, ..Default::default() })
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.put_slice(message);
    frame.freeze()
}

fn grpc(data: Bytes, code: tonic::Code, text: &str) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/grpc");
    let (code, text) = ((code as i32).to_string(), text.to_owned());
    if data.is_empty() {
        let response = response.header("grpc-status", code).header("grpc-message", text);
        return response.body(Full::new(Bytes::new()).boxed()).expect("a response");
    }
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("grpc-status", code.parse().expect("a header"));
    let frames = [Ok(Frame::data(data)), Ok(Frame::trailers(trailers))];
    response.body(StreamBody::new(futures::stream::iter(frames)).boxed()).expect("a response")
}
