//! Serves a client port: gRPC and plain HTTP over one listener, told apart by each connection's first
//! bytes.
//!
//! Always true: what lies unsent for one stream in its connection is at most [`SEND_BUFFER_BYTES`] and
//! one frame of its body, whatever window its client offers. Bodies of streams make small frames for
//! this reason; an answer to a single request is one frame, as large as it is.

use crate::config::Config;
use crate::listen::Listener;
use crate::punctual::{FIRST_WORDS_WITHIN, FirstWords};
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tower::ServiceExt;

/// Enough for the frames that leave in one write; the rest waits where it is bounded.
const SEND_BUFFER_BYTES: usize = 32 << 10;

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// As etcd: idle connections are pinged after two hours, and given up after 20 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2 * 60 * 60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Before the next try, when the system gives no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who is at the other end; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// The name in the certificate that the client's connection was made with, if it was and if that is to
/// count; an extension of each request.
#[derive(Clone)]
pub(crate) struct ClientCommonName(pub(crate) std::sync::Arc<str>);

/// Accepts connections until `stopping`, then waits until those that are open have ended.
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
    builder.http1().timer(TokioTimer::new()).header_read_timeout(FIRST_WORDS_WITHIN);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(config.max_concurrent_streams)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
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
    let service = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ClientAddress(client));
        if let Some(common_name) = &common_name {
            request.extensions_mut().insert(common_name.clone());
        }
        request
    });
    let connection =
        builder.serve_connection(TokioIo::new(FirstWords::of(socket)), TowerToHyperService::new(service));
    let connection = open.watch(connection.into_owned());
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %error, %client, "a connection ended");
        }
    });
}
