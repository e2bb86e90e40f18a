//! Looking after a cluster: space, history, sameness, bounds. As an operator sees it, and as etcd does it.

mod alarms;
mod bounds;
mod corruption;
mod differential;
mod space;
mod steps;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use meerkat_chaos::driver::{ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::etcdserver::alarm_request::AlarmAction;
use meerkat_proto::pb::etcdserver::{AlarmMember, AlarmRequest, AlarmType, PutRequest, PutResponse};
use tonic::Status;

/// For one request, on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Many times what any of these takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(150);

/// A cluster whose leader stays where it is, also on a machine that does much else.
fn calm(product: Product, members: usize) -> ClusterSpec {
    ClusterSpec::new(product, members).with_flags(&["--heartbeat-interval=500", "--election-timeout=5000"])
}

fn broken(status: Status) -> Failure {
    status.into()
}

async fn put(endpoint: &Endpoint, key: &str, bytes: usize) -> Result<PutResponse, Status> {
    let (key, value) = (key.to_owned().into(), vec![7; bytes].into());
    endpoint.put(PutRequest { key, value, ..PutRequest::default() }, WITHIN).await
}

fn alarm_request(action: AlarmAction, member_id: u64, alarm: AlarmType) -> AlarmRequest {
    AlarmRequest { action: action.into(), member_id, alarm: alarm.into() }
}

async fn alarms(endpoint: &Endpoint) -> Result<Vec<AlarmMember>, Failure> {
    let request = alarm_request(AlarmAction::Get, 0, AlarmType::None);
    Ok(endpoint.alarm(request, WITHIN).await.map_err(broken)?.alarms)
}

fn check(holds: bool, what: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::broken(what)) }
}

fn in_time(began: Instant, within: Duration, what: &str) -> Result<(), Failure> {
    if began.elapsed() < within {
        Ok(())
    } else {
        Err(Failure::slow(format!("waited {within:?} until {what}")))
    }
}

/// Asks again and again until it holds.
async fn until(
    what: &str,
    within: Duration,
    mut holds: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<Duration, Failure> {
    let patience = Patience::of(what, within);
    while !holds().await? {
        patience.pause(POLL, "it does not hold").await?;
    }
    patience.came()
}

/// The answer to a GET, head and body.
fn http_get(port: u16, path: &str) -> Result<String, Failure> {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WITHIN))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    socket.read_to_string(&mut said)?;
    Ok(said)
}
