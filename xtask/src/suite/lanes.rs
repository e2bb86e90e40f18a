//! Suites side by side: each lane takes the next suite whose resource is free.
//!
//! A resource is held by one suite at a time: cargo's lock, or a port that programs of others insist on.
//! Lanes never take suites that run alone; those follow when all lanes are empty.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::plan::{Resource, Suite};
use super::run::Report;

/// More lanes than cores: most suites wait for elections and leases more than they compute.
pub const LANES: usize = 3;

/// Suites with their numbers.
pub type Numbered<'a> = (usize, &'a Suite);

struct Queue<'a> {
    waiting: Mutex<Waiting<'a>>,
    released: Condvar,
}

struct Waiting<'a> {
    suites: Vec<Numbered<'a>>,
    held: Vec<Resource>,
}

/// Runs all suites in lanes, in about their order, and returns what became of them in the order in which
/// they ended.
pub fn run<'a>(
    suites: Vec<Numbered<'a>>,
    lanes: usize,
    work: impl Fn(Numbered<'a>) -> Result<Report, String> + Sync,
) -> Result<Vec<Report>, String> {
    let waiting = Mutex::new(Waiting { suites, held: Vec::new() });
    let queue = Queue { waiting, released: Condvar::new() };
    let done = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(|| queue.run_lane(&work))).collect();
        let join = |lane: std::thread::ScopedJoinHandle<'_, _>| lane.join();
        lanes
            .into_iter()
            .map(join)
            .map(|lane| lane.unwrap_or_else(|_| Err("a lane panicked".to_owned())))
            .collect::<Result<Vec<Vec<Report>>, String>>()
    });
    Ok(done?.into_iter().flatten().collect())
}

impl<'a> Queue<'a> {
    fn run_lane(
        &self,
        work: &(impl Fn(Numbered<'a>) -> Result<Report, String> + Sync),
    ) -> Result<Vec<Report>, String> {
        let mut reports = Vec::new();
        while let Some(suite) = self.next() {
            let report = work(suite);
            self.release(suite.1.holds);
            reports.push(report?);
        }
        Ok(reports)
    }

    /// The next suite that can run. Waits while all that are left need a resource that is held.
    fn next(&self) -> Option<Numbered<'a>> {
        let mut waiting = self.lock();
        loop {
            if waiting.suites.is_empty() {
                return None;
            }
            if let Some(suite) = waiting.take() {
                return Some(suite);
            }
            waiting = self.released.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn release(&self, resource: Option<Resource>) {
        self.lock().held.retain(|held| Some(*held) != resource);
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<'a>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Waiting<'a> {
    fn take(&mut self) -> Option<Numbered<'a>> {
        let is_free = |suite: &Suite| suite.holds.is_none_or(|resource| !self.held.contains(&resource));
        let at = self.suites.iter().position(|(_, suite)| is_free(suite))?;
        let suite = self.suites.remove(at);
        self.held.extend(suite.1.holds);
        Some(suite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::run::Verdict;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn suite(name: &str, holds: Option<Resource>) -> Suite {
        Suite { name: name.to_owned(), holds, ..Suite::script(name, "true", std::path::Path::new("/"), 60) }
    }

    #[test]
    fn a_suite_whose_resource_is_held_lets_others_pass() {
        let suites = [suite("a", Some(Resource::Cargo)), suite("b", Some(Resource::Cargo)), suite("c", None)];
        let mut waiting = Waiting { suites: (1..).zip(&suites).collect(), held: Vec::new() };
        let mut taken = || waiting.take().map(|(_, suite)| suite.name.clone());
        assert_eq!([taken(), taken(), taken()], [Some("a".to_owned()), Some("c".to_owned()), None]);
    }

    #[test]
    fn every_suite_runs_once_and_no_resource_is_held_twice() {
        let suites: Vec<Suite> =
            (0..40).map(|n| suite(&n.to_string(), (n % 2 == 0).then_some(Resource::Port2379))).collect();
        let holders = AtomicUsize::new(0);
        let reports = run((1..).zip(&suites).collect(), 4, |(_, suite)| {
            if suite.holds.is_some() {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold one port");
                std::thread::yield_now();
                holders.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(Report::new(&suite.name, Verdict::Passed))
        });
        let mut names: Vec<usize> = reports
            .expect("no lane failed")
            .iter()
            .map(|report| report.name.parse().expect("a number"))
            .collect();
        names.sort_unstable();
        assert_eq!(names, (0..40).collect::<Vec<_>>());
    }
}
