//! Granting and revoking leases by the thousand, each worker with one request in flight.
//!
//! Used to measure grants, and to make and clean up what the other loads renew.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

use crate::bench::load::{PAUSE_AFTER_ERROR, Progress, error_text, finish, told_to_abandon};
use crate::bench::report::Tally;
use crate::bench::schedule::{Length, Schedule};
use crate::bench::wire::{Call, Connection};
use crate::bench::{BenchArgs, progress_bar, supervise};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

pub enum Job {
    Grant { ttl_s: u32 },
    Revoke(Vec<i64>),
}

/// How the work is spread, and until when it goes on.
pub struct Effort<'a> {
    pub endpoints: &'a [Endpoint],
    pub clients: usize,
    pub connections: usize,
    pub length: Length,
    pub rate: Option<f64>,
}

pub struct Done {
    pub tally: Tally,
    /// What was granted.
    pub leases: Vec<i64>,
    pub seconds: f64,
}

/// Blocks until the last request is answered, or until nothing was answered for `--timeout`.
pub fn run(args: &BenchArgs, job: Job, effort: &Effort<'_>) -> Result<Done, Failure> {
    let start = Instant::now();
    let schedule = Arc::new(Schedule::new(start, effort.length, effort.rate));
    let progress = Arc::new(Progress::default());
    let label = match job {
        Job::Grant { .. } => "grant",
        Job::Revoke(_) => "revoke",
    };
    let bar = match effort.length {
        Length::Requests(total) => progress_bar(args, total, label),
        Length::Time(time) => progress_bar(args, time.as_millis() as u64, label),
    };
    let plan = Plan {
        job,
        schedule: Arc::clone(&schedule),
        progress: Arc::clone(&progress),
        clients: effort.clients,
        endpoints: (0..effort.connections)
            .map(|number| effort.endpoints[number % effort.endpoints.len()].clone())
            .collect(),
    };
    let (mut done, gave_up) = std::thread::scope(|scope| {
        let pacer = scope.spawn(|| schedule.pace());
        let thread = scope.spawn(|| work_all(plan));
        let is_over = || thread.is_finished();
        let gave_up = supervise(args.timeout, effort.length, start, &progress, &schedule, &bar, is_over);
        let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        schedule.stop();
        pacer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Failure>((done, gave_up))
    })?;
    done.seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    done.tally.failed_many("due but never begun", schedule.never_begun());
    if gave_up {
        done.tally.failed("gave up: nothing was answered for too long");
    }
    Ok(done)
}

struct Plan {
    job: Job,
    schedule: Arc<Schedule>,
    progress: Arc<Progress>,
    clients: usize,
    /// One for each connection.
    endpoints: Vec<Endpoint>,
}

struct Workers {
    plan: Plan,
    done: RefCell<Done>,
}

fn nothing() -> Done {
    Done { tally: Tally::new(), leases: Vec::new(), seconds: 0.0 }
}

fn work_all(plan: Plan) -> std::io::Result<Done> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let connections: Vec<Rc<Connection>> =
        plan.endpoints.iter().map(|endpoint| Rc::new(Connection::new(endpoint.clone()))).collect();
    let workers = Rc::new(Workers { plan, done: RefCell::new(nothing()) });
    let load = async {
        let start = |number: usize| {
            let connection = Rc::clone(&connections[number % connections.len()]);
            tokio::task::spawn_local(work(Rc::clone(&workers), connection))
        };
        let started = (0..workers.plan.clients).map(start).collect();
        tokio::select! {
            () = finish(started) => {}
            () = told_to_abandon(&workers.plan.progress) => {}
        }
    };
    local.block_on(&runtime, load);
    Ok(workers.done.replace(nothing()))
}

async fn work(workers: Rc<Workers>, connection: Rc<Connection>) {
    let plan = &workers.plan;
    while let Some(ticket) = plan.schedule.next().await {
        let call = match &plan.job {
            Job::Grant { ttl_s } => Call::LeaseGrant(pb::LeaseGrantRequest { ttl: i64::from(*ttl_s), id: 0 }),
            Job::Revoke(leases) => match leases.get(ticket.number as usize) {
                Some(lease) => Call::LeaseRevoke(pb::LeaseRevokeRequest { id: *lease }),
                None => return,
            },
        };
        let answer = connection.call(call).await.map_err(|status| error_text(&status));
        let granted = answer.and_then(|answer| granted(&plan.job, answer));
        plan.progress.finished.fetch_add(1, Ordering::Relaxed);
        match granted {
            Ok(lease) => {
                let mut done = workers.done.borrow_mut();
                done.tally.answered(ticket.intended.elapsed());
                done.leases.extend(lease);
            }
            Err(text) => {
                workers.done.borrow_mut().tally.failed(&text);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// The lease of an answer, if it is one to a grant.
fn granted(job: &Job, answer: Bytes) -> Result<Option<i64>, String> {
    let Job::Grant { ttl_s } = job else { return Ok(None) };
    let response = pb::LeaseGrantResponse::decode(answer)
        .map_err(|error| format!("wrong answer: not a grant: {error}"))?;
    if response.id == 0 || response.ttl < i64::from(*ttl_s) {
        return Err("wrong answer: a grant of no lease, or of a shorter one".to_owned());
    }
    Ok(Some(response.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_must_name_a_lease_that_lives_long_enough() {
        let answer = |id, ttl| {
            let response = pb::LeaseGrantResponse { id, ttl, ..Default::default() };
            granted(&Job::Grant { ttl_s: 10 }, response.encode_to_vec().into())
        };
        assert_eq!(answer(7, 10), Ok(Some(7)));
        assert!(answer(0, 10).is_err());
        assert!(answer(7, 9).is_err());
        assert_eq!(granted(&Job::Revoke(vec![7]), Bytes::new()), Ok(None));
    }
}
