//! Watches that outlive the members that serve them.
//!
//! All of them share one stream. When that is lost, the next endpoint is asked, and each watch goes
//! on at the revision after the last one it was told of: no event is shown twice and none is missed,
//! unless it was compacted meanwhile, which the server then says.
//!
//! The first connection must come about within the command's time. Later ones are tried for as long
//! as it takes: a watch is meant to stay.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use meerkat_proto::pb::etcdserver as pb;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Status, Streaming};

use crate::command::cluster::{Cluster, DEADLINE, Wire, describe};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::print::progress_mark;

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);

/// Who answers for all watches of a stream at once.
const EVERY_WATCH: i64 = -1;

/// What the stream as a whole asks of a Meerkat member; etcd's pass over it.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    pub slow: Option<AsciiMetadataValue>,
    pub progress_interval: Option<AsciiMetadataValue>,
}

pub struct Watches<'c> {
    cluster: &'c Cluster,
    options: StreamOptions,
    watches: BTreeMap<i64, Watch>,
    last_number: i64,
    connection: Option<Connection>,
    /// Which endpoint to ask first.
    endpoint: usize,
    /// Whether any stream was ever opened.
    begun: bool,
    pause: Duration,
    /// Told by one response, not yet handed out.
    waiting: VecDeque<(i64, pb::WatchResponse)>,
}

struct Watch {
    create: pb::WatchCreateRequest,
    /// The first revision not told yet; 0 until the server has said where the watch begins.
    next: i64,
}

struct Connection {
    requests: UnboundedSender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
    /// Watches asked for and not answered yet: answers come in the order of the requests.
    asked: VecDeque<i64>,
}

/// Why a stream ended, or was never one.
enum Lost {
    /// Another member, or the same one later, may do.
    Member(String),
    /// Whoever is asked will say the same.
    ForGood(Failure),
}

impl<'c> Watches<'c> {
    pub fn new(cluster: &'c Cluster, options: StreamOptions) -> Watches<'c> {
        Watches {
            cluster,
            options,
            watches: BTreeMap::new(),
            last_number: 0,
            connection: None,
            endpoint: 0,
            begun: false,
            pause: PAUSE_FIRST,
            waiting: VecDeque::new(),
        }
    }

    /// Adds a watch and gives its number. It is asked for at once, or when there is a stream.
    pub fn add(&mut self, mut create: pb::WatchCreateRequest) -> i64 {
        create.progress_notify |= self.options.progress_interval.is_some();
        self.last_number += 1;
        let number = self.last_number;
        let next = create.start_revision;
        let watch = Watch { create, next };
        if let Some(connection) = &mut self.connection {
            connection.ask(number, &watch);
        }
        self.watches.insert(number, watch);
        number
    }

    /// Ends a watch. False if there is none of that number.
    pub fn cancel(&mut self, number: i64) -> bool {
        let known = self.watches.remove(&number).is_some();
        if let (true, Some(connection)) = (known, &mut self.connection) {
            let cancel = pb::WatchCancelRequest { watch_id: number };
            connection.send(RequestUnion::CancelRequest(cancel));
        }
        known
    }

    /// Asks how far the watches are. Without a stream there is nobody to ask.
    pub fn ask_progress(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// The next thing that a watch is told, and the watch's number. Never call it without a watch:
    /// nothing would come. Nothing is lost when the future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<(i64, pb::WatchResponse), Failure> {
        loop {
            if let Some(told) = self.waiting.pop_front() {
                return Ok(told);
            }
            let lost = match &mut self.connection {
                None => {
                    self.connect().await?;
                    continue;
                }
                Some(connection) => match connection.responses.message().await {
                    Ok(Some(response)) => {
                        self.pause = PAUSE_FIRST;
                        self.take(response);
                        continue;
                    }
                    Ok(None) => Lost::Member("the stream ended".to_owned()),
                    Err(status) => Lost::of(&status),
                },
            };
            match lost {
                Lost::ForGood(failure) => return Err(failure),
                Lost::Member(reason) => {
                    self.connection = None;
                    eprintln!("lost {} ({reason})", self.cluster.endpoints()[self.endpoint]);
                    self.endpoint = (self.endpoint + 1) % self.cluster.endpoints().len();
                }
            }
        }
    }

    /// Notes what a response means for where its watch stands, and queues what is to be shown.
    fn take(&mut self, response: pb::WatchResponse) {
        let revision = response.header.map_or(0, |header| header.revision);
        if response.created {
            let number = self.connection.as_mut().and_then(|connection| connection.asked.pop_front());
            let Some(number) = number else { return };
            if response.canceled || response.watch_id == EVERY_WATCH {
                // It was never one, so nobody is to be named for it.
                let never = pb::WatchResponse { header: None, created: false, canceled: true, ..response };
                self.tell(number, never);
            } else if let Some(watch) = self.watches.get_mut(&number).filter(|watch| watch.next == 0) {
                watch.next = revision + 1;
            }
            return;
        }
        if let (EVERY_WATCH, Some(_)) = (response.watch_id, progress_mark(&response)) {
            // Not those that are only asked for: the mark was made before them.
            let asked = self.connection.as_ref().map(|connection| &connection.asked);
            let is_made = |number: &i64| asked.is_none_or(|asked| !asked.contains(number));
            let all: Vec<i64> = self.watches.keys().copied().filter(is_made).collect();
            all.into_iter().for_each(|number| self.tell(number, response.clone()));
        } else {
            self.tell(response.watch_id, response);
        }
    }

    fn tell(&mut self, number: i64, response: pb::WatchResponse) {
        let Some(watch) = self.watches.get_mut(&number) else {
            return;
        };
        let told = response.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision);
        if let Some(newest) = told.chain(progress_mark(&response)).max() {
            watch.next = watch.next.max(newest + 1);
        }
        if response.canceled {
            self.watches.remove(&number);
        }
        self.waiting.push_back((number, response));
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let deadline = (!self.begun).then(|| Instant::now() + self.cluster.command_timeout());
        let endpoints = self.cluster.endpoints();
        loop {
            // Doubles from round to round, also over streams that open and end at once.
            if self.begun {
                tokio::time::sleep(self.pause).await;
            }
            let mut reasons = Vec::new();
            for turn in 0..endpoints.len() {
                let at = (self.endpoint + turn) % endpoints.len();
                match self.open(&endpoints[at]).await {
                    Ok(connection) => {
                        self.go_on(at, connection);
                        return Ok(());
                    }
                    Err(Lost::ForGood(failure)) => return Err(failure),
                    Err(Lost::Member(reason)) => reasons.push(format!("{}: {reason}", endpoints[at])),
                }
            }
            if let Some(deadline) = deadline {
                if deadline <= Instant::now() + self.pause {
                    eprintln!("cannot watch at {}", reasons.join("; "));
                    return Err(Failure::error(DEADLINE));
                }
                tokio::time::sleep(self.pause).await;
            }
            self.pause = (self.pause * 2).min(PAUSE_LAST);
        }
    }

    fn go_on(&mut self, endpoint: usize, connection: Connection) {
        if self.begun {
            let next = self.watches.values().map(|watch| watch.next).filter(|next| *next != 0).min();
            let from = next.map_or(String::new(), |next| format!(" from revision {next}"));
            eprintln!("watching at {}{from}", self.cluster.endpoints()[endpoint]);
        }
        self.begun = true;
        self.endpoint = endpoint;
        self.pause = (self.pause * 2).min(PAUSE_LAST);
        self.connection = Some(connection);
    }

    /// A stream with every watch asked for. Servers answer only after the first of them.
    async fn open(&self, endpoint: &Endpoint) -> Result<Connection, Lost> {
        let channel = self.cluster.dial_to_stay(endpoint).await.map_err(Lost::Member)?;
        let (requests, to_send) = unbounded();
        let mut asked = VecDeque::new();
        for (number, watch) in &self.watches {
            ask(&requests, &mut asked, *number, watch);
        }
        let mut request = Request::new(to_send);
        let metadata = request.metadata_mut();
        // A member that is cut off from the others must say so instead of falling silent.
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        for (name, value) in [
            ("meerkat-watch-slow", &self.options.slow),
            ("meerkat-watch-progress-interval", &self.options.progress_interval),
        ] {
            if let Some(value) = value {
                metadata.insert(name, value.clone());
            }
        }
        let mut client: WatchClient<Wire> = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        match tokio::time::timeout(self.cluster.command_timeout(), client.watch(request)).await {
            Ok(Ok(response)) => Ok(Connection { requests, responses: response.into_inner(), asked }),
            Ok(Err(status)) => Err(Lost::of(&status)),
            Err(_) => Err(Lost::Member("it does not answer".to_owned())),
        }
    }
}

fn ask(requests: &UnboundedSender<pb::WatchRequest>, asked: &mut VecDeque<i64>, number: i64, watch: &Watch) {
    let create =
        pb::WatchCreateRequest { watch_id: number, start_revision: watch.next, ..watch.create.clone() };
    asked.push_back(number);
    send(requests, RequestUnion::CreateRequest(create));
}

/// A stream that has ended takes nothing more, and says so when it is read.
fn send(requests: &UnboundedSender<pb::WatchRequest>, request: RequestUnion) {
    drop(requests.unbounded_send(pb::WatchRequest { request_union: Some(request) }));
}

impl Connection {
    fn ask(&mut self, number: i64, watch: &Watch) {
        ask(&self.requests, &mut self.asked, number, watch);
    }

    fn send(&mut self, request: RequestUnion) {
        send(&self.requests, request);
    }
}

impl Lost {
    fn of(status: &Status) -> Lost {
        match status.code() {
            // `Unknown` and `Cancelled` are what a connection that breaks looks like.
            Code::Unavailable | Code::Internal | Code::Unknown | Code::Cancelled => {
                Lost::Member(describe(status))
            }
            _ => Lost::ForGood(Failure::error(describe(status))),
        }
    }
}
