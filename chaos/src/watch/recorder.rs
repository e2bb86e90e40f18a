//! Many watchers on one stream, each with a record of its own.
//!
//! Watchers are told apart by the numbers the server gives them; the answers to creates come in the
//! order of the creates. A mark for the whole stream is written down for every watcher on it. When
//! the stream ends the records stay: connecting again is the caller's affair.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::endpoint::watch::{Next, WatchStream};
use crate::outcome::describe;
use crate::record::watch::{Reply, SLOW, Session, WatchLog, WatchSpec, cancel_request, progress_request};
use crate::{Failure, Patience};

/// One stream and the records of its watchers.
#[derive(Debug)]
pub struct Recorder {
    stream: WatchStream,
    member: usize,
    began: Instant,
    coalesces: bool,
    logs: Vec<WatchLog>,
    /// Creates that have not been answered.
    pending: VecDeque<usize>,
    /// Which log each number of the server's belongs to.
    numbers: HashMap<i64, usize>,
    /// Responses for a number that nobody has.
    strays: Vec<Reply>,
    ended: Option<String>,
}

impl Recorder {
    /// Opens a stream to a member. Times are counted from `began`.
    pub fn open(
        endpoint: &Endpoint,
        member: usize,
        began: Instant,
        metadata: &[(&'static str, &str)],
    ) -> Result<Self, Failure> {
        Ok(Self {
            stream: endpoint.watch(metadata)?,
            member,
            began,
            coalesces: metadata.contains(&(SLOW, "coalesce")),
            logs: Vec::new(),
            pending: VecDeque::new(),
            numbers: HashMap::new(),
            strays: Vec::new(),
            ended: None,
        })
    }

    /// Asks for a watcher; returns the index of its record.
    pub async fn create(&mut self, name: impl Into<String>, spec: WatchSpec) -> usize {
        let index = self.logs.len();
        let request = spec.request(spec.start_revision);
        let session = Session {
            member: self.member,
            asked: spec.start_revision,
            opened: self.began.elapsed(),
            ..Session::default()
        };
        let coalesces = self.coalesces;
        self.logs.push(WatchLog { sessions: vec![session], coalesces, ..WatchLog::new(name, spec) });
        self.pending.push_back(index);
        self.stream.send(request).await;
        index
    }

    /// Asks for the end of a watcher that was created; one that was not is left alone.
    pub async fn cancel(&mut self, index: usize) {
        let number = self.numbers.iter().find(|(_, owner)| **owner == index).map(|(number, _)| *number);
        if let Some(number) = number {
            self.logs[index].sessions[0].canceled_by_client = true;
            self.stream.send(cancel_request(number)).await;
        }
    }

    /// Asks for a mark.
    pub async fn ask_for_progress(&mut self) {
        self.stream.send(progress_request()).await;
    }

    /// Takes one response, if one comes in time. False once the stream has ended.
    pub async fn take(&mut self, within: Duration) -> bool {
        if self.ended.is_some() {
            return false;
        }
        match self.stream.next(within).await {
            Next::Nothing => true,
            Next::Response(response) => {
                self.file(Reply::record(&response, self.began.elapsed()));
                true
            }
            Next::Ended(status) => {
                let why = status.map_or_else(|| "the server ended it".to_owned(), |s| describe(&s));
                for log in &mut self.logs {
                    log.sessions[0].ended = Some(why.clone());
                }
                self.ended = Some(why);
                false
            }
        }
    }

    /// Takes responses until the records satisfy the caller. An error if they do not in time.
    pub async fn take_until(
        &mut self,
        what: &str,
        within: Duration,
        mut satisfied: impl FnMut(&[WatchLog]) -> bool,
    ) -> Result<(), Failure> {
        let patience = Patience::of(what, within);
        while !satisfied(&self.logs) {
            patience.lasts("the records do not show it")?;
            if !self.take(patience.left()).await {
                let why = self.ended.as_deref().unwrap_or("no reason");
                return Err(Failure::broken(format!("the stream ended before {what}: {why}")));
            }
        }
        patience.came().map(drop)
    }

    /// Takes responses until none has come for so long, and no longer than `within`.
    pub async fn take_until_quiet(&mut self, quiet: Duration, within: Duration) {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let before = self.count();
            if !self.take(quiet).await || self.count() == before {
                return;
            }
        }
    }

    /// The records so far.
    pub fn logs(&self) -> &[WatchLog] {
        &self.logs
    }

    /// Responses for numbers that no watcher of this stream had.
    pub fn strays(&self) -> &[Reply] {
        &self.strays
    }

    /// Why the stream ended, if it did.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Ends the call and returns the records.
    pub fn finish(self) -> Vec<WatchLog> {
        self.logs
    }

    fn count(&self) -> usize {
        self.logs.iter().map(|log| log.sessions[0].replies.len()).sum::<usize>() + self.strays.len()
    }

    fn file(&mut self, reply: Reply) {
        if reply.created {
            let Some(index) = self.pending.pop_front() else { return self.strays.push(reply) };
            if !reply.canceled {
                self.numbers.insert(reply.watch_id, index);
            }
            self.logs[index].sessions[0].replies.push(reply);
        } else if let Some(index) = self.numbers.get(&reply.watch_id) {
            self.logs[*index].sessions[0].replies.push(reply);
        } else if reply.watch_id == -1 && reply.is_mark() {
            for index in self.numbers.values() {
                let replies = &mut self.logs[*index].sessions[0].replies;
                // A number stays known for a while after its watcher has ended.
                if replies.last().is_some_and(|last| !last.canceled) {
                    replies.push(reply.clone());
                }
            }
        } else {
            self.strays.push(reply);
        }
    }
}
