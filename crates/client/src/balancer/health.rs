//! Asking members how they are: ejection and return.
//!
//! One task per client asks members for their status: those in use often, the others seldom, an
//! ejected one when its pause is over. A member that answers and names a leader is healthy; one
//! that answers without a leader is good for local reads only; one that does not answer in time is
//! gone, and whoever waits on its connection is told so. Time in which this process itself did not
//! run (suspended, starved) is not counted: else it would call every member gone when it wakes up.
//! The task ends with the client's last handle.

use super::picker::{Health, Standing, fraction};
use super::{EndpointId, Link, Picked, Pool, Shared, Slot};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::maintenance_client::MaintenanceClient;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A member's time to answer is counted in pieces of this length,
const PIECE: Duration = Duration::from_millis(100);
/// and one that takes this much longer means that this process was not running. Smaller delays are
/// counted, so that a busy machine does not put off the discovery of a silent member.
const OVERSLEPT: Duration = Duration::from_millis(250);

/// What a member answered when asked how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Leader,
    NoLeader,
    Nothing,
}

impl Pool {
    /// Asks all members at once; done when one is healthy, or all have answered, or the time is over.
    /// True if any answered at all.
    pub(crate) async fn first_look(&self) -> bool {
        let due = due(&self.shared, |_, _| true);
        let (answers, mut heard) = mpsc::channel(due.len().max(1));
        for probed in due {
            let (shared, answers) = (self.shared.clone(), answers.clone());
            // Each to its end, even if nobody waits for it any more: what it finds is noted.
            tokio::spawn(async move {
                let found = probe(&shared, probed).await;
                let _nobody_waits = answers.send(found).await;
            });
        }
        drop(answers);
        let mut any = false;
        while let Some(found) = heard.recv().await {
            any |= found != Found::Nothing;
            if found == Found::Leader {
                break;
            }
        }
        any
    }

    /// Begins asking in the background.
    pub(crate) fn watch_health(&self) {
        let weak = Arc::downgrade(&self.shared);
        tokio::spawn(run(weak));
    }
}

async fn run(pool: Weak<Shared>) {
    loop {
        let Some(shared) = pool.upgrade() else { return };
        let config = &shared.config;
        // Drawn anew each time, so that the clients of one cluster do not fall into step.
        let pause = config.probe_interval / 16 + fraction(config.probe_interval / 16, rand::random());
        let now = Instant::now();
        let (often, seldom) = (config.probe_interval, config.standby_interval);
        for picked in due(&shared, |slot, at| is_due(slot, now.max(at), often, seldom)) {
            let shared = shared.clone();
            tokio::spawn(async move { probe(&shared, picked).await });
        }
        wait(&shared, pause).await;
    }
}

/// Waits, without keeping the pool alive for longer than a pause.
async fn wait(shared: &Shared, pause: Duration) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = shared.poke.notified() => {}
    }
}

fn is_due(slot: &Slot, now: Instant, often: Duration, seldom: Duration) -> bool {
    let Some(last) = slot.probed_at else { return true };
    match slot.health.standing {
        Standing::Ejected => slot.health.back_at.is_none_or(|back| back <= now),
        Standing::Healthy if slot.is_in_use() => last + often <= now,
        Standing::NoLeader | Standing::Untried => last + often <= now,
        Standing::Healthy => last + seldom <= now,
    }
}

/// Marks the endpoints that are due as being asked, and hands them out.
fn due(shared: &Shared, is_due: impl Fn(&Slot, Instant) -> bool) -> Vec<Probe> {
    let now = Instant::now();
    let mut table = shared.table.lock();
    let slots = table.slots.iter_mut().filter(|slot| !slot.probing && is_due(slot, now));
    slots
        .map(|slot| {
            slot.probing = true;
            slot.probed_at = Some(now);
            // A probe's own use of the endpoint is no use.
            let Picked { id, name, wire, link, .. } = slot.picked(&shared.credentials);
            Probe { id, picked: Picked { id, name, wire, link, _use: Arc::new(()) } }
        })
        .collect()
}

struct Probe {
    id: EndpointId,
    picked: Picked,
}

async fn probe(shared: &Shared, probe: Probe) -> Found {
    let mut client = MaintenanceClient::new(probe.picked.wire.clone());
    // No timeout on the request itself: the transport would count the time this process was stopped.
    let found = tokio::select! {
        biased;
        answer = client.status(pb::StatusRequest {}) => found(&answer),
        () = has_run_for(shared.config.probe_timeout) => Found::Nothing,
    };
    note(shared, &probe, found);
    found
}

fn found(answer: &Result<tonic::Response<pb::StatusResponse>, tonic::Status>) -> Found {
    match answer {
        Ok(answer) if answer.get_ref().leader != 0 => Found::Leader,
        Ok(_) => Found::NoLeader,
        // An answer is an answer: a member that refuses to tell its status to this user is there.
        Err(status) if std::error::Error::source(status).is_none() && is_refusal(status) => Found::Leader,
        Err(_) => Found::Nothing,
    }
}

/// Ends when this process has been running for so long.
async fn has_run_for(time: Duration) {
    let mut left = time;
    while !left.is_zero() {
        let planned = left.min(PIECE);
        let began = tokio::time::Instant::now();
        tokio::time::sleep(planned).await;
        left = left.saturating_sub(counted(planned, began.elapsed()));
    }
}

/// How much of a sleep counts as time in which this process ran. Never nothing, so that counting ends.
fn counted(planned: Duration, took: Duration) -> Duration {
    if planned + OVERSLEPT <= took { planned } else { took.max(planned) }
}

fn is_refusal(status: &tonic::Status) -> bool {
    use tonic::Code;
    matches!(
        status.code(),
        Code::PermissionDenied
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
    )
}

fn note(shared: &Shared, probe: &Probe, found: Found) {
    let mut table = shared.table.lock();
    let Some(slot) = table.slots.iter_mut().find(|slot| slot.id == probe.id) else { return };
    slot.probing = false;
    slot.probed_at = Some(Instant::now());
    match found {
        Found::Leader => {
            slot.health = Health::good();
            slot.tell(Link::Up);
        }
        Found::NoLeader => {
            slot.health = slot.health.no_leader();
            slot.tell(Link::NoLeader);
        }
        Found::Nothing => {
            tracing::debug!(endpoint = %slot.name, "a member does not answer");
            slot.health = slot.health.failed(Instant::now(), rand::random());
            slot.replace_connection();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;

    #[test]
    fn small_delays_are_counted_and_stops_are_not() {
        let ms = Duration::from_millis;
        for (planned, took, counts) in [
            (100, 100, 100),
            (100, 180, 180),
            (100, 349, 349),
            (100, 350, 100),
            (100, 60_000, 100),
            (40, 0, 40),
        ] {
            assert_eq!(counted(ms(planned), ms(took)), ms(counts), "{planned} {took}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_was_stopped_is_not_held_against_a_member() {
        let began = tokio::time::Instant::now();
        let mut time = pin!(has_run_for(Duration::from_secs(2)));
        assert!(time.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(time.as_mut().now_or_never().is_none());
        time.await;
        let left = began.elapsed() - Duration::from_secs(60);
        assert!(Duration::from_millis(1_850) < left && left < Duration::from_millis(2_100), "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_silent_while_the_process_runs_has_its_time_and_no_more() {
        let began = tokio::time::Instant::now();
        has_run_for(Duration::from_secs(2)).await;
        let took = began.elapsed();
        assert!(Duration::from_secs(2) <= took && took < Duration::from_millis(2_100), "{took:?}");
    }
}
