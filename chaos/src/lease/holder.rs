//! A client that holds one lease through members of the caller's choice, and writes down what it
//! was told.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest};

use super::keeper::{PREFIX, renew_once};
use crate::Failure;
use crate::endpoint::{Endpoint, keep_alive::KeepAliveStream};
use crate::record::lease::{KeyRecord, LeaseRecord, RenewalEnd, Span};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const PAUSE_AFTER_LOSS: Duration = Duration::from_millis(40);

/// One lease and its record.
#[derive(Debug)]
pub struct Holder {
    began: Instant,
    lease: LeaseRecord,
}

impl Holder {
    /// Grants a lease through a member and attaches keys.
    pub async fn grant(
        endpoint: &Endpoint,
        id: i64,
        ttl: i64,
        keys: usize,
        began: Instant,
    ) -> Result<Self, Failure> {
        let refused = Failure::from;
        let from = began.elapsed();
        let granted = endpoint.lease_grant(LeaseGrantRequest { ttl, id }, ANSWER_WITHIN).await;
        let granted = granted.map_err(refused)?;
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        let grant = Span { from, until: began.elapsed() };
        let mut lease = LeaseRecord { id, ttl, grant, ..LeaseRecord::default() };
        for number in 0..keys {
            let key: Bytes = [PREFIX, format!("{id}/{number}").as_bytes()].concat().into();
            let put = PutRequest { key: key.clone(), lease: id, ..Default::default() };
            endpoint.put(put, ANSWER_WITHIN).await.map_err(refused)?;
            lease.keys.push(KeyRecord { key, deaths: Vec::new() });
        }
        Ok(Self { began, lease })
    }

    /// Renews every `every` until a time, through members in turn: to the next whenever one does not
    /// answer. Stops early if told that the lease is gone.
    pub async fn renew(&mut self, endpoints: &[Endpoint], every: Duration, until: Instant) {
        let mut at = usize::try_from(self.lease.id).unwrap_or(0);
        let mut stream: Option<KeepAliveStream> = None;
        while Instant::now() < until {
            let mut open = stream.take().unwrap_or_else(|| endpoints[at % endpoints.len()].keep_alive());
            let renewal = renew_once(&mut open, self.lease.id, self.began).await;
            self.lease.renewals.push(renewal);
            match renewal.end {
                RenewalEnd::Renewed(_) => {
                    stream = Some(open);
                    tokio::time::sleep(every).await;
                }
                RenewalEnd::Gone => return,
                RenewalEnd::Unknown => {
                    at += 1;
                    tokio::time::sleep(PAUSE_AFTER_LOSS).await;
                }
            }
        }
    }

    /// Whether it was ever told that its lease is gone.
    pub fn was_told_gone(&self) -> bool {
        self.lease.renewals.iter().any(|renewal| renewal.end == RenewalEnd::Gone)
    }

    /// How many renewals sent after a time were acknowledged.
    pub fn renewed_after(&self, time: Duration) -> usize {
        let renewed = |end: RenewalEnd| matches!(end, RenewalEnd::Renewed(_));
        let later = self.lease.renewals.iter().filter(|renewal| time <= renewal.span.from);
        later.filter(|renewal| renewed(renewal.end)).count()
    }

    /// The record.
    pub fn finish(self) -> LeaseRecord {
        self.lease
    }
}
