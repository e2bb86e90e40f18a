//! Heartbeats to one peer: a stream kept open for them, at the leader; how they are answered, at a follower.
//!
//! Always true at the leader: a late answer costs nothing but itself. The stream stays, so the next
//! heartbeat is on its way at once, however busy the peer is; and a late answer still says that the peer
//! follows, to a heartbeat that was sent a little later.
//!
//! Always true at a follower: an answer waits for no disk. It says that this member follows the leader,
//! and nothing is durable for it, so a heartbeat carries no entries.

use super::wire;
use crate::state_machine::MeerkatRaft;
use crate::type_config::{LogId, TypeConfig, Vote};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::append_response::Result as Wire;
use openraft::RaftState;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Heartbeats that wait for the connection to take them.
const QUEUED_MAX: usize = 2;
/// Heartbeats without an answer; above it no more are sent. The connection's pings end it before that.
const UNANSWERED_MAX: usize = 64;

pub(crate) type Requests = ReceiverStream<pb::AppendRequest>;

pub(crate) struct Heartbeats {
    requests: mpsc::Sender<pb::AppendRequest>,
    /// Polled by one task at a time: the lock is only for the compiler.
    answers: Mutex<BoxStream<'static, Result<pb::AppendResponse, Status>>>,
    /// When each one without an answer was sent, oldest first.
    unanswered: VecDeque<Instant>,
}

impl Heartbeats {
    /// `call` turns requests into their answers; it is polled only inside [`exchange`](Self::exchange).
    pub(crate) fn open(
        call: impl FnOnce(Requests) -> BoxStream<'static, Result<pb::AppendResponse, Status>>,
    ) -> Heartbeats {
        let (requests, outgoing) = mpsc::channel(QUEUED_MAX);
        let answers = Mutex::new(call(ReceiverStream::new(outgoing)));
        Heartbeats { requests, answers, unanswered: VecDeque::new() }
    }

    /// Sends one, and waits for the answer to it or to one sent at most `older` before it; says how long
    /// that took. May be given up while it waits. After an error the stream is of no more use.
    pub(crate) async fn exchange(
        &mut self,
        heartbeat: pb::AppendRequest,
        older: Duration,
    ) -> Result<(pb::AppendResponse, Duration), Status> {
        let now = Instant::now();
        // Without room, those before this one are still on their way, and say the same.
        if self.unanswered.len() < UNANSWERED_MAX && self.requests.try_send(heartbeat).is_ok() {
            self.unanswered.push_back(now);
        }
        let mut newest = None;
        loop {
            let next = poll_fn(|context| self.answers.lock().poll_next_unpin(context));
            let next = match newest.is_none() {
                true => next.await,
                // All that has come, or late answers would stand before those of later heartbeats for ever.
                false => match next.now_or_never() {
                    Some(next) => next,
                    None => break,
                },
            };
            let answer = next.unwrap_or_else(|| Err(Status::unavailable("the peer has ended the stream")))?;
            let Some(sent) = self.unanswered.pop_front() else { continue };
            // A refusal counts however old it is.
            let refuses = matches!(answer.result, Some(Wire::Conflict(_) | Wire::HigherBallot(_)));
            if refuses || now.saturating_duration_since(sent) <= older {
                newest = Some((answer, sent.elapsed()));
            }
            if refuses {
                break;
            }
        }
        newest.ok_or_else(|| Status::unavailable("the peer has ended the stream"))
    }

    /// For how long the oldest has been without an answer.
    pub(crate) fn overdue(&self) -> Duration {
        self.unanswered.front().map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// Answers as soon as this member follows the leader. openraft's own answer to an append waits until all
/// before it is on disk, so that a slow disk would look like a follower that is gone.
pub(crate) async fn answer(
    raft: &MeerkatRaft,
    heartbeat: AppendEntriesRequest<TypeConfig>,
) -> Result<pb::AppendResponse, Status> {
    if !heartbeat.entries.is_empty() {
        return Err(Status::invalid_argument("a heartbeat with entries"));
    }
    let (vote, previous) = (heartbeat.vote, heartbeat.prev_log_id);
    let follows = async {
        let (tell, told) = oneshot::channel();
        // openraft takes messages in order: this one after the heartbeat.
        let look = move |state: &RaftState<TypeConfig>| {
            let _ = tell.send(is_followed(state, vote, previous));
        };
        let asked = raft.external_request(look).await.is_ok();
        if !asked || told.await != Ok(true) {
            // The heartbeat's own answer says why.
            std::future::pending::<()>().await;
        }
    };
    let result = tokio::select! {
        biased;
        answered = raft.append_entries(heartbeat) => match answered {
            Ok(answered) => result_of(answered, previous),
            Err(error) => return Err(Status::unavailable(format!("this member has stopped: {error}"))),
        },
        () = follows => Ok(previous),
    };
    Ok(wire::append_result_to_wire(result))
}

/// Whether the member follows this leader, and has the entry that the leader counts on.
fn is_followed(state: &RaftState<TypeConfig>, leader: Vote, previous: Option<LogId>) -> bool {
    let has = |id: LogId| state.local_committed() >= Some(&id) || state.log_ids.get(id.index) == Some(id);
    *state.vote_ref() == leader && previous.is_none_or(has)
}

fn result_of(
    answered: AppendEntriesResponse<TypeConfig>,
    previous: Option<LogId>,
) -> StreamAppendResult<TypeConfig> {
    match (answered, previous) {
        (AppendEntriesResponse::Success, _) => Ok(previous),
        (AppendEntriesResponse::PartialSuccess(matched), _) => Ok(matched),
        (AppendEntriesResponse::Conflict, Some(at)) => Err(StreamAppendError::Conflict(at)),
        // No entry conflicts with none.
        (AppendEntriesResponse::Conflict, None) => Ok(None),
        (AppendEntriesResponse::HigherVote(vote), _) => Err(StreamAppendError::HigherVote(vote)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{sleep, timeout};

    const INTERVAL: Duration = Duration::from_millis(100);
    const OLDER: Duration = Duration::from_millis(300);

    /// A peer that answers each heartbeat so long after it was sent.
    fn peer(delay: Duration) -> Heartbeats {
        Heartbeats::open(|requests| {
            let sent = requests.map(|_| Instant::now());
            sent.map(move |at| tokio::time::sleep_until(at + delay))
                .buffered(UNANSWERED_MAX)
                .map(|()| Ok(pb::AppendResponse::default()))
                .boxed()
        })
    }

    /// How many of so many heartbeats count as answered within the interval that openraft gives each.
    async fn answered(heartbeats: &mut Heartbeats, count: usize) -> usize {
        let mut answered = 0;
        for _ in 0..count {
            let next = Instant::now() + INTERVAL;
            let exchange = heartbeats.exchange(pb::AppendRequest::default(), OLDER);
            answered += usize::from(timeout(INTERVAL, exchange).await.is_ok_and(|answer| answer.is_ok()));
            tokio::time::sleep_until(next).await;
        }
        answered
    }

    #[tokio::test(start_paused = true)]
    async fn late_answers_count_for_the_next_heartbeats() {
        for (delay_ms, missed) in [(0, 0), (99, 0), (150, 1), (250, 2), (390, 3)] {
            let mut heartbeats = peer(Duration::from_millis(delay_ms));
            let answered = answered(&mut heartbeats, 20).await;
            assert_eq!(answered, 20 - missed, "answers after {delay_ms} ms");
        }
    }

    /// Otherwise each answer after a stall would be that of an earlier heartbeat, to the end of the term.
    #[tokio::test(start_paused = true)]
    async fn after_a_stall_answers_are_those_of_their_own_heartbeats() {
        let stalled = Instant::now() + Duration::from_millis(250);
        let mut heartbeats = Heartbeats::open(|requests| {
            let answers = requests.then(move |_| async move {
                tokio::time::sleep_until(stalled).await;
                Ok(pb::AppendResponse::default())
            });
            answers.boxed()
        });
        answered(&mut heartbeats, 4).await;
        for _ in 0..3 {
            let (_, took) =
                heartbeats.exchange(pb::AppendRequest::default(), OLDER).await.expect("an answer");
            assert!(took < INTERVAL / 10, "{took:?}");
            sleep(INTERVAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_are_too_old_do_not_count() {
        let mut heartbeats = peer(Duration::from_millis(450));
        assert_eq!(answered(&mut heartbeats, 20).await, 0);
        assert!(OLDER < heartbeats.overdue());
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_to_a_stalled_peer_are_bounded_and_go_on_after_the_stall() {
        let (answer, answers) = mpsc::unbounded_channel();
        let mut heartbeats = Heartbeats::open(|requests| {
            // Keeps the requests as an open connection does.
            tokio::spawn(requests.for_each(move |_| {
                let _ = answer.send(Instant::now());
                std::future::ready(())
            }));
            let stall = Instant::now() + Duration::from_secs(20);
            let answers = tokio_stream::wrappers::UnboundedReceiverStream::new(answers);
            let late = answers.then(move |sent: Instant| async move {
                tokio::time::sleep_until(stall.max(sent)).await;
                Ok(pb::AppendResponse::default())
            });
            late.boxed()
        });
        assert_eq!(answered(&mut heartbeats, 195).await, 0);
        assert_eq!(heartbeats.unanswered.len(), UNANSWERED_MAX);
        sleep(Duration::from_secs(1)).await;
        // The first finds only answers that are too old.
        assert_eq!(answered(&mut heartbeats, 10).await, 9);
        assert!(heartbeats.overdue() < INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_stream_is_an_error() {
        let mut heartbeats = Heartbeats::open(|_| futures::stream::empty().boxed());
        assert!(heartbeats.exchange(pb::AppendRequest::default(), OLDER).await.is_err());
    }
}
