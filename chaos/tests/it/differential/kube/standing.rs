//! What a server says of itself, and what changes of membership kubeadm asks for.

use std::io::{Read, Write};
use std::time::Duration;

use futures::TryStreamExt;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::{MemberAddRequest, RangeResponse, RangeStreamResponse};
use tonic::{Code, Status};

use super::table::PODS;
use super::{Rows, WITHIN, broken, shapes, version};

/// What kubeadm takes from elsewhere at least, and what the contract asks to report at least.
const KUBEADM_LEAST: version::Version = (3, 5, 24);
const REPORTED_LEAST: version::Version = (3, 6, 6);
/// Where nobody listens, and nobody is to.
const NOWHERE: &str = "http://127.0.0.1:1";
const TRIES: usize = 5;
const TRY_WITHIN: Duration = Duration::from_secs(2);

/// What is wrong.
pub async fn compare(
    etcd: &Cluster,
    other: &Cluster,
    product: Product,
    rows: &mut Rows,
) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    for (cluster, modern) in [(etcd, false), (other, product == Product::Meerkat)] {
        let whose = if modern { "here" } else { "etcd" };
        let mut wrong = status(cluster, modern).await?;
        wrong.extend(over_http(cluster, modern)?);
        wrong.extend(range_stream(cluster, modern).await?);
        findings.extend(wrong.into_iter().map(|what| format!("{whose}: {what}")));
    }
    let (one, two) = (learner(etcd).await?, learner(other).await?);
    if one != two {
        findings.push(format!("kubeadm\n    etcd: {one:?}\n    here: {two:?}"));
    }
    for row in ["Feature detection", "Version floor", "Db size", "Health/ready", "1.37 extra", "kubeadm"] {
        rows.saw(row);
    }
    Ok(findings)
}

fn check(findings: &mut Vec<String>, holds: bool, what: String) {
    if !holds {
        findings.push(what);
    }
}

/// Status, by which features are switched on, and from which the size is read every half minute.
async fn status(cluster: &Cluster, modern: bool) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    for endpoint in cluster.endpoints() {
        let status = endpoint.status(WITHIN).await.map_err(broken)?;
        let reported = version::parse(&status.version);
        let asked = version::is_asked_for_marks(&status.version);
        check(&mut findings, asked == modern, format!("{:?}: asked for marks: {asked}", status.version));
        for least in [KUBEADM_LEAST, REPORTED_LEAST] {
            let enough = reported.is_some_and(|reported| least <= reported);
            check(&mut findings, enough == modern, format!("{:?} beside {least:?}", status.version));
        }
        check(&mut findings, 0 < status.db_size, format!("a size of {}", status.db_size));
        check(&mut findings, status.db_size_in_use <= status.db_size, format!("{status:?}"));
        check(&mut findings, status.errors.is_empty(), format!("errors {:?}", status.errors));
        let header = status.header.unwrap_or_default();
        check(&mut findings, status.leader == header.member_id, format!("led by {:x}", status.leader));
    }
    Ok(findings)
}

/// The probes, and the version for people and tools.
fn over_http(cluster: &Cluster, modern: bool) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    let port = cluster.members()[0].client_port();
    let (code, body) = http_get(port, "/health")?;
    check(
        &mut findings,
        code == 200 && body.contains(r#""health":"true""#),
        format!("/health: {code} {body}"),
    );
    let (code, body) = http_get(port, "/version")?;
    let said: serde_json::Value =
        serde_json::from_str(&body).map_err(|error| Failure::broken(format!("/version: {body}: {error}")))?;
    let server = said["etcdserver"].as_str().unwrap_or_default();
    let enough = version::is_asked_for_marks(server) && version::parse(server) >= Some(REPORTED_LEAST);
    check(&mut findings, code == 200 && enough == modern, format!("/version: {code} {body}"));
    let cluster_version = said["etcdcluster"].as_str().and_then(version::parse);
    let fits = cluster_version
        .zip(version::parse(server))
        .is_some_and(|(all, one)| (all.0, all.1) == (one.0, one.1));
    check(&mut findings, fits, format!("/version: the cluster's beside the server's: {body}"));
    for path in ["/livez", "/readyz"] {
        let (code, body) = http_get(port, path)?;
        check(&mut findings, (code == 200) == modern, format!("{path}: {code} {body}"));
    }
    Ok(findings)
}

fn http_get(port: u16, path: &str) -> Result<(u16, String), Failure> {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WITHIN))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    socket.read_to_string(&mut said)?;
    let code = said.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok((code, body))
}

/// A list in chunks is the list, and its last chunk says of when; or the first receive says that there is
/// no such thing, which makes a client go back to pages.
async fn range_stream(cluster: &Cluster, modern: bool) -> Result<Vec<String>, Failure> {
    let endpoint = cluster.members()[0].endpoint();
    let request = shapes::page(PODS, None, 0, 0);
    let mut kv = KvClient::new(endpoint.channel()).max_decoding_message_size(usize::MAX);
    let chunks: Result<Vec<RangeStreamResponse>, Status> =
        async { kv.range_stream(request.clone()).await?.into_inner().try_collect().await }.await;
    let chunks: Vec<RangeResponse> = match chunks {
        Ok(chunks) => chunks.into_iter().filter_map(|chunk| chunk.range_response).collect(),
        Err(status) if status.code() == Code::Unimplemented && !modern => return Ok(Vec::new()),
        Err(status) => return Ok(vec![format!("a stream of a range: {status:?}")]),
    };
    let mut findings = Vec::new();
    let headers = chunks.iter().map(|chunk| chunk.header.is_some());
    let last_only = headers.clone().filter(|header| *header).count() == 1 && headers.last() == Some(true);
    check(
        &mut findings,
        modern && last_only,
        format!("{} chunks, a header with the last: {last_only}", chunks.len()),
    );
    let whole = endpoint.range(request, WITHIN).await.map_err(broken)?;
    let kvs: Vec<_> = chunks.iter().flat_map(|chunk| chunk.kvs().iter().cloned()).collect();
    check(&mut findings, kvs == whole.kvs(), "the chunks together are not the range".to_owned());
    let last = chunks.last().map(|chunk| (chunk.header, chunk.count, chunk.more));
    check(
        &mut findings,
        last == Some((whole.header, whole.count, whole.more)),
        format!("the last chunk: {last:?}"),
    );
    Ok(findings)
}

/// A learner that never starts: it is listed, cannot be promoted, and goes; to ask again is no harm.
async fn learner(cluster: &Cluster) -> Result<Vec<String>, Failure> {
    let endpoint = cluster.members()[0].endpoint();
    let mut said = Vec::new();
    let add = MemberAddRequest { peer_ur_ls: vec![NOWHERE.to_owned()], is_learner: true };
    let added = endpoint.member_add(add, WITHIN).await.map_err(broken)?;
    let id = added.member.map_or(0, |member| member.id);
    let list = endpoint.member_list(true, WITHIN).await.map_err(broken)?;
    let mut members: Vec<String> = list
        .members
        .iter()
        .map(|member| {
            format!("{:?} learner {} at {}", member.name, member.is_learner, member.client_ur_ls.len())
        })
        .collect();
    members.sort();
    said.push(format!("{members:?} at {:?}", list.header.map(|header| header.revision)));
    let answer = endpoint.member_promote(id, WITHIN).await.map(|_| ());
    said.push(words(answer, EtcdError::LearnerNotReady));
    let answer = endpoint.member_remove(id, WITHIN).await.map_err(broken)?;
    said.push(format!("{} left", answer.members.len()));
    said.push(words(remove_again(endpoint, id).await, EtcdError::MemberNotFound));
    Ok(said)
}

/// A change that comes too soon after another one gets no answer from etcd 3.5; kubeadm asks again.
async fn remove_again(endpoint: &Endpoint, id: u64) -> Result<(), Status> {
    for _ in 0..TRIES {
        match endpoint.member_remove(id, TRY_WITHIN).await {
            Err(status) if status.code() == Code::DeadlineExceeded => {}
            answer => return answer.map(|_| ()),
        }
    }
    endpoint.member_remove(id, WITHIN).await.map(|_| ())
}

fn words(answer: Result<(), Status>, expected: EtcdError) -> String {
    match answer {
        Err(status) if status.message() == expected.message() => expected.to_string(),
        other => format!("{other:?} and not {expected}"),
    }
}
