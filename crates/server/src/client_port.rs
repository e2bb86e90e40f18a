//! Serves a client port: gRPC and plain HTTP over one listener, told apart by each connection's first
//! bytes.
//!
//! Always true: what lies unsent for one stream in its connection is at most [`SEND_BUFFER_BYTES`] and
//! one frame of its body, whatever window its client offers. Bodies of streams make small frames for
//! this reason. An answer to a single request goes out in pieces ([`crate::pieces`]). The frames that are ready together
//! leave together ([`crate::corked`]).

use crate::authority::Hosts;
use crate::config::Config;
use crate::corked::{cork, in_turns};
use crate::listen::Listener;
use crate::pieces::Pieces;
use crate::punctual::{FirstWords, Heads, IDLE_WITHIN};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use meerkat_raft::tasks::spawn_brief;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt;

/// Enough for the frames that leave in one write; the rest waits where it is bounded.
const SEND_BUFFER_BYTES: usize = 32 << 10;

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Before the next try, when the system gives no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who is at the other end; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// That the request came over TLS; an extension of those that did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// The name in the certificate that the client's connection was made with, if it was and if that is to
/// count; an extension of each request.
#[derive(Clone)]
pub(crate) struct ClientCommonName(pub(crate) Arc<str>);

/// Accepts connections until `stopping`, then waits until those that are open have ended. One that has become
/// a WebSocket is not among them: it is served by a task of its own, which ends with the process.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    router: axum::Router,
    config: &Config,
    mut stopping: watch::Receiver<bool>,
) {
    let builder = builder(config);
    // So that it is not prepared anew for each connection.
    let router = router.with_state(());
    let open = GracefulShutdown::new();
    loop {
        let (socket, client) = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            accepted = accepted(&mut listener) => accepted,
        };
        start::<L>(&builder, &open, socket, client, router.clone());
    }
    drop(listener);
    open.shutdown().await;
}

/// The next connection, as soon as the system gives one. While it fails there is a pause before each try:
/// who asked again at once would only keep a processor busy.
pub(crate) async fn accepted<L: Listener>(listener: &mut L) -> (L::Io, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn builder(config: &Config) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // It counts from the end of the answer before: a head that has begun has less time.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_WITHIN);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(config.max_concurrent_streams)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(config.grpc_keepalive.interval)
        .keep_alive_timeout(config.grpc_keepalive.timeout);
    builder
}

fn start<L: Listener>(
    builder: &Builder<TokioExecutor>,
    open: &GracefulShutdown,
    socket: L::Io,
    client: SocketAddr,
    router: axum::Router,
) {
    if let Err(error) = L::hurry(&socket) {
        tracing::debug!(%error, %client, "answers to this client may be delayed");
    }
    let common_name = L::common_name(&socket).map(ClientCommonName);
    let over_tls = L::is_encrypted(&socket).then_some(OverTls);
    let heads = Arc::new(Heads::default());
    let (coming, going) = (heads.clone(), heads.clone());
    let service = router.map_request(move |mut request: Request<Incoming>| {
        if request.version() < Version::HTTP_2 {
            coming.came();
        }
        request.extensions_mut().insert(ClientAddress(client));
        if let Some(over_tls) = over_tls {
            request.extensions_mut().insert(over_tls);
        }
        if let Some(common_name) = &common_name {
            request.extensions_mut().insert(common_name.clone());
        }
        request
    });
    let service = service.map_response(move |response| going.answered(response).map(Pieces::of));
    let (socket, turns) = cork(socket);
    let socket = TokioIo::new(Hosts::of(FirstWords::of(socket, heads)));
    let connection = builder.serve_connection_with_upgrades(socket, TowerToHyperService::new(service));
    let connection = open.watch(connection.into_owned());
    spawn_brief(async move {
        if let Err(error) = in_turns(connection, turns).await {
            tracing::debug!(error = %error, %client, "a connection ended");
        }
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::{Keepalive, RawFlags};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// Gives one connection.
    pub(crate) struct Once(pub(crate) Option<DuplexStream>);

    impl Listener for Once {
        type Io = DuplexStream;

        async fn accept(&mut self) -> std::io::Result<(DuplexStream, SocketAddr)> {
            match self.0.take() {
                Some(stream) => Ok((stream, ([127, 0, 0, 1], 1).into())),
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_answer_a_ping_is_gone() {
        let (mut client, server) = tokio::io::duplex(4096);
        let grpc_keepalive = Keepalive { interval: Duration::from_secs(30), timeout: Duration::from_secs(5) };
        let config = Config::from_flags(RawFlags { grpc_keepalive, ..RawFlags::default() }).expect("flags");
        let (_stop, stopping) = watch::channel(false);
        let router = axum::Router::new();
        let serving = tokio::spawn(async move { serve(Once(Some(server)), router, &config, stopping).await });
        // The opening words, and settings without any in them.
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("room");
        let began = tokio::time::Instant::now();
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(3_600), client.read_to_end(&mut heard)).await;
        assert!(ended.is_ok(), "it was closed");
        assert!(Duration::from_secs(30) <= began.elapsed(), "{:?}", began.elapsed());
        serving.abort();
    }

    /// Some clients keep one between the requests of a loop, or of a scrape.
    #[tokio::test(start_paused = true)]
    async fn a_connection_is_there_for_the_next_request_after_minutes() {
        let (mut client, server) = tokio::io::duplex(4096);
        let router = axum::Router::new().route("/", get(async || "here"));
        let config = Config::from_flags(RawFlags::default()).expect("the defaults");
        let (_stop, stopping) = watch::channel(false);
        let serving = tokio::spawn(async move { serve(Once(Some(server)), router, &config, stopping).await });
        for _ in 0..3 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: member\r\n\r\n").await.expect("it is open");
            let mut answer = Vec::new();
            while !answer.ends_with(b"here") {
                let read = client.read_buf(&mut answer).await.expect("it is open");
                assert_ne!(read, 0, "it was closed");
            }
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        serving.abort();
    }
}
