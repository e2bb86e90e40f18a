//! The outline of a run, for its report: operations, faults, leaders, watchers' lag, resources.
//!
//! Verdicts do not come from here: each workload keeps the full history it is judged by. This is
//! what a person looks at. Everything is an offset in microseconds from the start of the run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// How an operation ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// Answered.
    Ok,
    /// Refused: it did not happen.
    Failed,
    /// Nobody knows.
    Unknown,
}

impl<T> From<&Outcome<T>> for Ended {
    fn from(outcome: &Outcome<T>) -> Self {
        match outcome {
            Outcome::Ok(_) => Self::Ok,
            Outcome::Failed(_) => Self::Failed,
            Outcome::Unknown(_) => Self::Unknown,
        }
    }
}

/// One operation. Kept as a row without names: there are millions of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Op {
    /// Index into `Record::clients`.
    pub client: u32,
    /// Whether it changes anything: availability is judged by these.
    pub writes: bool,
    /// When it was sent.
    pub invoked_us: u64,
    /// When its outcome was known.
    pub returned_us: u64,
    /// How it ended.
    pub ended: Ended,
}

/// The fields of an operation, in their order.
type Row = (u32, bool, u64, u64, Ended);

impl From<Row> for Op {
    fn from((client, writes, invoked_us, returned_us, ended): Row) -> Self {
        Self { client, writes, invoked_us, returned_us, ended }
    }
}

impl From<Op> for Row {
    fn from(op: Op) -> Self {
        (op.client, op.writes, op.invoked_us, op.returned_us, op.ended)
    }
}

/// One fault, from strike to heal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Its kind, as in the scenario files.
    pub kind: String,
    /// What was done to whom.
    pub what: String,
    /// Whom it met.
    pub members: Vec<usize>,
    /// Whether it was made; one that could not be counts as none.
    #[serde(default = "made")]
    pub made: bool,
    /// When it began.
    pub struck_us: u64,
    /// When it was undone; the end of the run if never.
    pub healed_us: Option<u64>,
}

/// What a record says that was kept before such were told apart.
fn made() -> bool {
    true
}

/// What a nemesis did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blow {
    /// In a few words: `m1 killed (leader)`.
    pub what: String,
    /// Whom it met.
    pub members: Vec<usize>,
    /// Whether there was any harm: what could not be made counts as no fault.
    pub made: bool,
}

impl Blow {
    /// Harm done to these.
    pub fn made(what: impl Into<String>, members: Vec<usize>) -> Self {
        Self { what: what.into(), members, made: true }
    }

    /// No harm, and why not.
    pub fn not_made(what: impl Into<String>) -> Self {
        Self { what: what.into(), members: Vec::new(), made: false }
    }
}

/// A member seen leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Led {
    /// When it was seen.
    pub at_us: u64,
    /// Who; none if nobody says that it leads.
    pub member: Option<usize>,
    /// In which term.
    pub term: u64,
}

/// How far behind the newest acknowledged revision a watcher was.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Lag {
    /// When.
    pub at_us: u64,
    /// Index into `Record::watchers`.
    pub watcher: u32,
    /// By how many revisions.
    pub revisions: u64,
}

/// What one member's process held.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Held {
    /// When.
    pub at_us: u64,
    /// Who.
    pub member: usize,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Open file descriptors.
    pub files: u64,
    /// The process, so that a restart can be told from growth.
    pub pid: u32,
}

/// All of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Names of clients, `register/3`.
    pub clients: Vec<String>,
    /// Names of watchers.
    pub watchers: Vec<String>,
    /// Every operation, in no order.
    pub ops: Vec<Op>,
    /// Every fault, in order.
    pub faults: Vec<Fault>,
    /// Changes of leader, in order.
    pub leaders: Vec<Led>,
    /// Lags, in order for each watcher.
    pub lags: Vec<Lag>,
    /// Resources, in order.
    pub held: Vec<Held>,
}

/// A handle that all parts of a run share.
#[derive(Clone, Debug)]
pub struct Trace {
    began: Instant,
    record: Arc<Mutex<Record>>,
}

/// A client's own handle: its index and the trace.
#[derive(Clone, Debug)]
pub struct Client {
    trace: Trace,
    index: u32,
}

impl Trace {
    /// An empty one.
    pub fn new(began: Instant) -> Self {
        Self { began, record: Arc::default() }
    }

    /// The start of the run.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// When this is, in its terms.
    pub fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// A new client with this name.
    pub fn client(&self, name: impl Into<String>) -> Client {
        let mut record = self.record.lock();
        let index = u32::try_from(record.clients.len()).unwrap_or(u32::MAX);
        record.clients.push(name.into());
        Client { trace: self.clone(), index }
    }

    /// A new watcher with this name; its index for `lag`.
    pub fn watcher(&self, name: impl Into<String>) -> u32 {
        let mut record = self.record.lock();
        let index = u32::try_from(record.watchers.len()).unwrap_or(u32::MAX);
        record.watchers.push(name.into());
        index
    }

    /// Tells how far behind a watcher is now.
    pub fn lag(&self, watcher: u32, revisions: u64) {
        let at_us = self.micros(Instant::now());
        self.record.lock().lags.push(Lag { at_us, watcher, revisions });
    }

    /// Tells of a fault that begins now; its index for `tell` and `healed`.
    pub fn struck(&self, kind: &str) -> usize {
        let struck_us = self.micros(Instant::now());
        let mut record = self.record.lock();
        record.faults.push(Fault {
            kind: kind.to_owned(),
            what: "on its way".to_owned(),
            members: Vec::new(),
            made: true,
            struck_us,
            healed_us: None,
        });
        record.faults.len() - 1
    }

    /// Tells what a fault was, once that is known.
    pub fn tell(&self, fault: usize, blow: &Blow) {
        if let Some(fault) = self.record.lock().faults.get_mut(fault) {
            fault.what.clone_from(&blow.what);
            fault.members.clone_from(&blow.members);
            fault.made = blow.made;
        }
    }

    /// Tells that it was undone now.
    pub fn healed(&self, fault: usize) {
        let healed_us = self.micros(Instant::now());
        if let Some(fault) = self.record.lock().faults.get_mut(fault) {
            fault.healed_us = Some(healed_us);
        }
    }

    /// Tells who leads now; kept only if that is news.
    pub fn leads(&self, member: Option<usize>, term: u64) {
        let at_us = self.micros(Instant::now());
        let mut record = self.record.lock();
        if record.leaders.last().is_none_or(|last| (last.member, last.term) != (member, term)) {
            record.leaders.push(Led { at_us, member, term });
        }
    }

    /// Tells what a member's process holds now.
    pub fn held(&self, member: usize, rss_bytes: u64, files: u64, pid: u32) {
        let at_us = self.micros(Instant::now());
        self.record.lock().held.push(Held { at_us, member, rss_bytes, files, pid });
    }

    /// All of it so far.
    pub fn record(&self) -> Record {
        self.record.lock().clone()
    }

    /// All of it, for good: a long run is not kept twice.
    pub fn take(&self) -> Record {
        std::mem::take(&mut *self.record.lock())
    }
}

impl Client {
    /// Tells of an operation that has just ended.
    pub fn op(&self, writes: bool, invoked: Instant, ended: Ended) {
        let invoked_us = self.trace.micros(invoked);
        let returned_us = self.trace.micros(Instant::now());
        let op = Op { client: self.index, writes, invoked_us, returned_us, ended };
        self.trace.record.lock().ops.push(op);
    }
}

/// A duration in the report's unit.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_kept_as_a_row_and_read_again() {
        let op = Op { client: 3, writes: true, invoked_us: 7, returned_us: 9, ended: Ended::Unknown };
        let text = serde_json::to_string(&op).expect("it can be written");
        assert_eq!(text, r#"[3,true,7,9,"Unknown"]"#);
        let back: Op = serde_json::from_str(&text).expect("it can be read");
        assert_eq!((back.client, back.returned_us, back.ended), (3, 9, Ended::Unknown));
    }
}
