//! A watch inside the process: whole revisions, and how far the member has come.
//!
//! Progress is asked of the hub, whose marks travel in line with events: at once when somebody waits for
//! more than was told, else every second in which the store moved on. A store that stands still costs
//! nothing. All happens when the watch is polled; dropping it ends it.
//!
//! It ends when the member has known no leader for a while: others may have changed what it cannot tell.

use super::error::LocalError;
use super::row::{LocalChange, change, unsigned};
use futures::Stream;
use meerkat_raft::AppliedIndex;
use meerkat_state::StateReader;
use meerkat_types::{Filter, KeyRange, Revision, WatchRequest, WatchStart};
use meerkat_watch::{Control, Delivery, Hub, Out, Refused, StreamOptions, Taken, WatchStream};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::Instant;

/// What is asked of the hub at once; memory for a moment only.
const TAKE_BYTES: usize = 256 << 10;
/// Between two questions how far the watch has come, while nobody waits: often enough for bookmarks.
const PACE: Duration = Duration::from_secs(1);
/// While somebody waits for a revision it is asked at once, and again if that does not help: the hub does
/// not answer a watch that is catching up, and the revision may be yet to come. The first pause, which
/// doubles up to the second.
const AWAITED_FIRST: Duration = Duration::from_millis(2);
const AWAITED_MAX: Duration = Duration::from_millis(32);

/// All changes of one revision under a prefix; none if the member only says how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalBatch {
    pub revision: u64,
    pub changes: Vec<LocalChange>,
}

/// A running watch.
pub struct LocalWatch {
    stream: WatchStream,
    reader: StateReader,
    applied: AppliedIndex,
    /// The lowest revision that somebody waits for; 0 if nobody does.
    awaited: channel::Receiver<u64>,
    asking: Asking,
    taken: Vec<Out>,
    due: VecDeque<Item>,
    /// Everything up to here was handed out.
    told: Revision,
    ended: bool,
}

type Item = Result<LocalBatch, LocalError>;

impl LocalWatch {
    pub(super) fn new(
        hub: &Hub,
        reader: StateReader,
        applied: AppliedIndex,
        awaited: channel::Receiver<u64>,
        prefix: &[u8],
        after: u64,
    ) -> LocalWatch {
        let after = Revision::new(i64::try_from(after).unwrap_or(i64::MAX - 1).min(i64::MAX - 1));
        let client = format!("list-watch {}", prefix.escape_ascii());
        let options =
            StreamOptions { client: client.into(), require_leader: true, ..StreamOptions::default() };
        let stream = hub.open(options);
        stream.register(WatchRequest {
            id: None,
            range: KeyRange::prefix(prefix),
            start: WatchStart::At(after.next()),
            filter: Filter::default(),
            previous: false,
            fragment: false,
            progress: false,
        });
        LocalWatch {
            stream,
            reader,
            applied,
            awaited,
            asking: Asking::default(),
            taken: Vec::new(),
            due: VecDeque::new(),
            told: after,
            ended: false,
        }
    }

    /// Whole revisions as they come. After an error it is over.
    pub fn into_stream(self) -> impl Stream<Item = Item> + Send + 'static {
        futures::stream::unfold(self, |mut watch| async move { Some((watch.next().await?, watch)) })
    }

    /// The next batch; `None` after an error. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.due.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            let taken = tokio::select! {
                biased;
                taken = poll_fn(|context| take(&self.stream, &mut self.taken, context)) => Some(taken),
                () = until_behind(&self.reader, &self.applied, &mut self.awaited, self.told, &mut self.asking) => None,
            };
            match taken {
                Some(Taken::Ended(end)) => self.end(end.into()),
                Some(Taken::Open | Taken::Parked) => self.sort_out(),
                None => {
                    self.asking.asked(Instant::now());
                    self.stream.request_progress();
                }
            }
        }
    }

    fn sort_out(&mut self) {
        for out in std::mem::take(&mut self.taken) {
            match out {
                Out::Events(delivery) => self.deliver(&delivery),
                Out::Control(Control::Progress { revision, .. }) if self.told < revision => {
                    self.told = revision;
                    self.due.push_back(Ok(LocalBatch { revision: unsigned(revision), changes: Vec::new() }));
                }
                Out::Control(Control::Progress { .. } | Control::Created { .. }) => {}
                Out::Control(Control::Compacted { oldest, .. }) => {
                    self.end(LocalError::Compacted { oldest: unsigned(oldest) });
                }
                Out::Control(Control::Refused(refused)) => self.end(refusal(refused)),
                // Neither is ever asked for here.
                Out::Control(Control::Canceled { .. } | Control::FellBehind { .. }) => {
                    self.end(LocalError::Unavailable("the watch was ended by the hub".to_owned()));
                }
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        for batch in delivery.batches() {
            let revision = batch.revision();
            let wanted = batch.events().iter().filter(|event| delivery.spec.wants(event));
            let changes: Vec<LocalChange> = wanted.map(change).collect();
            if changes.is_empty() || self.ended {
                continue;
            }
            self.told = revision;
            self.due.push_back(Ok(LocalBatch { revision: unsigned(revision), changes }));
        }
    }

    fn end(&mut self, why: LocalError) {
        if !std::mem::replace(&mut self.ended, true) {
            self.due.push_back(Err(why));
        }
    }
}

fn take(stream: &WatchStream, taken: &mut Vec<Out>, context: &mut Context<'_>) -> Poll<Taken> {
    match stream.take(TAKE_BYTES, context.waker(), taken) {
        Taken::Parked => Poll::Pending,
        taken => Poll::Ready(taken),
    }
}

/// When to ask the hub how far the watch has come.
#[derive(Debug, Default)]
struct Asking {
    last: Option<Instant>,
    /// What it was asked for, and how often.
    awaited: u64,
    times: u32,
}

impl Asking {
    /// When the next question is due; `awaited` is 0 if nobody waits for more than was told.
    fn due(&mut self, awaited: u64) -> Option<Instant> {
        if self.awaited != awaited {
            (self.awaited, self.times) = (awaited, 0);
        }
        let pace = match (awaited, self.times) {
            (0, _) => PACE,
            (_, 0) => return None,
            (_, times) => AWAITED_FIRST.saturating_mul(1 << (times - 1).min(8)).min(AWAITED_MAX),
        };
        self.last.map(|last| last + pace)
    }

    fn asked(&mut self, now: Instant) {
        self.last = Some(now);
        self.times = self.times.saturating_add(1);
    }
}

/// Resolves when the store is ahead of what was told, and it is time to ask how far the watch is.
async fn until_behind(
    reader: &StateReader,
    applied: &AppliedIndex,
    awaited: &mut channel::Receiver<u64>,
    told: Revision,
    asking: &mut Asking,
) {
    loop {
        // Before the revision: what is applied in between is then not slept through.
        let index = applied.index();
        if reader.current_revision() <= told {
            if applied.reached(index.next()).await.is_err() {
                // The member stops; the hub will say so.
                std::future::pending::<()>().await;
            }
            continue;
        }
        let wanted = *awaited.borrow_and_update();
        let Some(due) = asking.due(if unsigned(told) < wanted { wanted } else { 0 }) else { return };
        tokio::select! {
            () = tokio::time::sleep_until(due) => return,
            // Only while there is somebody who could wait.
            Ok(()) = awaited.changed() => {}
        }
    }
}

fn refusal(refused: Refused) -> LocalError {
    let why = match refused {
        Refused::EmptyRange => "it has no keys",
        Refused::DuplicateId => "its number is taken",
        Refused::BeforeHistory => "it would start before any revision there can be",
        Refused::NotPermitted(why) => why,
        Refused::OutOfMemory => "the keys of all watchers together take too much memory",
    };
    LocalError::Unavailable(format!("the watch is refused: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_at_once_for_whoever_waits_then_less_and_less_and_seldom_for_nobody() {
        let begun = Instant::now();
        let ms = |due: Option<Instant>| due.map(|due| due.duration_since(begun).as_millis());
        let mut asking = Asking::default();
        assert_eq!(asking.due(0), None, "the first question has nothing to wait for");
        asking.asked(begun);
        assert_eq!(ms(asking.due(0)), Some(1_000));
        assert_eq!(asking.due(7), None, "somebody waits");
        let mut pauses = Vec::new();
        for _ in 0..7 {
            asking.asked(begun);
            pauses.extend(ms(asking.due(7)));
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 32], "what does not come is not asked for all the time");
        assert_eq!(asking.due(9), None, "somebody else waits");
        asking.asked(begun);
        assert_eq!(ms(asking.due(0)), Some(1_000), "and now nobody");
    }
}
