//! The writers: puts of stamped values, and an account of what they make the watchers owed.
//!
//! Like [`load`](crate::bench::load), but every answer is looked at for its revision. Writers are few and
//! slow beside the watchers they wake, so they share one thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meerkat_proto::pb::etcdserver as pb;

use super::interest::{Interest, Values};
use super::response::header_revision;
use super::watched::Owed;
use crate::bench::load::{PAUSE_AFTER_ERROR, Progress, error_text, finish, told_to_abandon};
use crate::bench::report::Tally;
use crate::bench::schedule::{Schedule, Ticket};
use crate::bench::wire::{Call, Connection};
use crate::endpoint::Endpoint;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Keys that somebody watches, this many of them.
    Watched { keys: u64 },
    /// Keys that nobody watches, this many of them.
    Unrelated { keys: u64 },
}

pub struct Plan {
    pub aim: Aim,
    pub interest: Interest,
    pub values: Values,
    pub groups: usize,
    pub schedule: Arc<Schedule>,
    pub endpoints: Vec<Endpoint>,
    pub clients: usize,
    pub connections: usize,
    pub progress: Arc<Progress>,
}

/// What came of it.
pub struct Written {
    pub tally: Tally,
    /// By group.
    pub owed: Vec<Owed>,
    pub answered: u64,
    /// The lowest revision written; 0 if nothing was.
    pub first_revision: i64,
}

impl Written {
    pub fn nothing(groups: usize) -> Written {
        Written { tally: Tally::new(), owed: vec![Owed::default(); groups], answered: 0, first_revision: 0 }
    }

    fn answered(&mut self, group: Option<usize>, revision: i64, ticket: Ticket) {
        self.tally.answered(ticket.intended.elapsed());
        self.answered += 1;
        if self.first_revision == 0 || revision < self.first_revision {
            self.first_revision = revision;
        }
        if let Some(group) = group {
            self.owed[group].written(revision);
        }
    }

    fn failed(&mut self, group: Option<usize>, text: &str) {
        self.tally.failed(text);
        if let Some(group) = group {
            self.owed[group].unsure += 1;
        }
    }
}

/// Makes the puts. Blocks until the last is answered, or until they are given up.
pub fn run(plan: Plan) -> std::io::Result<Written> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let connections: Vec<Rc<Connection>> = (0..plan.connections)
        .map(|number| Rc::new(Connection::new(plan.endpoints[number % plan.endpoints.len()].clone())))
        .collect();
    let writers = Rc::new(Writers { written: RefCell::new(Written::nothing(plan.groups)), plan });
    let load = async {
        let start = |number: usize| {
            let connection = Rc::clone(&connections[number % connections.len()]);
            tokio::task::spawn_local(write(Rc::clone(&writers), connection))
        };
        let started = (0..writers.plan.clients).map(start).collect();
        tokio::select! {
            () = finish(started) => {}
            () = told_to_abandon(&writers.plan.progress) => {}
        }
    };
    local.block_on(&runtime, load);
    Ok(writers.written.replace(Written::nothing(0)))
}

struct Writers {
    written: RefCell<Written>,
    plan: Plan,
}

async fn write(writers: Rc<Writers>, connection: Rc<Connection>) {
    let plan = &writers.plan;
    while let Some(ticket) = plan.schedule.next().await {
        let (key, group) = match plan.aim {
            Aim::Watched { keys } => {
                let number = ticket.number % keys;
                (plan.interest.key(number), Some(plan.interest.group_of_key(number)))
            }
            Aim::Unrelated { keys } => (plan.interest.unrelated_key(ticket.number % keys), None),
        };
        let value = plan.values.stamped(ticket.intended);
        let put = Call::Put(pb::PutRequest { key, value, ..Default::default() });
        let answer = connection.call(put).await.map_err(|status| error_text(&status));
        let revision = answer.and_then(|answer| {
            header_revision(&answer).map_err(|_| "wrong answer: an answer without a revision".to_owned())
        });
        plan.progress.finished.fetch_add(1, Ordering::Relaxed);
        match revision {
            Ok(revision) => writers.written.borrow_mut().answered(group, revision, ticket),
            Err(text) => {
                writers.written.borrow_mut().failed(group, &text);
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_tells_what_is_owed_from_what_is_unsure() {
        let mut written = Written::nothing(2);
        let ticket = Ticket { number: 0, intended: std::time::Instant::now() };
        for (group, revision) in [(Some(1), 9), (Some(1), 7), (None, 8)] {
            written.answered(group, revision, ticket);
        }
        written.failed(Some(0), "no leader");
        assert_eq!(written.owed[1], Owed { count: 2, revisions_sum: 16, unsure: 0 });
        assert_eq!(written.owed[0], Owed { count: 0, revisions_sum: 0, unsure: 1 });
        assert_eq!((written.first_revision, written.answered), (7, 3));
    }
}
