//! Spans of a member as a collector gets them: which calls have one, what they say, and that nobody waits for
//! a collector that is not there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use meerkat_proto::pb::etcdserver as etcd;
use meerkat_proto::pb::otlp;
use otlp::any_value::Value;
use otlp::span::SpanKind;
use otlp::trace_service_server::{TraceService, TraceServiceServer};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::member::{Member, Place, words};
use crate::process::{PATIENCE, free_port, wait_until};

const TRACE: [u8; 16] = [0x11; 16];
const PARENT: [u8; 8] = [0x22; 8];
const SAMPLED: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const UNSAMPLED: &str = "00-33333333333333333333333333333333-2222222222222222-00";

/// A collector of spans, and what it was told.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<otlp::ResourceSpans>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<otlp::ExportTraceServiceRequest>,
    ) -> Result<Response<otlp::ExportTraceServiceResponse>, Status> {
        self.0.lock().expect("no reader panics").extend(request.into_inner().resource_spans);
        Ok(Response::new(otlp::ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves on the runtime that calls; where.
    async fn start() -> (Collector, String) {
        let collector = Collector::default();
        let address = format!("127.0.0.1:{}", free_port());
        let at = address.parse().expect("an address");
        let server =
            tonic::transport::Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(server.serve(at));
        (collector, address)
    }

    fn spans(&self) -> Vec<otlp::Span> {
        let told = self.0.lock().expect("no writer panics");
        told.iter().flat_map(|of| &of.scope_spans).flat_map(|of| of.spans.clone()).collect()
    }

    fn named(&self, name: &str) -> Vec<otlp::Span> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    fn resources(&self) -> Vec<Vec<otlp::KeyValue>> {
        let told = self.0.lock().expect("no writer panics");
        told.iter().map(|of| of.resource.clone().unwrap_or_default().attributes).collect()
    }
}

fn attribute(attributes: &[otlp::KeyValue], key: &str) -> Option<Value> {
    attributes.iter().find(|pair| pair.key == key)?.value.clone()?.value
}

fn text(value: &str) -> Option<Value> {
    Some(Value::StringValue(value.to_owned()))
}

/// The flags of a member alone, beside those that are tested.
fn alone(place: &Place, more: &[&str]) -> Vec<String> {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    let mut args = words(&["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    args.extend(words(&["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]));
    args.extend([format!("--initial-cluster=default={peer}"), "--unsafe-no-fsync".to_owned()]);
    args.extend(words(more));
    args
}

async fn connect(place: &Place) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", place.client)).expect("an address");
    endpoint.connect().await.expect("somebody listens")
}

/// A request that says what it belongs to.
fn under<T>(parent: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
    request.metadata_mut().insert("tracestate", "vendor=7".parse().expect("text"));
    request
}

fn put(key: &str) -> etcd::PutRequest {
    etcd::PutRequest { key: key.to_owned().into(), value: "value".into(), ..Default::default() }
}

fn range(key: &str, serializable: bool) -> etcd::RangeRequest {
    etcd::RangeRequest { key: key.to_owned().into(), serializable, ..Default::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads")
}

/// A watch that was told that it is there, and is given up.
async fn watch_for_a_moment(channel: &Channel) {
    let create = etcd::WatchCreateRequest { key: "a".into(), ..Default::default() };
    let create = etcd::watch_request::RequestUnion::CreateRequest(create);
    let first = futures::stream::iter([etcd::WatchRequest { request_union: Some(create) }]);
    let request = under(SAMPLED, first.chain(futures::stream::pending()));
    let mut watch = etcd::watch_client::WatchClient::new(channel.clone());
    let mut answers = watch.watch(request).await.expect("a stream").into_inner();
    let created = answers.message().await.expect("an answer").expect("one");
    assert!(created.created);
}

async fn make_calls(place: &Place) {
    let channel = connect(place).await;
    let mut kv = etcd::kv_client::KvClient::new(channel.clone());
    kv.put(under(SAMPLED, put("a"))).await.expect("put");
    kv.put(under(UNSAMPLED, put("a"))).await.expect("put");
    kv.range(range("a", false)).await.expect("a range");
    kv.put(put("")).await.expect_err("no key");
    watch_for_a_moment(&channel).await;
}

#[test]
fn calls_are_traced_as_in_etcd_and_under_the_spans_of_their_callers() {
    let (runtime, place) = (runtime(), Place::new());
    let (collector, address) = runtime.block_on(Collector::start());
    let directory = tempfile::tempdir().expect("a directory");
    let flags = [
        "--experimental-enable-distributed-tracing",
        &format!("--experimental-distributed-tracing-address={address}"),
        "--distributed-tracing-sampling-rate=1000000",
        "--experimental-distributed-tracing-service-name=store",
        "-distributed-tracing-instance-id=m1",
    ];
    let member = Member::start(directory.path(), &alone(&place, &flags)).ready();
    // With its end their connection ends, and with that the watch.
    let callers = self::runtime();
    callers.block_on(make_calls(&place));
    drop(callers);
    // Without being stopped: in batches that do not wait to be full.
    wait_until("the span of the watch has come", || collector.named("etcdserverpb.Watch/Watch").len() == 1);
    member.stop();

    let puts = collector.named("etcdserverpb.KV/Put");
    assert_eq!(puts.len(), 2, "not the one whose caller keeps none: {puts:?}");
    let done = puts.iter().find(|span| span.trace_id == TRACE[..]).expect("in the caller's trace");
    assert_eq!((&done.parent_span_id[..], done.trace_state.as_str()), (&PARENT[..], "vendor=7"));
    assert_eq!((done.kind(), done.status.clone()), (SpanKind::Server, None));
    assert!(done.start_time_unix_nano < done.end_time_unix_nano);
    let of = |key| attribute(&done.attributes, key);
    assert_eq!((of("rpc.system"), of("rpc.service")), (text("grpc"), text("etcdserverpb.KV")));
    assert_eq!((of("rpc.method"), of("rpc.grpc.status_code")), (text("Put"), Some(Value::IntValue(0))));
    assert_eq!(of("net.sock.peer.addr"), text("127.0.0.1"));

    let refused = puts.iter().find(|span| span.trace_id != TRACE[..]).expect("the other");
    assert!(refused.parent_span_id.is_empty() && refused.trace_id.len() == 16);
    let code = attribute(&refused.attributes, "rpc.grpc.status_code");
    assert_eq!((code, refused.status.clone()), (Some(Value::IntValue(3)), None), "a refusal is an answer");

    let proposed = collector.named("raft.propose");
    assert_eq!(proposed.len(), 1, "a refused put is not proposed: {proposed:?}");
    assert_eq!((&proposed[0].trace_id, &proposed[0].parent_span_id), (&done.trace_id, &done.span_id));
    let ranges = collector.named("etcdserverpb.KV/Range");
    let waits = collector.named("raft.read_index");
    assert_eq!((ranges.len(), waits.len()), (1, 1));
    assert_eq!((&waits[0].trace_id, &waits[0].parent_span_id), (&ranges[0].trace_id, &ranges[0].span_id));
    let watched = &collector.named("etcdserverpb.Watch/Watch")[0];
    let code = attribute(&watched.attributes, "rpc.grpc.status_code");
    assert_eq!((&watched.trace_id[..], code), (&TRACE[..], Some(Value::IntValue(1))), "given up");
    for resource in collector.resources() {
        assert_eq!(attribute(&resource, "service.name"), text("store"));
        assert_eq!(attribute(&resource, "service.instance.id"), text("m1"));
    }
}

/// By a file and by variables, in both spellings; what a member sends at its end is all that it sends.
#[test]
fn at_rate_zero_only_what_a_caller_asks_for_is_traced() {
    let runtime = runtime();
    let (collector, address) = runtime.block_on(Collector::start());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("etcd.yml");
    for by_file in [true, false] {
        let place = Place::new();
        let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
        let name = if by_file { "f" } else { "v" };
        let settings = format!(
            "name: {name}\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\n\
             listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: {name}={peer}\n\
             unsafe-no-fsync: true\nexperimental-enable-distributed-tracing: true\n\
             distributed-tracing-address: {address}\n"
        );
        std::fs::write(&file, settings).expect("written");
        let member = match by_file {
            true => Member::start(directory.path(), &[format!("--config-file={}", file.display())]),
            false => Member::start_with(
                directory.path(),
                &alone(&place, &[]),
                &[
                    ("ETCD_ENABLE_DISTRIBUTED_TRACING", "true"),
                    ("ETCD_EXPERIMENTAL_DISTRIBUTED_TRACING_ADDRESS", &address),
                ],
            ),
        };
        let member = member.ready();
        runtime.block_on(async {
            let mut kv = etcd::kv_client::KvClient::new(connect(&place).await);
            kv.put(put("a")).await.expect("put");
            kv.put(under("nonsense", put("a"))).await.expect("put");
            kv.put(under(UNSAMPLED, put("a"))).await.expect("put");
            kv.range(under(SAMPLED, range("a", true))).await.expect("a range");
        });
        member.stop();
        let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["etcdserverpb.KV/Range"], "by a file: {by_file}");
        assert_eq!(attribute(&collector.resources()[0], "service.name"), text("etcd"));
        assert_eq!(attribute(&collector.resources()[0], "service.instance.id"), None);
        collector.0.lock().expect("no reader panics").clear();
    }
}

/// One number of the page of metrics.
fn metric(place: &Place, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(&place.client).expect("somebody listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", place.client);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|number| number.parse().expect("a number"))
}

fn check_not_waited_for(directory: &Path, collector: &str) {
    /// Each has a span: more than may wait, and than are tried together.
    const RANGES: usize = 4_000;
    let (runtime, place) = (runtime(), Place::new());
    let flags = [
        "--enable-distributed-tracing",
        "--distributed-tracing-sampling-rate=1000000",
        &format!("--distributed-tracing-address={collector}"),
    ];
    let member = Member::start(directory, &alone(&place, &flags)).ready();
    runtime.block_on(async {
        let kv = etcd::kv_client::KvClient::new(connect(&place).await);
        let ranges = futures::stream::iter(0..RANGES).map(|_| {
            let mut kv = kv.clone();
            async move { kv.range(range("a", true)).await.expect("a range") }
        });
        let all = ranges.buffer_unordered(64).for_each(|_| async {});
        tokio::time::timeout(PATIENCE, all).await.expect("nobody waits for the collector");
        let mut kv = kv.clone();
        tokio::time::timeout(PATIENCE, kv.put(put("a"))).await.expect("in time").expect("put");
    });
    let dropped = metric(&place, "meerkat_spans_total{result=\"dropped\"}").expect("is counted");
    assert!(0.0 < dropped, "{dropped}");
    assert_eq!(metric(&place, "meerkat_spans_total{result=\"exported\"}"), Some(0.0));
    member.stop();
}

#[test]
fn a_collector_that_is_away_or_stalls_delays_nobody_and_what_is_dropped_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    check_not_waited_for(directory.path(), &format!("127.0.0.1:{}", free_port()));
    // Takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = silent.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        let held: Vec<TcpStream> = silent.incoming().filter_map(Result::ok).collect();
        drop(held);
    });
    check_not_waited_for(tempfile::tempdir().expect("a directory").path(), &address);
}

#[test]
fn without_the_flag_nothing_is_traced() {
    let (runtime, place) = (runtime(), Place::new());
    let (collector, address) = runtime.block_on(Collector::start());
    let directory = tempfile::tempdir().expect("a directory");
    let flags =
        ["--distributed-tracing-sampling-rate=1000000", &format!("--distributed-tracing-address={address}")];
    let member = Member::start(directory.path(), &alone(&place, &flags)).ready();
    runtime.block_on(async {
        let mut kv = etcd::kv_client::KvClient::new(connect(&place).await);
        kv.put(under(SAMPLED, put("a"))).await.expect("put");
    });
    assert_eq!(metric(&place, "meerkat_spans_total{result=\"exported\"}"), None);
    member.stop();
    assert_eq!(collector.spans(), []);
}
