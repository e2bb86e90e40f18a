//! A hundred thousand watches over few connections: streams of HTTP/2 that nobody expects anything on.

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Failure;

/// As many as a server that knows many informers lets one connection have.
const STREAMS_PER_CONNECTION: usize = 1_000;
/// Requests of one connection that wait for their answer.
const OPENING: usize = 100;
const CONNECTIONS_OPENING: usize = 4;

/// Open watches; all end when they are dropped.
#[derive(Debug)]
pub struct Streams {
    bodies: Vec<Incoming>,
    connections: JoinSet<()>,
}

impl Streams {
    /// Opens so many, each by a path of its own.
    pub async fn open(
        server: &str,
        count: usize,
        path: impl Fn(usize) -> String,
    ) -> Result<Streams, Failure> {
        let path = &path;
        let mut opening = stream::iter((0..count).step_by(STREAMS_PER_CONNECTION))
            .map(|first| {
                let paths = (first..count.min(first + STREAMS_PER_CONNECTION)).map(path).collect();
                one_connection(server, paths)
            })
            .buffer_unordered(CONNECTIONS_OPENING);
        let mut streams = Streams { bodies: Vec::with_capacity(count), connections: JoinSet::new() };
        while let Some(opened) = opening.next().await {
            let (bodies, connection) = opened?;
            streams.bodies.extend(bodies);
            streams.connections.spawn(connection);
        }
        Ok(streams)
    }

    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// How many were told something, or have ended.
    pub fn disturbed(&mut self) -> usize {
        self.bodies.iter_mut().filter_map(|body| body.frame().now_or_never()).count()
    }

    /// Ends all, and waits until their connections are closed.
    pub async fn close(mut self) {
        self.bodies.clear();
        self.connections.shutdown().await;
    }
}

type Connection = futures::future::BoxFuture<'static, ()>;

async fn one_connection(server: &str, paths: Vec<String>) -> Result<(Vec<Incoming>, Connection), Failure> {
    let stream = TcpStream::connect(server.strip_prefix("http://").unwrap_or(server)).await?;
    stream.set_nodelay(true)?;
    let lost = |error: hyper::Error| Failure::broken(format!("a stream of HTTP/2: {error}"));
    let shaken = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(lost)?;
    let mut connection: Connection = connection.map(|_| ()).boxed();
    let opening = stream::iter(paths)
        .map(|path| {
            let mut sender = sender.clone();
            async move {
                sender.ready().await.map_err(lost)?;
                let request = http::Request::get(format!("{server}{path}")).body(Empty::new());
                let request = request.map_err(|error| Failure::harness(format!("{path}: {error}")))?;
                let answer = sender.send_request(request).await.map_err(lost)?;
                match answer.status().as_u16() {
                    200 => Ok(answer.into_body()),
                    status => Err(Failure::broken(format!("{path}: {status}"))),
                }
            }
        })
        .buffer_unordered(OPENING)
        .collect::<Vec<Result<Incoming, Failure>>>();
    tokio::select! {
        opened = opening => Ok((opened.into_iter().collect::<Result<_, _>>()?, connection)),
        () = &mut connection => Err(Failure::broken("a connection was closed while watches were begun")),
    }
}
