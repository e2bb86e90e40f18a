//! A caller who knows what a peer knows about itself, and nothing else: every call of the peer service with
//! bodies that are mutated, cut, of a false length, or never end.
//!
//! Such a caller is let in by the gate, as a newcomer is. What it says in the cluster's own terms is believed
//! (only TLS tells members from others), so nothing here has a ballot of a term that anybody could be in.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use meerkat_chaos::Failure;
use meerkat_chaos::driver::Cluster;
use meerkat_chaos::driver::usage::mib;
use meerkat_chaos::scenario::{run_test, settle};
use meerkat_mangle::Fuzz;
use meerkat_proto::pb::entry as log;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::snapshot_chunk::Part;
use prost::Message;
use tokio::net::TcpStream;

use super::{ASK_WITHIN, BUDGET, broken, put, require_unharmed, start};

/// A caller of whom nobody has heard.
const STRANGER: u64 = 0xbad;
/// Some calls may rightly wait for what does not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 600;
/// Messages that are begun at once and never finished.
const UNFINISHED: usize = 24;
const CHUNK_BYTES: usize = 1 << 20;
/// What a member may grow by under all of this. One message may have 64 MiB.
const GROWTH_MAX_BYTES: u64 = 400 << 20;

/// What gRPC calls a status: of a call that was answered, and of one whose message is not to be read.
const OK: u32 = 0;
const INVALID_ARGUMENT: u32 = 3;
const FAILED_PRECONDITION: u32 = 9;

const CALLS: &[&str] = &[
    "Append",
    "Vote",
    "PreVote",
    "TransferLeader",
    "InstallSnapshot",
    "Propose",
    "ReadIndex",
    "Ballots",
    "RenewLeases",
    "RestOfLease",
    "Greet",
    "Digests",
    "StoredHash",
    "ChangeMembers",
    "Describe",
    "Heartbeats",
];

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

/// A connection to one member's peer port.
struct Caller {
    port: u16,
    /// None for one who does not say who it is.
    identity: Option<(u64, u64)>,
    line: SendRequest<Body>,
}

impl Caller {
    async fn connect(port: u16, identity: Option<(u64, u64)>) -> Result<Self, Failure> {
        Ok(Self { port, identity, line: dial(port).await? })
    }

    /// The status of the answer; none if the connection was ended instead, or nothing came in time.
    async fn call(&mut self, method: &str, body: Body) -> Result<Option<u32>, Failure> {
        if self.line.ready().await.is_err() {
            self.line = dial(self.port).await?;
        }
        let request = self.request(method, body)?;
        let answer = self.line.send_request(request);
        let status = async {
            let mut answer = answer.await.ok()?;
            let of = |headers: &http::HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
            if let Some(status) = of(answer.headers()) {
                return Some(status);
            }
            while let Some(Ok(frame)) = answer.body_mut().frame().await {
                if let Some(status) = frame.trailers_ref().and_then(of) {
                    return Some(status);
                }
            }
            None
        };
        Ok(tokio::time::timeout(ANSWER_WITHIN, status).await.unwrap_or(None))
    }

    fn request(&self, method: &str, body: Body) -> Result<http::Request<Body>, Failure> {
        let uri = format!("http://127.0.0.1:{}/meerkat.peer.v1.Peer/{method}", self.port);
        let mut request =
            http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        if let Some((cluster, member)) = self.identity {
            let values = [("cluster", cluster), ("from", STRANGER), ("to", member), ("incarnation", 1)];
            for (name, value) in values {
                request = request.header(format!("meerkat-{name}"), format!("{value:x}"));
            }
        }
        request.body(body).map_err(|error| Failure::harness(error.to_string()))
    }
}

async fn dial(port: u16) -> Result<SendRequest<Body>, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (line, connection) = shaken.map_err(|error| Failure::harness(error.to_string()))?;
    tokio::spawn(connection);
    Ok(line)
}

/// Some messages and then the end.
fn ended(parts: Vec<Bytes>) -> Body {
    StreamBody::new(futures::stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part)))).boxed())
}

/// Some bytes and then nothing, for ever.
fn endless(parts: Vec<Bytes>) -> Body {
    let parts = futures::stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part))));
    StreamBody::new(parts.chain(futures::stream::pending()).boxed())
}

/// A gRPC message that says it has this length.
fn framed(message: &[u8], says: usize) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(says).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}

fn whole(message: &[u8]) -> Bytes {
    framed(message, message.len())
}

fn stale() -> Option<pb::Ballot> {
    Some(pb::Ballot { term: 0, node: STRANGER, committed: false })
}

fn samples() -> Vec<Vec<u8>> {
    let at = Some(pb::LogId { term: 0, node: STRANGER, index: 5 });
    let payload = Some(pb::entry::Payload::Proposal(Bytes::from_static(b"x")));
    let put = log::Put { key: "fuzz".into(), value: "value".into(), ..log::Put::default() };
    let command = Some(log::proposal::Command::Put(put));
    let proposal = log::Proposal { id: 1, stamp_ms: 1, asker: None, command };
    let entries = vec![pb::Entry { id: at, payload }];
    let header = pb::SnapshotHeader {
        ballot: stale(),
        last: at,
        membership: Bytes::new(),
        files: vec![pb::SnapshotFile { name: "CURRENT".into(), bytes: 4 }],
    };
    let remove = pb::change_members_request::Change::Remove(STRANGER);
    vec![
        pb::AppendRequest { ballot: stale(), previous: at, committed: at, entries }.encode_to_vec(),
        pb::VoteRequest { ballot: stale(), last: at, leadership_transfer: false }.encode_to_vec(),
        pb::TransferLeaderRequest { from: stale(), to: STRANGER, last: at }.encode_to_vec(),
        pb::SnapshotChunk { part: Some(Part::Header(header)) }.encode_to_vec(),
        pb::ProposeRequest { proposals: vec![proposal.encode_to_vec().into()] }.encode_to_vec(),
        pb::RenewLeasesRequest { leases: vec![1, i64::MIN] }.encode_to_vec(),
        pb::StoredHashRequest { revision: 1 }.encode_to_vec(),
        pb::ChangeMembersRequest { change: Some(remove), again: false }.encode_to_vec(),
    ]
}

/// What would be a peer's word if it were read has a ballot that counts for nothing, or is left out.
fn harmless(method: &str, message: Vec<u8>) -> Vec<u8> {
    let bytes = message.as_slice();
    match method {
        "Append" | "Heartbeats" => pb::AppendRequest::decode(bytes).map_or(message, |mut request| {
            request.ballot = request.ballot.and(stale());
            request.encode_to_vec()
        }),
        "Vote" | "PreVote" => pb::VoteRequest::decode(bytes).map_or(message, |mut request| {
            request.ballot = request.ballot.and(stale());
            request.encode_to_vec()
        }),
        "TransferLeader" => pb::TransferLeaderRequest::decode(bytes).map_or(message, |mut request| {
            request.from = request.from.and(stale());
            request.encode_to_vec()
        }),
        // It waits until it has got there.
        "StoredHash" => pb::StoredHashRequest::decode(bytes).map_or(message, |request| {
            pb::StoredHashRequest { revision: request.revision.min(1) }.encode_to_vec()
        }),
        "ChangeMembers" => match pb::ChangeMembersRequest::decode(bytes) {
            Ok(pb::ChangeMembersRequest { change: Some(_), .. }) => Vec::new(),
            _ => message,
        },
        _ => message,
    }
}

/// A snapshot whose header is right and whose file is not: damaged, out of place, short, endless.
fn snapshots() -> Vec<Body> {
    let chunk = |part| whole(&pb::SnapshotChunk { part: Some(part) }.encode_to_vec());
    let header = |bytes| {
        chunk(Part::Header(pb::SnapshotHeader {
            ballot: stale(),
            last: None,
            // No position, version 1, no voters, no nodes.
            membership: Bytes::from_static(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            files: vec![pb::SnapshotFile { name: "CURRENT".into(), bytes }],
        }))
    };
    let file =
        |offset, data: Bytes, checksum| chunk(Part::File(pb::FileChunk { file: 0, offset, data, checksum }));
    let data = Bytes::from(vec![7; CHUNK_BYTES]);
    vec![
        ended(vec![header(4), file(0, Bytes::from_static(b"junk"), 1)]),
        ended(vec![header(4), file(9, Bytes::new(), 0)]),
        ended(vec![header(u64::MAX), file(0, Bytes::new(), 0)]),
        ended(vec![header(4), header(4)]),
        ended(vec![header(4)]),
        endless(vec![header(u64::MAX), file(0, Bytes::new(), 0)]),
        endless(vec![header(u64::MAX), framed(&data, 60 << 20)]),
    ]
}

/// Everything that the service must say no to, in these words.
async fn explicit(caller: &mut Caller, stranger: &mut Caller) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    let mut expect = |what: String, expected: u32, status: Option<u32>| {
        if status != Some(expected) {
            findings.push(format!("{what} is answered {status:?} and not {expected}"));
        }
    };
    for method in CALLS {
        let expected = if *method == "Describe" { OK } else { FAILED_PRECONDITION };
        let status = stranger.call(method, ended(vec![whole(&[])])).await?;
        expect(format!("{method} of nobody"), expected, status);
    }
    let far = pb::Ballot { term: u64::MAX, node: STRANGER, committed: true };
    let vote = pb::VoteRequest { ballot: Some(far), ..Default::default() };
    let status = caller.call("Vote", ended(vec![whole(&vote.encode_to_vec())])).await?;
    expect("a vote in the last of all terms".to_owned(), INVALID_ARGUMENT, status);
    let status = caller.call("Propose", ended(vec![whole(&[0x0a, 3, 0xff, 0xff, 0xff])])).await?;
    expect("a proposal that is none".to_owned(), INVALID_ARGUMENT, status);
    Ok(findings)
}

/// Mutated bodies to every call, and corpus first.
async fn mutated(caller: &mut Caller, cluster: &mut Cluster) -> Result<(), Failure> {
    let mut fuzz = Fuzz::new("peer port", include_str!("../../../corpus/peer_port.txt"), samples());
    let corpus = fuzz.take_corpus();
    let made = (0..meerkat_mangle::rounds(ROUNDS)).map(|_| fuzz.next_input()).collect::<Vec<_>>();
    let (mut answered, mut refused) = (0, 0);
    for (round, input) in corpus.into_iter().chain(made).enumerate() {
        let method = CALLS[round % CALLS.len()];
        let message = harmless(method, input);
        let false_length = message.len() + [0, 0, 0, 1, usize::MAX / 2][round % 5];
        let status = caller.call(method, ended(vec![framed(&message, false_length)])).await?;
        answered += usize::from(status == Some(OK));
        refused += usize::from(status.is_some_and(|status| status != OK));
        if !cluster.member(0).is_running()? {
            let sent = meerkat_mangle::hex(&message);
            let tail = cluster.members()[0].tail();
            return Err(Failure::broken(format!("seed {}: {method} {sent}: {tail}", meerkat_mangle::seed())));
        }
    }
    println!("seed {}: {answered} answered, {refused} refused", meerkat_mangle::seed());
    if answered == 0 || refused == 0 {
        return Err(Failure::harness("the peer port was not put to the test"));
    }
    Ok(())
}

#[test]
fn whatever_a_peer_sends_a_member_stays_well_and_small() {
    run_test("hostile peer", BUDGET, async {
        let mut cluster = start().await?;
        let member = &cluster.members()[0];
        let header = member.endpoint().status(ASK_WITHIN).await.map_err(broken)?.header.unwrap_or_default();
        let port = member.peer_port();
        let before = member.usage()?.rss_bytes;
        let mut caller = Caller::connect(port, Some((header.cluster_id, header.member_id))).await?;
        let mut stranger = Caller::connect(port, None).await?;
        Failure::from_findings(
            "strangers and nonsense are refused",
            explicit(&mut caller, &mut stranger).await?,
        )?;
        mutated(&mut caller, &mut cluster).await?;
        for body in snapshots() {
            // Those without an end are given up, and with them what they had stored.
            if caller.call("InstallSnapshot", body).await? == Some(OK) {
                return Err(Failure::broken("a broken snapshot was taken"));
            }
        }
        let mut unfinished = Vec::new();
        for round in 0..UNFINISHED {
            let mut line = dial(port).await?;
            let half = framed(&vec![7; CHUNK_BYTES], 60 << 20);
            let request = caller.request(CALLS[round % 5], endless(vec![half]))?;
            unfinished.push(tokio::spawn(async move { line.send_request(request).await.map(drop) }));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        put(cluster.members()[0].endpoint(), b"meanwhile", Bytes::new()).await.map_err(broken)?;
        let grown = cluster.members()[0].usage()?.rss_bytes.saturating_sub(before);
        println!("grown by {} under {UNFINISHED} messages without an end", mib(grown));
        unfinished.iter().for_each(tokio::task::JoinHandle::abort);
        if GROWTH_MAX_BYTES < grown {
            return Err(Failure::broken(format!("the member grew by {}", mib(grown))));
        }
        require_unharmed(&mut cluster, "a hostile peer").await?;
        put(cluster.members()[0].endpoint(), b"afterwards", Bytes::new()).await.map_err(broken)?;
        settle::agree(&cluster, meerkat_chaos::driver::Product::Meerkat).await?;
        cluster.finish()
    });
}
