//! The tasks of a member: one set, whose first failure ends the member, and what is begun beside it.
//!
//! Whatever goes on for as long as the member is in [`Tasks`], under a name of `meerkat_fault::TASKS`. A
//! panic in it ends the process of a `meerkat serve` where it happens; elsewhere (the simulation, tests) it
//! ends the task, and [`Tasks::first_failure`] tells. A task that ends by itself is a failure too.
//!
//! Only this file starts tasks for the rooms above the engine (tidy checks it), so each start says which
//! kind it is: one of the set, a part of one ([`spawn_part`]), or work for one request or connection, which
//! may fail alone ([`spawn_brief`]).

use meerkat_fault::{self as fault, Mutex};
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;
use tokio::task::{Id, JoinHandle, JoinSet};

/// How often a task passes its fault point, if that is armed.
const POINT_INTERVAL: Duration = Duration::from_millis(100);

/// From the end of what ends with a member until the member stops.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Ends its tasks when it is dropped.
#[derive(Default)]
pub struct Tasks(Mutex<Set>);

#[derive(Default)]
struct Set {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Work that never ends by itself.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.0.lock();
        let id = set.tasks.spawn(watched(name, work)).id();
        set.names.insert(id, name);
    }

    /// Work that ends when the member stops, or Raft does, and whoever asks for it. That end is told of
    /// elsewhere ([`RaftNode::failed`](crate::RaftNode::failed)), and has a moment to come first.
    pub fn spawn_until_stop(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn(name, async {
            work.await;
            tokio::time::sleep(STOPS_WITHIN).await;
        });
    }

    /// Resolves when the first task has failed, with its name and how.
    pub async fn first_failure(&self) -> String {
        let ended = std::future::poll_fn(|context| self.0.lock().tasks.poll_join_next_with_id(context)).await;
        let (id, how) = match ended {
            Some(Ok((id, ()))) => (id, "it ended by itself".to_owned()),
            Some(Err(error)) => (error.id(), error.to_string()),
            None => std::future::pending().await,
        };
        let name = self.0.lock().names.get(&id).copied().unwrap_or_default();
        format!("{name}: {how}")
    }

    /// Ends all tasks, and waits until they have ended.
    pub async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock()).tasks;
        tasks.shutdown().await;
    }
}

/// Supervised, and with a fault point of its name.
pub fn watched<T>(name: &'static str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    fault::supervised(name, async move {
        if !fault::is_armed(name) {
            return work.await;
        }
        tokio::select! {
            biased;
            never = pass_point(name) => match never {},
            done = work => done,
        }
    })
}

async fn pass_point(name: &'static str) -> std::convert::Infallible {
    loop {
        fault::pass_task(name);
        tokio::time::sleep(POINT_INTERVAL).await;
    }
}

/// A part of the supervised work `name`, which nobody waits for: a panic in it ends the process, too.
pub fn spawn_part<F>(name: &'static str, work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(fault::supervised(name, work))
}

/// Work for one request, connection or test of something, which ends with it. A panic in it is logged, and
/// is the failure of that one; whoever waits for the answer is told that there is none.
pub fn spawn_brief<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn first_failure(tasks: &Tasks) -> String {
        tokio::time::timeout(Duration::from_secs(60), tasks.first_failure()).await.expect("a failure")
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_task_that_panics_or_ends_is_named() {
        let tasks = Tasks::default();
        tasks.spawn("memory", std::future::pending());
        tasks.spawn("proposals", async { panic!("a mistake") });
        let failure = first_failure(&tasks).await;
        assert!(failure.starts_with("proposals: ") && failure.contains("a mistake"), "{failure}");
        tasks.spawn("space", async {});
        assert_eq!(first_failure(&tasks).await, "space: it ended by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_with_the_member_leaves_it_time_to_stop_and_then_is_its_end() {
        let tasks = Tasks::default();
        tasks.spawn_until_stop("log keeper", async {});
        let began = tokio::time::Instant::now();
        assert_eq!(first_failure(&tasks).await, "log keeper: it ended by itself");
        assert!(STOPS_WITHIN <= began.elapsed(), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn all_tasks_have_ended_after_the_shutdown() {
        let (tasks, held) = (Tasks::default(), std::sync::Arc::new(()));
        let its = held.clone();
        tasks.spawn("memory", async move {
            std::future::pending::<()>().await;
            drop(its);
        });
        tasks.shutdown().await;
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "is not among TASKS")]
    async fn a_task_that_no_test_could_break_is_not_started() {
        Tasks::default().spawn("another", async {});
    }
}
