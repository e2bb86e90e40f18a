//! Asking members how they are: ejection and return.
//!
//! One task per client asks members for their status: those in use often, the others seldom, an
//! ejected one when its pause is over. A member that answers and names a leader is healthy; one
//! that answers without a leader is good for local reads only; one that does not answer in time is
//! gone, and whoever waits on its connection is told so. The task ends with the client's last
//! handle.

use super::picker::{Health, Standing, fraction};
use super::{EndpointId, Link, Picked, Pool, Shared, Slot};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::maintenance_client::MaintenanceClient;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

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
        let pause = config.probe_interval / 8 + fraction(config.probe_interval / 8, rand::random());
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
    let timeout = shared.config.probe_timeout;
    let mut request = tonic::Request::new(pb::StatusRequest {});
    request.set_timeout(timeout);
    let mut client = MaintenanceClient::new(probe.picked.wire.clone());
    let found = match tokio::time::timeout(timeout, client.status(request)).await {
        Ok(Ok(answer)) if answer.get_ref().leader != 0 => Found::Leader,
        Ok(Ok(_)) => Found::NoLeader,
        // An answer is an answer: a member that refuses to tell its status to this user is there.
        Ok(Err(status)) if std::error::Error::source(&status).is_none() && is_refusal(&status) => {
            Found::Leader
        }
        Ok(Err(_)) | Err(_) => Found::Nothing,
    };
    note(shared, &probe, found);
    found
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
