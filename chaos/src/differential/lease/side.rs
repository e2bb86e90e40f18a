//! One of the two clusters compared: its members, keep-alive streams, watchers and names.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, WatchCreateRequest};
use meerkat_proto::pb::mvcc::Event;
use tonic::Status;

use super::answer::LeaseAnswer;
use super::names::Names;
use super::step::Ask;
use crate::Failure;
use crate::differential::members::Members;
use crate::differential::request::{Answer, Request};
use crate::differential::watch::transcript::{Life, Transcript};
use crate::differential::watch::wire::WatchStream;
use crate::driver::{ClusterSpec, Product};
use crate::lease::KeepAliveStream;
use crate::lease::stream::Next;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a lease is looked for that should end.
const END_POLL: Duration = Duration::from_millis(50);

/// One cluster.
#[derive(Debug)]
pub struct Side {
    /// Its members.
    pub members: Members,
    /// What it calls the leases.
    pub names: Names,
    /// By number; none once closed.
    streams: Vec<Option<KeepAliveStream>>,
    /// One for each member, of all keys from the first revision on, with previous values.
    watchers: Vec<WatchStream>,
}

impl Side {
    /// Starts a cluster.
    pub async fn start(product: Product, members: usize) -> Result<Self, Failure> {
        let members = Members::start(&ClusterSpec::new(product, members).with_slow_elections()).await?;
        let everything = WatchCreateRequest {
            range_end: Bytes::from_static(b"\0"),
            start_revision: 1,
            prev_kv: true,
            ..Default::default()
        };
        let mut watchers = Vec::new();
        for member in 0..members.endpoints.len() {
            let watcher = members.watch(member, false);
            watcher.send(RequestUnion::CreateRequest(everything.clone())).await?;
            watchers.push(watcher);
        }
        let (names, streams) = Default::default();
        Ok(Self { members, names, streams, watchers })
    }

    /// Sends a request of the Lease service.
    pub async fn ask(&self, member: usize, ask: Ask) -> LeaseAnswer {
        let endpoint = &self.members.endpoints[member];
        let answer: Result<LeaseAnswer, Status> = match ask {
            Ask::Grant(LeaseGrantRequest { ttl, id }) => {
                let request = LeaseGrantRequest { ttl, id: self.names.id(id) };
                endpoint.lease_grant(request, ANSWER_WITHIN).await.map(LeaseAnswer::Grant)
            }
            Ask::Revoke(lease) => {
                let id = self.names.id(lease);
                endpoint.lease_revoke(id, ANSWER_WITHIN).await.map(LeaseAnswer::Revoke)
            }
            Ask::TimeToLive { lease, keys } => {
                let id = self.names.id(lease);
                endpoint.lease_time_to_live(id, keys, ANSWER_WITHIN).await.map(LeaseAnswer::TimeToLive)
            }
            Ask::Leases => endpoint.lease_leases(ANSWER_WITHIN).await.map(LeaseAnswer::Leases),
        };
        answer.unwrap_or_else(|status| LeaseAnswer::refused(&status))
    }

    /// Sends a request of the KV service; its answer, comparable.
    pub async fn change(&self, member: usize, request: &Request) -> Answer {
        self.names.answer(self.members.change(member, &self.names.request(request)).await)
    }

    /// One more stream, numbered after the last.
    pub fn open(&mut self, member: usize) {
        self.streams.push(Some(self.members.endpoints[member].keep_alive()));
    }

    /// Closes a stream.
    pub fn close(&mut self, stream: usize) {
        self.streams[stream] = None;
    }

    /// Sends renewals on a stream and takes as many answers.
    pub async fn renew(&mut self, stream: usize, leases: &[i64]) -> Vec<LeaseAnswer> {
        let ids: Vec<i64> = leases.iter().map(|lease| self.names.id(*lease)).collect();
        let Some(stream) = self.streams[stream].as_mut() else { return Vec::new() };
        for id in &ids {
            stream.send(*id).await;
        }
        let mut answers = Vec::new();
        for _ in &ids {
            let answer = heard(stream).await;
            let over = matches!(answer, LeaseAnswer::Ended | LeaseAnswer::Refused(..));
            answers.push(answer.comparable(&self.names));
            if over {
                break;
            }
        }
        answers
    }

    /// Half-closes a stream; what comes of it.
    pub async fn half_close(&mut self, stream: usize) -> LeaseAnswer {
        let Some(mut stream) = self.streams[stream].take() else { return LeaseAnswer::Ended };
        stream.half_close();
        heard(&mut stream).await
    }

    /// Asks the first member, which has no leader, how long a lease lives, to renew it, and which
    /// leases there are; the answers, comparable.
    pub async fn ask_without_leader(&self, lease: i64) -> Vec<LeaseAnswer> {
        let renewing = async {
            let mut stream = self.members.endpoints[0].keep_alive();
            stream.send(self.names.id(lease)).await;
            heard(&mut stream).await
        };
        let time_to_live = self.ask(0, Ask::TimeToLive { lease, keys: true });
        let (time_to_live, renewed, leases) = tokio::join!(time_to_live, renewing, self.ask(0, Ask::Leases));
        [time_to_live, renewed, leases].map(|answer| answer.comparable(&self.names)).to_vec()
    }

    /// Every event up to a revision, of each member, comparable; from the `first`th on.
    pub async fn events(&self, revision: i64, first: usize) -> Result<Vec<Vec<Event>>, Failure> {
        let mut lists = Vec::new();
        for watcher in &self.watchers {
            let told = |heard: &Transcript| heard.lives(0).first().map_or(0, Life::last_revision);
            // Revision 1 is the empty store, of which there is nothing to tell.
            if 1 < revision {
                watcher.await_heard("all events", |heard| revision <= told(heard)).await?;
            }
            let heard = watcher.look(Clone::clone);
            let whole = heard.ended().is_none() && !heard.lives(0).iter().any(Life::is_canceled);
            if !whole || !heard.violations().is_empty() {
                let (ended, wrong) = (heard.ended(), heard.violations());
                return Err(Failure::broken(format!(
                    "{:?}: a watcher of everything ended ({ended:?}) or was told what none may be: {wrong:?}",
                    self.members.product
                )));
            }
            let events = heard.lives(0).first().and_then(|life| life.events.get(first..)).unwrap_or(&[]);
            lists.push(events.iter().map(|event| self.names.event(event.clone())).collect());
        }
        Ok(lists)
    }

    /// Waits until no member knows a lease; when the first was seen not to.
    pub async fn await_end_of(&self, lease: i64, within: Duration) -> Result<Instant, Failure> {
        let id = self.names.id(lease);
        let deadline = Instant::now() + within;
        let mut first: Option<Instant> = None;
        while Instant::now() < deadline {
            let mut left = 0;
            for endpoint in &self.members.endpoints {
                let known = endpoint.lease_leases(ANSWER_WITHIN).await?;
                if known.leases.iter().any(|lease| lease.id == id) {
                    left += 1;
                } else if first.is_none() {
                    first = Some(Instant::now());
                }
            }
            match first {
                Some(first) if left == 0 => return Ok(first),
                _ => tokio::time::sleep(END_POLL).await,
            }
        }
        let product = self.members.product;
        Err(Failure::broken(format!("{product:?}: lease {lease} has not ended within {within:?}")))
    }
}

async fn heard(stream: &mut KeepAliveStream) -> LeaseAnswer {
    match stream.next(ANSWER_WITHIN).await {
        Next::Answer(answer) => LeaseAnswer::KeepAlive(answer),
        Next::Nothing => {
            LeaseAnswer::Refused(tonic::Code::DeadlineExceeded, format!("nothing within {ANSWER_WITHIN:?}"))
        }
        Next::Ended(None) => LeaseAnswer::Ended,
        Next::Ended(Some(status)) => LeaseAnswer::refused(&status),
    }
}
