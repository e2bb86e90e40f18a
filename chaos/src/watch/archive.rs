//! Reads everything that ever happened to a store, from outside, before compaction takes it away.
//!
//! Each reading is a fresh watch of all keys on a member that answers. What is read is replayed at
//! once, so that a gap or a contradiction shows. At the end every member is read again as far back
//! as it goes, and all must tell the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeRequest};

use crate::checker::watch_history::{Compaction, EMPTY_AT, WatchHistory, Wrote};
use crate::endpoint::{Endpoint, watch::Next};
use crate::outcome::{self, Outcome, describe};
use crate::record::watch::{Reply, Seen, Stored, WatchSpec};
use crate::{Failure, Patience};

/// What one member may take to send what is missing.
const READ_WITHIN: Duration = Duration::from_secs(5);
const PAGE: i64 = 1_000;

/// The history so far, and when its times are counted from.
#[derive(Debug)]
pub struct Archive {
    history: WatchHistory,
    began: Instant,
}

impl Archive {
    /// Of a store that was empty at `began`.
    pub fn new(began: Instant) -> Self {
        Self { history: WatchHistory::default(), began }
    }

    /// What has been read.
    pub fn history(&self) -> &WatchHistory {
        &self.history
    }

    /// Reads on up to a revision, from the first member that gives it.
    pub async fn extend(
        &mut self,
        endpoints: &[Endpoint],
        upto: i64,
        within: Duration,
    ) -> Result<(), Failure> {
        let patience = Patience::of(format!("a member tells what happened up to {upto}"), within);
        let mut last = "no member was asked".to_owned();
        let mut turn = 0;
        while self.history.last_revision() < upto {
            patience.lasts(&last)?;
            let endpoint = &endpoints[turn % endpoints.len()];
            turn += 1;
            match read(endpoint, self.history.last_revision() + 1, upto).await {
                Ok(events) => self.append(endpoint, events)?,
                Err(why) => {
                    last = format!("{}: {why}", endpoint.url());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        patience.came().map(drop)
    }

    fn append(&mut self, endpoint: &Endpoint, events: Vec<Seen>) -> Result<(), Failure> {
        let mut findings = Vec::new();
        for event in events {
            findings.extend(self.history.append(event));
        }
        Failure::from_findings("a fresh watch tells a history that can be", findings)
            .map_err(|failure| failure.during(endpoint.url()))
    }

    /// Compacts, having noted that it may happen. A refusal is returned in its own words.
    pub async fn compact(&mut self, endpoint: &Endpoint, revision: i64) -> Outcome<()> {
        self.history.compactions.push(Compaction { revision, asked: self.began.elapsed() });
        let request = CompactionRequest { revision, physical: false };
        outcome::of_write(endpoint.compact(request, READ_WITHIN).await.map(|_| ()))
    }

    /// Reads the rest, holds every member and the writers against it, and returns the history.
    /// Expects every member running and nobody writing.
    pub async fn close(mut self, endpoints: &[Endpoint], writes: &[Wrote]) -> Result<WatchHistory, Failure> {
        let revision = endpoints[0].linearizable_probe(READ_WITHIN).await?;
        self.extend(endpoints, revision, Duration::from_secs(20)).await?;
        Failure::from_findings("the history is what was acknowledged", self.history.compare_writes(writes))?;
        for endpoint in endpoints {
            let state = state(endpoint, revision).await?;
            Failure::from_findings(
                "a read shows what the history leads to",
                self.history.compare_state(&state),
            )
            .map_err(|failure| failure.during(endpoint.url()))?;
            self.compare_tail(endpoint, revision).await?;
        }
        Ok(self.history)
    }

    /// What a member still knows of the past must be what was read.
    async fn compare_tail(&self, endpoint: &Endpoint, upto: i64) -> Result<(), Failure> {
        let from = self.history.compactions.iter().map(|one| one.revision).max().unwrap_or(EMPTY_AT + 1);
        if upto < from {
            return Ok(());
        }
        let read = read(endpoint, from, upto)
            .await
            .map_err(|why| Failure::broken(format!("{} from revision {from} on: {why}", endpoint.url())))?;
        let kept = self.history.events().iter().filter(|event| from <= event.revision());
        let plain = |event: &Seen| Seen { prev: None, ..event.clone() };
        let expected: Vec<Seen> = kept.map(plain).collect();
        let told: Vec<Seen> = read.iter().map(plain).collect();
        let differs = (0..expected.len().max(told.len())).find(|at| expected.get(*at) != told.get(*at));
        let findings = differs.map(|at| {
            format!("{} tells {:?} where others tell {:?}", endpoint.url(), told.get(at), expected.get(at))
        });
        Failure::from_findings("all members tell the same history", findings.into_iter().collect())
    }
}

/// All events of some revisions, through one fresh watch; an error if they do not come in time.
pub async fn read(endpoint: &Endpoint, from: i64, upto: i64) -> Result<Vec<Seen>, String> {
    let spec = WatchSpec { prev_kv: true, ..WatchSpec::of_all() };
    let mut stream = endpoint.watch(&[]).map_err(|failure| failure.to_string())?;
    stream.send(spec.request(from)).await;
    let deadline = Instant::now() + READ_WITHIN;
    let mut events: Vec<Seen> = Vec::new();
    while events.last().map_or(0, Seen::revision) < upto {
        let left = deadline.saturating_duration_since(Instant::now());
        match stream.next(left).await {
            Next::Response(response) => {
                let reply = Reply::record(&response, Duration::ZERO);
                if reply.canceled {
                    return Err(format!("canceled: {reply:?}"));
                }
                events.extend(reply.events);
            }
            Next::Nothing => {
                let last = events.last().map_or(from - 1, Seen::revision);
                return Err(format!("events up to revision {last} only, {upto} wanted"));
            }
            Next::Ended(status) => {
                return Err(status.map_or_else(|| "the server ended it".to_owned(), |s| describe(&s)));
            }
        }
    }
    events.retain(|event| event.revision() <= upto);
    Ok(events)
}

/// All keys at a revision.
async fn state(endpoint: &Endpoint, revision: i64) -> Result<BTreeMap<Bytes, Stored>, Failure> {
    let mut state = BTreeMap::new();
    let mut from = Bytes::from_static(b"\0");
    loop {
        let request = RangeRequest {
            key: from,
            range_end: Bytes::from_static(b"\0"),
            limit: PAGE,
            revision,
            ..Default::default()
        };
        let answer = endpoint.range(request, READ_WITHIN).await;
        let answer = answer.map_err(|status| {
            Failure::broken(format!("cannot read {}: {}", endpoint.url(), describe(&status)))
        })?;
        state.extend(answer.kvs().iter().map(|kv| (Bytes::copy_from_slice(&kv.key), Stored::record(kv))));
        match answer.kvs().last() {
            Some(last) if answer.more => {
                from = [last.key.as_ref(), b"\0"].concat().into();
            }
            _ => return Ok(state),
        }
    }
}
