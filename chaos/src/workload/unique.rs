//! Writers whose every write has an identity, and readers of the register they share.
//!
//! Each write puts its identity under a key of its own; every other one also sets the shared
//! register in the same transaction. A client that gets no clear answer moves to the next member
//! and to its next write: it never sends one identity twice, or the checker could not tell a
//! retry of ours from a double apply of the server's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op};
use tokio::task::JoinHandle;

use crate::endpoint::{Contact, Endpoint, Roster};
use crate::outcome::{self, Outcome};
use crate::record::Trace;
use crate::record::history::{FinalState, History, Read, Stored, Write, WriteId};
use crate::record::trace::{self, Ended};
use crate::{Failure, Patience};

const PREFIX: &[u8] = b"u/";
const PREFIX_END: &[u8] = b"u0";
const REGISTER: &[u8] = b"register";
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// After an error, so that a dead member is not asked thousands of times a second.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
const SCAN_PAGE: i64 = 5_000;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Clients that write.
    pub writers: u32,
    /// Clients that read the register.
    pub readers: u32,
    /// Rest of each client between requests.
    pub rest: Duration,
    /// Bytes added to each stored value.
    pub padding: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self { writers: 8, readers: 3, rest: Duration::from_millis(2), padding: 64 }
    }
}

/// Load in progress.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<History>>,
}

#[derive(Clone)]
struct Client {
    roster: Roster,
    number: u32,
    shape: Shape,
    began: Instant,
    told: trace::Client,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

/// Starts the clients. Identities begin at `first_writer`, so that two loads of one run differ.
pub fn start(endpoints: &[Endpoint], shape: Shape, first_writer: u32, trace: &Trace) -> Running {
    start_on(&Roster::of(endpoints), shape, first_writer, trace)
}

/// The same where members come and go.
pub fn start_on(roster: &Roster, shape: Shape, first_writer: u32, trace: &Trace) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let client = |number, name: &str| Client {
        roster: roster.clone(),
        number,
        shape,
        began: trace.began(),
        told: trace.client(format!("{name}/{number}")),
        stop: stop.clone(),
        acknowledged: acknowledged.clone(),
    };
    let mut clients = Vec::new();
    for number in 0..shape.writers {
        clients.push(tokio::spawn(client(first_writer + number, "writer").write()));
    }
    for number in 0..shape.readers {
        clients.push(tokio::spawn(client(number, "reader").read()));
    }
    Running { stop, acknowledged, clients }
}

impl Running {
    /// Writes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more writes are acknowledged.
    pub async fn wait_for_more(&self, more: u64, within: Duration) -> Result<(), Failure> {
        let wanted = self.acknowledged() + more;
        let are_there = || match self.acknowledged() {
            all if wanted <= all => Ok(()),
            some => Err(format!("{some} of {wanted}")),
        };
        let patience = Patience::of(format!("{more} more writes are acknowledged"), within);
        patience.until(Duration::from_millis(10), are_there).await.map(drop)
    }

    /// Stops the clients and returns what they recorded.
    pub async fn finish(self) -> Result<History, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        for client in self.clients {
            history
                .absorb(client.await.map_err(|error| Failure::harness(format!("a client ended: {error}")))?);
        }
        Ok(history)
    }
}

impl Client {
    async fn write(self) -> History {
        let mut history = History::default();
        let mut at = self.number as usize;
        for sequence in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let id = WriteId::new(self.number, sequence);
            let endpoint = self.contact(at).endpoint;
            let (sent, invoked) = (Instant::now(), self.began.elapsed());
            let outcome = self.write_one(&endpoint, id).await;
            self.told.op(true, sent, Ended::from(&outcome));
            let settled = matches!(outcome, Outcome::Ok(_));
            history.writes.push(Write { id, invoked, returned: self.began.elapsed(), outcome });
            if settled {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(self.shape.rest).await;
            } else {
                at += 1;
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        history
    }

    async fn write_one(&self, endpoint: &Endpoint, id: WriteId) -> Outcome<i64> {
        let own =
            PutRequest { key: key_of(id), value: value_of(id, self.shape.padding), ..Default::default() };
        let header = if id.sets_register() {
            let register = PutRequest {
                key: Bytes::from_static(REGISTER),
                value: value_of(id, 0),
                ..Default::default()
            };
            let success =
                [own, register].map(|put| RequestOp { request: Some(request_op::Request::RequestPut(put)) });
            let request = TxnRequest { success: success.into(), ..Default::default() };
            endpoint.txn(request, ANSWER_WITHIN).await.map(|answer| answer.header)
        } else {
            endpoint.put(own, ANSWER_WITHIN).await.map(|answer| answer.header)
        };
        match outcome::of_write(header) {
            Outcome::Ok(Some(header)) => Outcome::Ok(header.revision),
            // Revision 0 is never given to a write, so the checkers will report this answer.
            Outcome::Ok(None) => Outcome::Ok(0),
            Outcome::Failed(why) => Outcome::Failed(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        }
    }

    fn contact(&self, at: usize) -> Contact {
        let contacts = self.roster.all();
        contacts[at % contacts.len()].clone()
    }

    async fn read(self) -> History {
        let mut history = History::default();
        let mut at = self.number as usize;
        while !self.stop.load(Ordering::Relaxed) {
            at += 1;
            let Contact { member, endpoint } = self.contact(at);
            let (sent, invoked) = (Instant::now(), self.began.elapsed());
            let request = RangeRequest { key: Bytes::from_static(REGISTER), ..Default::default() };
            let answer = endpoint.range(request, ANSWER_WITHIN).await;
            self.told.op(false, sent, if answer.is_ok() { Ended::Ok } else { Ended::Unknown });
            match answer {
                Ok(answer) => {
                    let register = answer.kvs().first().map(|kv| (id_of_value(&kv.value), kv.mod_revision));
                    let revision = answer.header.map_or(0, |header| header.revision);
                    let returned = self.began.elapsed();
                    history.reads.push(Read { member, invoked, returned, revision, register });
                    tokio::time::sleep(self.shape.rest).await;
                }
                Err(_) => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
            }
        }
        history
    }
}

/// Reads every write of the run back, at one revision, from one member.
pub async fn final_state(endpoint: &Endpoint, started_at: i64) -> Result<FinalState, Failure> {
    let mut state = FinalState { started_at, ..Default::default() };
    let mut from = Bytes::from_static(PREFIX);
    loop {
        let request = RangeRequest {
            key: from,
            range_end: Bytes::from_static(PREFIX_END),
            limit: SCAN_PAGE,
            revision: state.revision,
            keys_only: true,
            ..Default::default()
        };
        let answer = endpoint
            .range(request, Duration::from_secs(20))
            .await
            .map_err(|status| Failure::broken(format!("cannot read back: {}", outcome::describe(&status))))?;
        if state.revision == 0 {
            state.revision = answer.header.as_ref().map_or(0, |header| header.revision);
        }
        for kv in answer.kvs() {
            let id = id_of_key(&kv.key)?;
            state.stored.push(Stored { id, revision: kv.mod_revision, version: kv.version });
        }
        match answer.kvs().last() {
            Some(last) if answer.more => from = after(&last.key),
            _ => return Ok(state),
        }
    }
}

/// The least key above this one.
fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

fn key_of(id: WriteId) -> Bytes {
    format!("u/{:016x}", id.0).into_bytes().into()
}

fn id_of_key(key: &[u8]) -> Result<WriteId, Failure> {
    let digits = key.strip_prefix(PREFIX).and_then(|digits| std::str::from_utf8(digits).ok());
    let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    id.map(WriteId).ok_or_else(|| Failure::broken(format!("a key that nobody wrote: {key:?}")))
}

fn value_of(id: WriteId, padding: usize) -> Bytes {
    let mut value = id.0.to_be_bytes().to_vec();
    value.resize(8 + padding, b'.');
    value.into()
}

/// A value of the wrong length becomes an identity that was never sent, which the checker reports.
fn id_of_value(value: &[u8]) -> WriteId {
    WriteId(value.try_into().map_or(u64::MAX, u64::from_be_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_key_and_value() {
        let id = WriteId::new(3, 70_001);
        assert_eq!(id_of_key(&key_of(id)).expect("own key"), id);
        assert_eq!(id_of_value(&value_of(id, 0)), id);
        assert!(id.sets_register());
    }

    #[test]
    fn a_foreign_key_is_not_mistaken_for_a_write() {
        assert!(id_of_key(b"u/xyz").is_err());
    }
}
