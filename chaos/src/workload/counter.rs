//! One key whose revision only rises, and readers that notice if it ever falls.
//!
//! A writer publishes the revision of each acknowledged write. A reader notes the published one,
//! asks, and holds the answer against it: a key below it is a stale read. The reader is pinned to
//! one member, since staleness belongs to a member. Revisions are compared and not values, because
//! a write whose client gave up may still take effect later, and would bring its old value back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{PutRequest, RangeRequest};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::record::Trace;
use crate::record::trace::{Client, Ended};

const KEY: &[u8] = b"counter";
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);

/// The key's revision as far as it is acknowledged.
#[derive(Clone, Debug)]
pub struct Counter {
    acknowledged: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    trace: Trace,
}

/// What a writer met.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// When each write was acknowledged.
    pub acknowledged_at: Vec<Instant>,
}

/// What a pinned reader met.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Reads answered.
    pub answered: usize,
    /// Reads that showed less than was acknowledged before they began.
    pub stale: Vec<String>,
}

impl Counter {
    /// One whose clients tell this what they do.
    pub fn told(trace: &Trace) -> Self {
        Self { acknowledged: Arc::default(), stop: Arc::default(), trace: trace.clone() }
    }

    /// The highest revision acknowledged so far.
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Tells writer and readers to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Writes through these members, one after the other when one fails.
    pub fn write_through(&self, endpoints: Vec<Endpoint>, within: Duration) -> JoinHandle<Written> {
        let (counter, client) = (self.clone(), self.trace.client("writer"));
        tokio::spawn(async move {
            let mut written = Written::default();
            let mut at = 0;
            while !counter.stop.load(Ordering::SeqCst) {
                let value = Bytes::from_static(b"tick");
                let request = PutRequest { key: Bytes::from_static(KEY), value, ..Default::default() };
                let sent = Instant::now();
                let answer = endpoints[at % endpoints.len()].put(request, within).await;
                client.op(true, sent, if answer.is_ok() { Ended::Ok } else { Ended::Unknown });
                match answer {
                    Ok(answer) => {
                        let revision = answer.header.map_or(0, |header| header.revision);
                        counter.acknowledged.fetch_max(revision, Ordering::SeqCst);
                        written.acknowledged_at.push(Instant::now());
                    }
                    Err(_) => {
                        at += 1;
                        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                    }
                }
            }
            written
        })
    }

    /// Reads through one member until told to stop, each read with a long deadline, so that those
    /// sent while the member is paused are answered after it wakes.
    pub fn read_through(&self, endpoint: Endpoint, within: Duration) -> JoinHandle<Seen> {
        let (counter, client) = (self.clone(), self.trace.client("reader"));
        tokio::spawn(async move {
            let mut seen = Seen::default();
            while !counter.stop.load(Ordering::SeqCst) {
                counter.read_once(&endpoint, within, &client, &mut seen).await;
            }
            seen
        })
    }

    async fn read_once(&self, endpoint: &Endpoint, within: Duration, client: &Client, seen: &mut Seen) {
        let (floor, sent) = (self.acknowledged(), Instant::now());
        let request = RangeRequest { key: Bytes::from_static(KEY), ..Default::default() };
        let answer = endpoint.range(request, within).await;
        client.op(false, sent, if answer.is_ok() { Ended::Ok } else { Ended::Unknown });
        match answer {
            Ok(answer) => {
                seen.answered += 1;
                let shown = answer.kvs().first().map_or(0, |kv| kv.mod_revision);
                if shown < floor {
                    seen.stale
                        .push(format!("{} showed {shown} after {floor} was acknowledged", endpoint.url()));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(_) => {
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// The longest time in which nothing was acknowledged, from `since` on.
pub fn longest_silence(written: &Written, since: Instant, until: Instant) -> Result<Duration, Failure> {
    let mut last = since;
    let mut longest = Duration::ZERO;
    for at in written.acknowledged_at.iter().filter(|at| since <= **at && **at <= until) {
        longest = longest.max(at.duration_since(last));
        last = *at;
    }
    if last == since {
        return Err(Failure::broken("nothing was acknowledged at all in that time"));
    }
    Ok(longest.max(until.duration_since(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_counts_both_ends() {
        let since = Instant::now();
        let at = |millis| since + Duration::from_millis(millis);
        let written = Written { acknowledged_at: vec![at(30), at(40), at(90)] };
        assert_eq!(longest_silence(&written, since, at(100)).expect("some"), Duration::from_millis(50));
        assert_eq!(longest_silence(&written, since, at(300)).expect("some"), Duration::from_millis(210));
    }

    #[test]
    fn no_acknowledgement_at_all_is_an_error() {
        let since = Instant::now();
        assert!(longest_silence(&Written::default(), since, since + Duration::from_secs(1)).is_err());
    }
}
