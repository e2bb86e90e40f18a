//! Counts every gRPC call: begun, ended with which code, messages and bytes both ways, and how long it took.
//!
//! Around all services, so a call through the JSON gateway counts as the gRPC call that it
//! becomes, while what a service asks of another on its caller's behalf is not counted again. Costs a call
//! some atomic additions and one allocation for each body.

use crate::client_port::ClientAddress;
use crate::methods::{self, Kind, METHODS, Method};
use crate::slow::Slow;
use axum::body::Body;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use meerkat_fault::RwLock;
use meerkat_raft::Histogram;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// The codes by number, as gRPC's Go library spells them.
pub(super) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// How a client says which version of the API it was made for.
const CLIENT_VERSION: &str = "client-api-version";
/// Versions counted apart. It is free text: clients must not be able to fill the memory with it.
const VERSIONS_MAX: usize = 32;
const OTHER_VERSION: &str = "other";

/// What is counted of one method.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) method: &'static Method,
    pub(super) started: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) handled: [AtomicU64; CODES.len()],
    pub(super) seconds: Histogram,
}

impl Counters {
    fn new(method: &'static Method) -> Counters {
        Counters {
            method,
            started: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            handled: Default::default(),
            seconds: Histogram::new(Duration::from_micros(100), 20),
        }
    }

    /// Calls that were answered.
    pub(super) fn succeeded(&self) -> u64 {
        self.handled[0].load(Ordering::Relaxed)
    }
}

/// One version of clients: calls that have one answer, and streams.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) unary: AtomicU64,
    pub(super) stream: AtomicU64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Calls {
    /// In the order of [`METHODS`].
    pub(super) methods: Vec<Arc<Counters>>,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    /// Written only when a version is first seen.
    versions: RwLock<Vec<Arc<Version>>>,
    /// Calls with one answer.
    slow: Slow,
}

impl Calls {
    /// `expected`: a call with one answer that takes longer is told of.
    pub(crate) fn new(expected: Duration) -> Calls {
        Calls {
            methods: METHODS.iter().map(|method| Arc::new(Counters::new(method))).collect(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            versions: RwLock::default(),
            slow: Slow::new(expected),
        }
    }

    pub(super) fn method(&self, path: &str) -> Option<&Arc<Counters>> {
        methods::find(path).map(|found| &self.methods[found])
    }

    pub(super) fn versions(&self) -> Vec<Arc<Version>> {
        self.versions.read().clone()
    }

    /// Answers a call, and counts it.
    pub(crate) async fn count<F: Future<Output = Response<Body>>>(
        self: &Arc<Calls>,
        request: Request<Body>,
        answer: impl FnOnce(Request<Body>) -> F,
    ) -> Response<Body> {
        let Some(method) = self.method(request.uri().path()).cloned() else { return answer(request).await };
        let version = self.version(request.headers());
        let by_kind = if method.method.kind == Kind::Unary { &version.unary } else { &version.stream };
        by_kind.fetch_add(1, Ordering::Relaxed);
        method.started.fetch_add(1, Ordering::Relaxed);
        let from = request.extensions().get::<ClientAddress>().map(|from| from.0);
        let mut handling = Handling::begin(self.clone(), method.clone(), from);
        let counted = Counted::new(self.clone(), method.clone(), Way::In);
        let response =
            answer(request.map(|body| Body::new(Observed { body, counted, handling: None }))).await;
        handling.made = Some(handling.began.elapsed());
        if let Some(status) = Status::from_header_map(response.headers()) {
            handling.end(status.code());
            return response;
        }
        let counted = Counted::new(self.clone(), method, Way::Out);
        response.map(|body| Body::new(Observed { body, counted, handling: Some(handling) }))
    }

    fn version(&self, headers: &HeaderMap) -> Arc<Version> {
        let named = headers.get(CLIENT_VERSION).and_then(|version| version.to_str().ok());
        let name = named.unwrap_or("unknown");
        let find = |versions: &[Arc<Version>], name: &str| {
            versions.iter().find(|version| version.name == name).cloned()
        };
        if let Some(version) = find(&self.versions.read(), name) {
            return version;
        }
        let mut versions = self.versions.write();
        let name = if VERSIONS_MAX <= versions.len() { OTHER_VERSION } else { name };
        find(&versions, name).unwrap_or_else(|| {
            let (unary, stream) = (AtomicU64::new(0), AtomicU64::new(0));
            let version = Arc::new(Version { name: name.to_owned(), unary, stream });
            versions.push(version.clone());
            version
        })
    }
}

/// A call under way. One that is dropped was given up by its client.
struct Handling {
    calls: Arc<Calls>,
    method: Arc<Counters>,
    from: Option<SocketAddr>,
    began: Instant,
    /// How long the answer took to make. What is left is the client's, who takes it as fast as it likes.
    made: Option<Duration>,
    ended: bool,
}

impl Handling {
    fn begin(calls: Arc<Calls>, method: Arc<Counters>, from: Option<SocketAddr>) -> Handling {
        Handling { calls, method, from, began: Instant::now(), made: None, ended: false }
    }

    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (method, took) = (&self.method, self.began.elapsed());
        method.handled[code as usize].fetch_add(1, Ordering::Relaxed);
        method.seconds.observe(took);
        if method.method.kind == Kind::Unary {
            let took = self.made.unwrap_or(took);
            self.calls.slow.call(took, || method.method.path.to_owned(), self.from);
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Counts messages by the heads of their frames.
struct Counted {
    calls: Arc<Calls>,
    method: Arc<Counters>,
    way: Way,
    heads: Heads,
}

impl Counted {
    fn new(calls: Arc<Calls>, method: Arc<Counters>, way: Way) -> Counted {
        Counted { calls, method, way, heads: Heads::default() }
    }

    fn data(&mut self, data: &[u8]) {
        let messages = self.heads.pass(data);
        let (bytes, count) = match self.way {
            Way::In => (&self.calls.received_bytes, &self.method.received),
            Way::Out => (&self.calls.sent_bytes, &self.method.sent),
        };
        bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        if messages != 0 {
            count.fetch_add(messages, Ordering::Relaxed);
        }
    }
}

/// Where in a sequence of frames the next byte is.
#[derive(Debug, Default)]
struct Heads {
    /// The bytes of a head that have come.
    head: [u8; 5],
    come: usize,
    /// Bytes of the message that have not come.
    left: usize,
}

impl Heads {
    /// Goes over bytes; how many messages begin in them.
    fn pass(&mut self, mut data: &[u8]) -> u64 {
        let mut begun = 0;
        while !data.is_empty() {
            let skipped = self.left.min(data.len());
            self.left -= skipped;
            data = &data[skipped..];
            let taken = (self.head.len() - self.come).min(data.len());
            self.head[self.come..self.come + taken].copy_from_slice(&data[..taken]);
            self.come += taken;
            data = &data[taken..];
            if self.come == self.head.len() {
                let [_, length @ ..] = self.head;
                self.left = u32::from_be_bytes(length) as usize;
                self.come = 0;
                begun += 1;
            }
        }
        begun
    }
}

/// A body that is counted as it passes.
struct Observed {
    body: Body,
    counted: Counted,
    handling: Option<Handling>,
}

impl http_body::Body for Observed {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        let me = &mut *self;
        let polled = Pin::new(&mut me.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                me.counted.data(data);
            }
            let status = frame.trailers_ref().and_then(Status::from_header_map);
            if let (Some(status), Some(handling)) = (status, &mut me.handling) {
                handling.end(status.code());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_their_frames_are_cut() {
        let frames: Vec<u8> = [3_usize, 0, 300]
            .iter()
            .flat_map(|length| {
                let mut frame = vec![0];
                frame.extend(u32::try_from(*length).expect("small").to_be_bytes());
                frame.extend(std::iter::repeat_n(1, *length));
                frame
            })
            .collect();
        for size in [1, 4, 5, 7, 1_000] {
            let mut heads = Heads::default();
            let begun: u64 = frames.chunks(size).map(|piece| heads.pass(piece)).sum();
            assert_eq!((begun, heads.left, heads.come), (3, 0, 0), "{size}");
        }
    }

    #[test]
    fn a_call_that_nobody_waits_for_any_more_was_cancelled() {
        let calls = Arc::new(Calls::new(Duration::MAX));
        let method = calls.method("/etcdserverpb.KV/Put").expect("a method").clone();
        drop(Handling::begin(calls.clone(), method.clone(), None));
        let mut handling = Handling::begin(calls.clone(), method.clone(), None);
        handling.end(Code::Ok);
        drop(handling);
        let handled = |code: Code| method.handled[code as usize].load(Ordering::Relaxed);
        assert_eq!((handled(Code::Ok), handled(Code::Cancelled)), (1, 1));
    }

    #[test]
    fn slow_client_makes_no_slow_call() {
        let calls = Arc::new(Calls::new(Duration::from_millis(100)));
        let method = calls.method("/etcdserverpb.KV/Range").expect("a method").clone();
        for (made_ms, is_slow) in [(1, false), (200, true)] {
            let mut handling = Handling::begin(calls.clone(), method.clone(), None);
            handling.began -= Duration::from_secs(10);
            handling.made = Some(Duration::from_millis(made_ms));
            handling.end(Code::Ok);
            assert_eq!(calls.slow.has_told(), is_slow, "{made_ms} ms");
        }
    }

    #[test]
    fn clients_cannot_fill_the_memory_with_versions() {
        let calls = Calls::new(Duration::MAX);
        for number in 0..3 * VERSIONS_MAX {
            let mut headers = HeaderMap::new();
            headers.insert(CLIENT_VERSION, http::HeaderValue::from(number));
            calls.version(&headers).unary.fetch_add(1, Ordering::Relaxed);
        }
        let versions = calls.versions();
        assert_eq!(versions.len(), VERSIONS_MAX + 1);
        let counted: u64 = versions.iter().map(|version| version.unary.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, 3 * VERSIONS_MAX as u64);
    }
}
