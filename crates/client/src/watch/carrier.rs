//! The task of one stream slot: finds a member, opens a stream, carries its watches, and when the stream
//! is lost does it again elsewhere.
//!
//! A thin shell around `multiplex` (whose response is whose), `pulse` (is the stream alive) and
//! `verdict` (what its end means). Always true: between two streams every watch waits with its next
//! revision known, and the inbox is read in every state, so that a dropped watch is gone at once.
//!
//! A stream is lost when it ends, when nothing is heard on it though the member was asked, when the
//! pool finds its member gone, or when its member has had no leader for [`LEADERLESS_MAX`]. The next one
//! is opened on another member if there is one, after a pause drawn at random, so that the clients of a
//! dead member do not all come to the next at once.

use super::WatchError;
use super::hub::{Inbox, News};
use super::multiplex::{Heard, Multiplex, refusal};
use super::pulse::{Beat, Patience, Pulse, TICK};
use super::verdict::{self, Ended};
use crate::balancer::picker::fraction;
use crate::balancer::{EndpointId, Picked, Verdict};
use crate::retry::{self, Blame};
use crate::{Client, Config, Fate};
use futures::{Stream, StreamExt, TryFutureExt};
use meerkat_proto::go_duration;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

/// Requests handed to the transport and not sent yet; the others are not made before there is room.
const OUTBOUND_MAX: usize = 16;
/// How long a stream without watches is kept for the next one.
const LINGER: Duration = Duration::from_secs(5);
/// Longer than an election takes, so that one does not move all watches from members that will be fine.
const LEADERLESS_MAX: Duration = Duration::from_millis(1_500);
/// How often to ask how far the watches have come, so that quiet ones do not fall behind a compaction,
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// and how often if the application wants to know.
const MARKS_INTERVAL: Duration = Duration::from_secs(1);
/// How long getting a new token may take.
const RENEWAL_MAX: Duration = Duration::from_secs(5);
/// The first pause is drawn between nothing and this; it doubles while no member answers.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Responses, from the opening of the stream to its end.
type Inbound = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

/// A stream slot.
pub(crate) struct Carrier {
    client: Client,
    inbox: Arc<Inbox>,
    watches: Multiplex,
    patience: Patience,
    avoid: Option<EndpointId>,
    /// Streams in a row on which nothing was heard.
    failures: u32,
}

/// One stream: what is sent and what comes.
struct Wires {
    requests: mpsc::Sender<pb::WatchRequest>,
    inbound: Inbound,
}

/// What is known of a stream.
struct Line {
    picked: Picked,
    /// Which token it was opened with.
    generation: u64,
    pulse: Pulse,
    answered: bool,
    asked_progress: Instant,
    empty_since: Option<Instant>,
}

/// How a stream came to its end.
#[derive(Debug)]
enum End {
    Status(Status),
    /// Without a word of why.
    Closed,
    Silent,
    Gone,
    Leaderless,
    Nonsense,
    Token,
    /// No watch wanted it any more.
    Unused,
}

impl End {
    /// For [`WatchStatus::last_loss`](super::WatchStatus::last_loss).
    fn reason(&self) -> String {
        let reason = match self {
            End::Status(status) if status.message().is_empty() => status.code().description(),
            End::Status(status) => status.message(),
            End::Closed => "the stream ended",
            End::Silent => "no sign of life",
            End::Gone => "it does not answer",
            End::Leaderless => "no leader",
            End::Nonsense => "its responses make no sense",
            End::Token => "the token is not valid any more",
            End::Unused => "no watch needs it",
        };
        reason.to_owned()
    }
}

/// The life of a slot.
pub(crate) async fn run(mut carrier: Carrier) {
    loop {
        carrier.watches.attend();
        if carrier.watches.is_idle() {
            if !carrier.rest().await {
                return;
            }
            continue;
        }
        match carrier.open() {
            Some((mut line, wires)) => {
                let end = carrier.serve(&mut line, wires).await;
                if matches!(end, End::Unused) && carrier.inbox.close_if_empty() {
                    return;
                }
                carrier.after(&line, end).await;
            }
            None => carrier.failures = carrier.failures.saturating_add(1),
        }
        carrier.pause().await;
    }
}

impl Carrier {
    pub(crate) fn new(client: Client, inbox: Arc<Inbox>) -> Carrier {
        let on_demand = client.pool().config().slow_watches.is_some();
        Carrier {
            client,
            watches: Multiplex::new(inbox.clone(), on_demand),
            inbox,
            patience: Patience::default(),
            avoid: None,
            failures: 0,
        }
    }

    /// Waits for a watch that wants a stream. False if none came and the slot is closed.
    async fn rest(&mut self) -> bool {
        if !self.watches.is_empty() {
            // Parked ones will be back.
            self.inbox.news().await;
            return true;
        }
        match tokio::time::timeout(LINGER, self.inbox.news()).await {
            Ok(()) => true,
            Err(_) => !self.inbox.close_if_empty(),
        }
    }

    fn open(&mut self) -> Option<(Line, Wires)> {
        let pool = self.client.pool();
        let picked = pool.pick_now(self.avoid).ok()?;
        let generation = pool.credentials().generation();
        let now = now();
        self.watches.open(picked.name.clone(), pool.config().login.is_some(), now);
        let (requests, receiver) = mpsc::channel(OUTBOUND_MAX);
        let wires = Wires { requests, inbound: inbound(&picked, pool.config(), receiver) };
        let line = Line {
            picked,
            generation,
            pulse: Pulse::new(now, self.patience),
            answered: false,
            asked_progress: now,
            empty_since: None,
        };
        Some((line, wires))
    }

    async fn serve(&mut self, line: &mut Line, wires: Wires) -> End {
        let Wires { requests, mut inbound } = wires;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let picked = line.picked.clone();
        let inbox = self.inbox.clone();
        let mut gone = pin!(picked.gone());
        let mut leaderless = pin!(leaderless(&picked));
        loop {
            tokio::select! {
                message = inbound.next(), if !self.watches.is_held_up() => {
                    if let Some(end) = self.hear(line, message) {
                        return end;
                    }
                }
                permit = requests.reserve(), if self.watches.has_request() => {
                    // An error says that the transport has let go of the stream; its end will tell why.
                    if let (Ok(permit), Some(request)) = (permit, self.watches.next_request()) {
                        permit.send(request);
                    }
                }
                () = inbox.news() => self.watches.attend(),
                _ = tick.tick() => {
                    if let Some(end) = self.look(line) {
                        return end;
                    }
                }
                () = &mut gone => return End::Gone,
                () = &mut leaderless => return End::Leaderless,
            }
        }
    }

    fn hear(&mut self, line: &mut Line, message: Option<Result<pb::WatchResponse, Status>>) -> Option<End> {
        let response = match message {
            Some(Ok(response)) => response,
            Some(Err(status)) => return Some(End::Status(status)),
            None => return Some(End::Closed),
        };
        let now = now();
        line.pulse.heard(now);
        if !std::mem::replace(&mut line.answered, true) {
            self.failures = 0;
            self.avoid = None;
            self.client.pool().report(line.picked.id, Verdict::Good);
        }
        match self.watches.response(response, now) {
            Heard::Fine => None,
            Heard::Token => Some(End::Token),
            Heard::Nonsense => Some(End::Nonsense),
        }
    }

    fn look(&mut self, line: &mut Line) -> Option<End> {
        let now = now();
        if self.watches.is_held_up() {
            // Its word may be here, unread. The pool goes on asking the member.
            line.pulse.heard(now);
        }
        match line.pulse.tick(now) {
            Beat::Fine => {}
            Beat::Ask => self.watches.ask_probe(),
            Beat::GiveUp => return Some(End::Silent),
        }
        let interval = if self.watches.wants_marks() { MARKS_INTERVAL } else { PROGRESS_INTERVAL };
        if interval <= now.saturating_duration_since(line.asked_progress) {
            line.asked_progress = now;
            self.watches.ask_progress();
        }
        if !self.watches.is_empty() {
            line.empty_since = None;
            return None;
        }
        let since = *line.empty_since.get_or_insert(now);
        (LINGER <= now.saturating_duration_since(since)).then_some(End::Unused)
    }

    /// Draws the conclusions from a stream's end.
    async fn after(&mut self, line: &Line, end: End) {
        self.watches.lost(now(), &end.reason());
        if matches!(end, End::Unused) {
            return;
        }
        tracing::debug!(endpoint = %line.picked.name, ?end, "a watch stream was lost");
        self.patience.learn(line.pulse.lived(), matches!(end, End::Silent));
        if !line.answered {
            self.failures = self.failures.saturating_add(1);
        }
        match end {
            End::Status(status) => self.after_status(line, &status).await,
            End::Token => self.renew(line, None).await,
            End::Silent | End::Nonsense => self.blame(line, Blame::Connection),
            End::Leaderless => self.blame(line, Blame::NoLeader),
            End::Gone | End::Closed => self.blame(line, Blame::None),
            End::Unused => {}
        }
    }

    async fn after_status(&mut self, line: &Line, status: &Status) {
        match verdict::ended(status) {
            Ended::Move => self.blame(line, retry::blames_member(retry::look(status))),
            Ended::Renew => self.renew(line, Some(status)).await,
            Ended::Refuse => {
                let error = refusal(status, Some(line.picked.name.clone()));
                self.watches.refuse_all(&error);
            }
        }
    }

    fn blame(&mut self, line: &Line, blame: Blame) {
        self.avoid = Some(line.picked.id);
        let pool = self.client.pool();
        match blame {
            Blame::None => {}
            Blame::NoLeader => pool.report(line.picked.id, Verdict::NoLeader),
            Blame::Connection => pool.report(line.picked.id, Verdict::Failed),
        }
    }

    /// Gets a new token. Without a user, or with a password that is wrong, nothing more can be done for
    /// a stream that was refused as a whole.
    async fn renew(&mut self, line: &Line, refused: Option<&Status>) {
        let client = self.client.clone();
        let renewed = self.meanwhile(client.renew_token(line.generation, RENEWAL_MAX)).await;
        let error = match renewed {
            Ok(true) => return,
            Ok(false) => refused.map(|status| refusal(status, Some(line.picked.name.clone()))),
            Err(error) if error.fate() == Fate::Refused => Some(error),
            Err(_) => None,
        };
        if let Some(error) = error {
            self.watches.refuse_all(&error);
        }
    }

    async fn pause(&mut self) {
        let bound = PAUSE_FIRST.saturating_mul(1 << self.failures.min(10)).min(PAUSE_MAX);
        self.meanwhile(tokio::time::sleep(fraction(bound, rand::random()))).await;
    }

    /// Does something that takes time, and goes on reading the inbox.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let inbox = self.inbox.clone();
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = inbox.news() => self.watches.attend(),
            }
        }
    }
}

/// Only when the runtime goes away: a slot that ends by itself has no watches.
impl Drop for Carrier {
    fn drop(&mut self) {
        self.watches.end_all(|| WatchError::Closed);
        for news in self.inbox.close() {
            if let News::Start(start) = news {
                start.mailbox.end(WatchError::Closed);
            }
        }
    }
}

/// The stream opens as soon as it is polled. Its first word may be the first answer to a request, so
/// opening must not be waited for before requests are sent.
fn inbound(picked: &Picked, config: &Config, requests: mpsc::Receiver<pb::WatchRequest>) -> Inbound {
    // A server bounds what it sends; a bound here could only make a large revision undeliverable.
    let mut client = WatchClient::new(picked.wire.clone()).max_decoding_message_size(usize::MAX);
    let mut request = Request::new(ReceiverStream::new(requests));
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(policy) = config.slow_watches {
        metadata.insert("meerkat-watch-slow", MetadataValue::from_static(policy.name()));
    }
    if let Some(interval) = config.watch_progress_interval {
        let text = go_duration::format(interval).parse().expect("a duration is ASCII");
        metadata.insert("meerkat-watch-progress-interval", text);
    }
    let opening = async move { client.watch(request).await.map(Response::into_inner) };
    opening.try_flatten_stream().boxed()
}

/// Ends when the member has had no leader for too long.
async fn leaderless(picked: &Picked) {
    loop {
        picked.gone_or_leaderless().await;
        if tokio::time::timeout(LEADERLESS_MAX, picked.led()).await.is_err() {
            return;
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
