//! Keeping leases alive: one task and one stream for all leases of a client.
//!
//! The task lives while there is a lease to keep. It renews on one stream to one member; when that
//! member is lost, has no leader, or owes an answer for too long, it moves to another one. When a
//! lease is lost, its [`KeepAlive`] says so. What is due when is decided in [`super::schedule`].
//!
//! Bounded: what waits to be sent is at most [`UNSENT_MAX`]; above it renewals wait in the schedule.

use super::Granted;
use super::schedule::{Answer, Due, Schedule};
use crate::Client;
use crate::balancer::{Picked, Verdict};
use crate::retry::{self, Blame};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_types::LeaseId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Renewals handed to the stream and not yet on the wire.
const UNSENT_MAX: usize = 4096;
/// Pauses between two attempts to open a stream, drawn at random below a bound that doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A lease that is being kept alive. Dropping the last one of a lease stops that.
pub struct KeepAlive {
    id: LeaseId,
    /// Tells this keeping of the lease from a later one of the same name.
    serial: u64,
    status: watch::Receiver<KeepAliveStatus>,
    client: Client,
}

/// How the keeping of a lease goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepAliveStatus {
    /// When the newest acknowledged renewal was sent; `None` before the first.
    pub last_ack: Option<Instant>,
    /// How long the lease lives from then on. Before the first acknowledgement it is what was
    /// granted, if that is known.
    pub ttl: Duration,
    /// The lease is lost, and nothing more will happen.
    pub lost: Option<LeaseLost>,
}

/// A lease is gone, or can no longer be known to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lease {} is lost: {reason}", id.get())]
#[non_exhaustive]
pub struct LeaseLost {
    /// Which lease.
    pub id: LeaseId,
    /// How that was found out.
    pub reason: LossReason,
}

/// How it was found out that a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The cluster says that there is no such lease: it ran out or was revoked.
    #[error("the cluster does not have it any more")]
    Gone,
    /// Its whole time has passed since the last renewal that was acknowledged.
    #[error("no renewal was acknowledged in time")]
    Silence,
}

/// A lease to keep: its name, and how long it is known to live if that is known.
#[derive(Clone, Copy, Debug)]
pub struct LeaseToKeep {
    id: LeaseId,
    known: Option<(Duration, Instant)>,
}

impl From<LeaseId> for LeaseToKeep {
    fn from(id: LeaseId) -> LeaseToKeep {
        LeaseToKeep { id, known: None }
    }
}

impl From<Granted> for LeaseToKeep {
    fn from(granted: Granted) -> LeaseToKeep {
        LeaseToKeep { id: granted.id, known: Some((granted.ttl, granted.asked_at)) }
    }
}

impl KeepAlive {
    /// The lease.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Ends when the lease is lost: when the cluster says so, or when its whole time has passed
    /// since the sending of the last renewal that was acknowledged. Not before.
    pub async fn lost(&self) -> LeaseLost {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.lost.is_some()).await {
            Ok(status) => status.lost.unwrap_or(self.silent()),
            // Nobody renews any more.
            Err(_) => self.silent(),
        }
    }

    /// How it goes now.
    pub fn status(&self) -> KeepAliveStatus {
        self.status.borrow().clone()
    }

    /// How it goes, as it changes.
    pub fn monitor(&self) -> watch::Receiver<KeepAliveStatus> {
        self.status.clone()
    }

    fn silent(&self) -> LeaseLost {
        LeaseLost { id: self.id, reason: LossReason::Silence }
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").field("id", &self.id).field("status", &*self.status.borrow()).finish()
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.client.keeper().release(self.id, self.serial);
    }
}

/// The leases one client keeps alive.
#[derive(Default)]
pub(crate) struct Keeper {
    /// Guards the schedule and the statuses together; never held across an await.
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    kept: HashMap<LeaseId, Told>,
    serial: u64,
    running: bool,
}

/// Who is told about a lease.
struct Told {
    status: watch::Sender<KeepAliveStatus>,
    serial: u64,
    handles: usize,
}

impl Keeper {
    pub(crate) fn keep(&self, client: &Client, lease: LeaseToKeep) -> KeepAlive {
        let now = Instant::now();
        // Of a lease that is only named nothing is known until the first answer. It must come within
        // the time any request has.
        let (ttl, from) = lease.known.unwrap_or((client.pool().config().request_timeout, now));
        let ttl = ttl.min(super::TTL_MAX);
        let mut state = self.state.lock();
        let State { schedule, kept, running, serial } = &mut *state;
        let told = kept.entry(lease.id).or_insert_with(|| {
            schedule.add(lease.id, ttl, from, now);
            let status = KeepAliveStatus { last_ack: None, ttl, lost: None };
            *serial += 1;
            Told { status: watch::Sender::new(status), serial: *serial, handles: 0 }
        });
        told.handles += 1;
        let serial = told.serial;
        let status = told.status.subscribe();
        if !std::mem::replace(running, true) {
            client.spawn(run(client.clone()));
        }
        drop(state);
        self.changed.notify_one();
        KeepAlive { id: lease.id, serial, status, client: client.clone() }
    }

    fn release(&self, id: LeaseId, serial: u64) {
        let mut state = self.state.lock();
        let Some(told) = state.kept.get_mut(&id).filter(|told| told.serial == serial) else { return };
        told.handles = told.handles.saturating_sub(1);
        if told.handles == 0 {
            state.kept.remove(&id);
            state.schedule.remove(id);
            self.changed.notify_one();
        }
    }
}

impl State {
    /// Tells the handles of a lease that it is lost, and forgets it.
    fn lose(&mut self, id: LeaseId, reason: LossReason) {
        if let Some(told) = self.kept.remove(&id) {
            told.status.send_modify(|status| status.lost = Some(LeaseLost { id, reason }));
        }
    }
}

type Opening = Pin<
    Box<dyn Future<Output = Result<tonic::Response<Streaming<pb::LeaseKeepAliveResponse>>, Status>> + Send>,
>;

/// The stream, in the phases of its life.
enum Phase {
    /// None, until the moment to try again.
    Closed {
        until: tokio::time::Instant,
    },
    /// Asked for; renewals may be handed in already, and with some servers must be.
    Opening {
        opening: Opening,
        line: Line,
    },
    Open {
        answers: Box<Streaming<pb::LeaseKeepAliveResponse>>,
        line: Line,
    },
}

/// The way out of a stream, and whom it leads to.
struct Line {
    picked: Picked,
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    token: u64,
    /// Ends when the member is gone or has lost its leader. One for the stream's whole life, as it
    /// remembers whether there was a leader to lose.
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Line {
    fn new(picked: Picked, requests: mpsc::Sender<pb::LeaseKeepAliveRequest>, token: u64) -> Line {
        let member = picked.clone();
        Line { picked, requests, token, lost: Box::pin(async move { member.gone_or_leaderless().await }) }
    }
}

/// All that can happen to the task.
enum Happened {
    /// Something may be due.
    Woke,
    Opened(Result<Streaming<pb::LeaseKeepAliveResponse>, Status>),
    Answered(Option<Result<pb::LeaseKeepAliveResponse, Status>>),
    /// The member of the stream is lost to us.
    MemberLost,
    TryAgain,
}

struct Task {
    client: Client,
    phase: Phase,
    avoid: Option<crate::balancer::EndpointId>,
    failures: u32,
}

async fn run(client: Client) {
    let phase = Phase::Closed { until: tokio::time::Instant::now() };
    let mut task = Task { client, phase, avoid: None, failures: 0 };
    while task.send_what_is_due() {
        match task.next().await {
            Happened::Woke => {}
            Happened::TryAgain => task.open(),
            Happened::Opened(Ok(answers)) => task.opened(answers),
            Happened::Opened(Err(status)) => task.failed(Some(status)),
            Happened::Answered(Some(Ok(answer))) => task.answered(&answer),
            Happened::Answered(Some(Err(status))) => task.failed(Some(status)),
            Happened::Answered(None) | Happened::MemberLost => task.failed(None),
        }
    }
}

impl Task {
    /// False when there is nothing left to keep and the task is to end.
    fn send_what_is_due(&mut self) -> bool {
        let keeper = self.client.keeper();
        let mut state = keeper.state.lock();
        let now = Instant::now();
        let mut stuck = false;
        loop {
            let line = match &self.phase {
                Phase::Closed { .. } => None,
                Phase::Opening { line, .. } | Phase::Open { line, .. } => Some(line),
            };
            let permit = line.and_then(|line| line.requests.try_reserve().ok());
            match state.schedule.due(now, permit.is_some()) {
                Some(Due::Renew(id)) => {
                    if let Some(permit) = permit {
                        permit.send(pb::LeaseKeepAliveRequest { id: id.get() });
                    }
                }
                Some(Due::Lost(id)) => state.lose(id, LossReason::Silence),
                Some(Due::Stuck) => stuck = true,
                None => break,
            }
        }
        if stuck && !matches!(self.phase, Phase::Closed { .. }) {
            state.schedule.stream_lost(now);
            drop(state);
            self.close();
            return true;
        }
        if state.schedule.is_empty() {
            // The stream ends with the task.
            state.schedule.stream_lost(now);
            // Under the lock: whoever adds the next lease finds no task and starts one.
            state.running = false;
            return false;
        }
        true
    }

    async fn next(&mut self) -> Happened {
        let keeper = self.client.keeper();
        let wake = keeper.state.lock().schedule.next_wake();
        let timer = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let stirred = async {
            tokio::select! {
                () = timer => {}
                () = keeper.changed.notified() => {}
            }
        };
        match &mut self.phase {
            Phase::Closed { until } => tokio::select! {
                () = tokio::time::sleep_until(*until) => Happened::TryAgain,
                () = stirred => Happened::Woke,
            },
            Phase::Opening { opening, line } => tokio::select! {
                opened = opening => Happened::Opened(opened.map(tonic::Response::into_inner)),
                () = &mut line.lost => Happened::MemberLost,
                () = stirred => Happened::Woke,
            },
            Phase::Open { answers, line } => tokio::select! {
                answer = answers.next() => Happened::Answered(answer),
                () = &mut line.lost => Happened::MemberLost,
                () = stirred => Happened::Woke,
            },
        }
    }

    fn open(&mut self) {
        let Ok(picked) = self.client.pool().pick_now(self.avoid) else {
            self.close();
            return;
        };
        let (requests, unsent) = mpsc::channel(UNSENT_MAX);
        let mut request = tonic::Request::new(ReceiverStream::new(unsent));
        request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        let token = self.client.pool().credentials().generation();
        let mut lease = LeaseClient::new(picked.wire.clone());
        let opening: Opening = Box::pin(async move { lease.lease_keep_alive(request).await });
        self.phase = Phase::Opening { opening, line: Line::new(picked, requests, token) };
    }

    fn opened(&mut self, answers: Streaming<pb::LeaseKeepAliveResponse>) {
        let until = tokio::time::Instant::now();
        if let Phase::Opening { line, .. } = std::mem::replace(&mut self.phase, Phase::Closed { until }) {
            self.phase = Phase::Open { answers: Box::new(answers), line };
        }
    }

    fn answered(&mut self, answer: &pb::LeaseKeepAliveResponse) {
        let Some(id) = LeaseId::from_wire(answer.id) else { return };
        let ttl = (0 < answer.ttl).then(|| super::seconds(answer.ttl));
        let now = Instant::now();
        let mut state = self.client.keeper().state.lock();
        match state.schedule.answered(id, ttl, now, rand::random()) {
            Answer::Alive { from, ttl } => {
                if let Some(told) = state.kept.get(&id) {
                    told.status.send_modify(|status| {
                        status.last_ack = Some(from);
                        status.ttl = ttl;
                    });
                }
                drop(state);
                self.went_well();
            }
            Answer::Gone => {
                state.lose(id, LossReason::Gone);
                drop(state);
                self.went_well();
            }
            Answer::Stray => {}
        }
    }

    fn went_well(&mut self) {
        if (self.failures != 0 || self.avoid.is_some())
            && let Phase::Open { line, .. } = &self.phase
        {
            self.client.pool().report(line.picked.id, Verdict::Good);
            self.failures = 0;
            self.avoid = None;
        }
    }

    /// The stream ended; its status, if it had one, says whether its member is to blame.
    fn failed(&mut self, status: Option<Status>) {
        if let (Some(status), Phase::Opening { line, .. } | Phase::Open { line, .. }) = (status, &self.phase)
        {
            tracing::debug!(endpoint = %line.picked.name, %status, "a keep-alive stream ended");
            match retry::blames_member(retry::look(&status)) {
                Blame::None => {}
                Blame::NoLeader => self.client.pool().report(line.picked.id, Verdict::NoLeader),
                Blame::Connection => self.client.pool().report(line.picked.id, Verdict::Failed),
            }
            let known = EtcdError::from_message(status.message());
            if matches!(
                known,
                Some(EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision | EtcdError::UserEmpty)
            ) {
                // Beside this task, which has other leases to look after. If it fails, the next stream
                // will say so.
                let (client, token) = (self.client.clone(), line.token);
                let timeout = client.pool().config().request_timeout;
                self.client.spawn(async move { drop(client.renew_token(token, timeout).await) });
            }
        }
        self.client.keeper().state.lock().schedule.stream_lost(Instant::now());
        self.close();
    }

    fn close(&mut self) {
        if let Phase::Opening { line, .. } | Phase::Open { line, .. } = &self.phase {
            self.avoid = Some(line.picked.id);
        }
        // Short at first, because renewals are owed; but drawn, because all clients of a lost member
        // move at the same time.
        let bound = PAUSE_FIRST.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let pause = crate::balancer::picker::fraction(bound, rand::random());
        self.phase = Phase::Closed { until: tokio::time::Instant::now() + pause };
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("leases", &self.state.lock().kept.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::balancer::Pool;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_leader_that_is_lost_between_two_looks_is_missed_at_the_second() {
        let pool = Pool::new(Config::new(["127.0.0.1:1"])).expect("a pool");
        let picked = pool.pick_now(None).expect("an endpoint");
        let id = picked.id;
        let mut line = Line::new(picked, mpsc::channel(1).0, 0);
        assert!((&mut line.lost).now_or_never().is_none(), "there is a leader");
        pool.report(id, Verdict::NoLeader);
        assert!((&mut line.lost).now_or_never().is_some(), "it is lost");
    }
}
