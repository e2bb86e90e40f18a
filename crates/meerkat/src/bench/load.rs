//! The workers: each takes the next request of the schedule, sends it, waits, and notes how long.
//!
//! A thread has its own runtime, connections and tally, so that nothing is shared on the path of a
//! request but the schedule's counter. Every answer counts as an answer; one in [`SAMPLE`] is
//! decoded and checked, and a wrong one is an error.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tonic::Status;

use super::report::Tally;
use super::schedule::{Schedule, Ticket};
use super::wire::Connection;
use super::workload::{Random, Workload};
use crate::endpoint::Endpoint;

/// One answer in this many is decoded and checked, each worker's first among them.
const SAMPLE: u64 = 1_024;

/// After an error a worker waits, or a dead server would be met with a busy loop.
pub const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// How often a thread looks whether it has been told to stop.
const STOP_POLL: Duration = Duration::from_millis(100);

/// What one thread is to do.
pub struct Plan {
    pub workload: Workload,
    pub schedule: Arc<Schedule>,
    pub endpoints: Vec<Endpoint>,
    pub clients: usize,
    pub connections: usize,
    pub progress: Arc<Progress>,
    pub seed: u64,
}

/// Seen by whoever watches the load from outside.
#[derive(Default)]
pub struct Progress {
    pub finished: AtomicU64,
    /// Set to give up requests in flight.
    pub abandon: AtomicBool,
}

/// Runs a thread's share of the load to its end.
pub fn run(plan: Plan) -> std::io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let thread = Rc::new(Thread { tally: RefCell::new(Tally::new()), plan });
    let workers = async {
        let workers = start(&thread);
        tokio::select! {
            () = finish(workers) => {}
            () = told_to_abandon(&thread.plan.progress) => {}
        }
    };
    local.block_on(&runtime, workers);
    // Abandoned workers hold the tally too: take what is in it, and let them go with the runtime.
    Ok(thread.tally.replace(Tally::new()))
}

struct Thread {
    tally: RefCell<Tally>,
    plan: Plan,
}

fn start(thread: &Rc<Thread>) -> Vec<tokio::task::JoinHandle<()>> {
    let plan = &thread.plan;
    let connections: Vec<Rc<Connection>> = (0..plan.connections)
        .map(|number| Rc::new(Connection::new(plan.endpoints[number % plan.endpoints.len()].clone())))
        .collect();
    let worker = |number: usize| {
        let connection = Rc::clone(&connections[number % connections.len()]);
        let random = Random::new(plan.seed.wrapping_add(number as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        tokio::task::spawn_local(work(Rc::clone(thread), connection, random))
    };
    (0..plan.clients).map(worker).collect()
}

/// Waits for all of them; a panic of one is a panic here.
pub async fn finish(workers: Vec<tokio::task::JoinHandle<()>>) {
    for worker in workers {
        if let Err(error) = worker.await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Returns when the load is to be given up.
pub async fn told_to_abandon(progress: &Progress) {
    while !progress.abandon.load(Ordering::Relaxed) {
        tokio::time::sleep(STOP_POLL).await;
    }
}

async fn work(thread: Rc<Thread>, connection: Rc<Connection>, mut random: Random) {
    let mut made = 0;
    while let Some(ticket) = thread.plan.schedule.next().await {
        let outcome = request(&thread, &connection, &mut random, ticket, made % SAMPLE == 0).await;
        made += 1;
        thread.plan.progress.finished.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(()) => thread.tally.borrow_mut().answered(ticket.intended.elapsed()),
            Err(text) => {
                thread.tally.borrow_mut().failed(&text);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

async fn request(
    thread: &Thread,
    connection: &Connection,
    random: &mut Random,
    ticket: Ticket,
    sampled: bool,
) -> Result<(), String> {
    let workload = &thread.plan.workload;
    let call = workload.call(ticket.number, random);
    let copy = sampled.then(|| call.clone());
    let answer = connection.call(call).await.map_err(|status| error_text(&status))?;
    match copy {
        Some(call) => workload.check(&call, answer).map_err(|what| format!("wrong answer: {what}")),
        None => Ok(()),
    }
}

/// A status as one line: what went wrong, without what varies between two of the same.
pub fn error_text(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    if status.message().is_empty() { code } else { format!("{code}: {}", status.message()) }
}
