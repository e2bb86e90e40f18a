//! Renewals of this member's clients, in rounds.
//!
//! All that arrive while the leader is being asked go together in the next question, so the leader is
//! asked a few thousand times a second at most, however many clients there are. Bounded: above
//! [`QUEUE`] whoever renews waits, and with it the client's stream.

use meerkat_raft::tasks::{Tasks, spawn_part};
use meerkat_raft::{LeaderLeases, LessorError, Renewal};
use meerkat_types::LeaseId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

const QUEUE: usize = 16 * 1024;
/// Leases in one question.
const ROUND_MAX: usize = 8 * 1024;
/// Questions at once.
const ROUNDS_MAX: usize = 2;
/// Pause before asking again about a lease that is expiring.
const EXPIRING_PAUSE: Duration = Duration::from_millis(20);

type Answer = Result<Renewal, LessorError>;

struct Asked {
    lease: LeaseId,
    answer: oneshot::Sender<Answer>,
}

#[derive(Clone)]
pub(crate) struct Renewals {
    queue: mpsc::Sender<Asked>,
    timeout: Duration,
}

impl Renewals {
    pub(crate) fn start(leader: LeaderLeases, timeout: Duration, tasks: &Tasks) -> Renewals {
        let (queue, asked) = mpsc::channel(QUEUE);
        tasks.spawn_until_stop("lease renewals", run(leader, asked));
        Renewals { queue, timeout }
    }

    /// Its time to live in seconds; `None` if there is no such lease. Of one that is expiring the answer
    /// comes when it is gone.
    pub(crate) async fn renew(&self, lease: LeaseId) -> Result<Option<i64>, LessorError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let (answer, answered) = oneshot::channel();
            self.queue.send(Asked { lease, answer }).await.map_err(|_| LessorError::Stopped)?;
            match answered.await.map_err(|_| LessorError::Stopped)?? {
                Renewal::Renewed(ttl) => return Ok(Some(ttl.seconds())),
                Renewal::Gone => return Ok(None),
                Renewal::Expiring if deadline <= Instant::now() => return Err(LessorError::Timeout),
                Renewal::Expiring => tokio::time::sleep(EXPIRING_PAUSE).await,
            }
        }
    }
}

async fn run(leader: LeaderLeases, mut asked: mpsc::Receiver<Asked>) {
    let rounds = Arc::new(Semaphore::new(ROUNDS_MAX));
    loop {
        // Never closed, so waiting cannot fail. Taken before the queue is read: what arrives while all
        // rounds are out goes together.
        let round = rounds.clone().acquire_owned().await;
        let mut sharing = Vec::new();
        if asked.recv_many(&mut sharing, ROUND_MAX).await == 0 {
            return;
        }
        let leader = leader.clone();
        spawn_part("lease renewals", async move {
            let leases: Vec<LeaseId> = sharing.iter().map(|asked| asked.lease).collect();
            match leader.renew(&leases).await {
                Ok(renewals) => {
                    for (asked, renewal) in sharing.into_iter().zip(renewals) {
                        // A client that is gone has nobody left to tell.
                        let _ = asked.answer.send(Ok(renewal));
                    }
                }
                Err(error) => {
                    for asked in sharing {
                        let _ = asked.answer.send(Err(error));
                    }
                }
            }
            drop(round);
        });
    }
}
