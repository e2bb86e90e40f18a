//! What everybody knows: written by the controllers and the play, read by the screen and the verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meerkat_client::Informer;
use meerkat_client::informer::Trail;
use meerkat_client::listwatch::Error;
use serde_json::Value;

use super::super::script::MEMBERS;

/// Lines of the log that are kept for the screen.
const LOG_MAX: usize = 200;

/// Clones are the same board.
#[derive(Clone)]
pub struct Board {
    shared: Arc<Mutex<State>>,
    began: Instant,
}

#[derive(Default)]
struct State {
    log: Vec<LogLine>,
    said: usize,
    members: [Condition; MEMBERS],
    wanted: usize,
    agents: BTreeMap<String, Agent>,
    /// The agents that started each pod, by its uid.
    starts: BTreeMap<String, Vec<String>>,
    failures: u64,
    followed: Vec<Followed>,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub at: Duration,
    pub text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Starting,
    Up,
    Down,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    pub runs: usize,
    pub renewals: u64,
}

struct Followed {
    name: String,
    informer: Informer<Value>,
    trail: Trail,
}

/// How one cache is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRow {
    pub name: String,
    pub on: Option<usize>,
    pub objects: usize,
    pub revision: i64,
    pub opened: u64,
    pub relists: u64,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Sight {
    pub now: Duration,
    pub log: Vec<LogLine>,
    /// Lines said so far, those no longer in the log included.
    pub said: usize,
    pub members: [Condition; MEMBERS],
    pub wanted: usize,
    pub agents: BTreeMap<String, Agent>,
    pub caches: Vec<CacheRow>,
    pub failures: u64,
    /// Uids of pods that were started more than once.
    pub started_twice: Vec<String>,
    pub started: usize,
}

impl Board {
    pub fn new() -> Board {
        Board { shared: Arc::default(), began: Instant::now() }
    }

    pub fn say(&self, text: impl Into<String>) {
        let line = LogLine { at: self.began.elapsed(), text: text.into() };
        let mut state = self.state();
        state.said += 1;
        state.log.push(line);
        if LOG_MAX < state.log.len() {
            state.log.remove(0);
        }
    }

    pub fn member(&self, member: usize, condition: Condition) {
        self.state().members[member] = condition;
    }

    pub fn want(&self, pods: usize) {
        self.state().wanted = pods;
    }

    pub fn follow(&self, name: &str, informer: Informer<Value>, trail: Trail) {
        self.state().followed.push(Followed { name: name.to_owned(), informer, trail });
    }

    pub fn started(&self, uid: &str, agent: &str) {
        self.state().starts.entry(uid.to_owned()).or_default().push(agent.to_owned());
    }

    pub fn runs(&self, agent: &str, pods: usize) {
        self.state().agents.entry(agent.to_owned()).or_default().runs = pods;
    }

    pub fn renewed(&self, agent: &str) {
        self.state().agents.entry(agent.to_owned()).or_default().renewals += 1;
    }

    /// A write that failed is tried again when its controller looks next; here it is only counted.
    pub fn note_failure<T>(&self, who: &str, done: Result<T, Error>) {
        if let Err(error) = done {
            tracing::debug!(who, %error, "a write failed");
            self.state().failures += 1;
        }
    }

    pub fn look(&self) -> Sight {
        let state = self.state();
        Sight {
            now: self.began.elapsed(),
            log: state.log.clone(),
            said: state.said,
            members: state.members,
            wanted: state.wanted,
            agents: state.agents.clone(),
            caches: state.followed.iter().map(row).collect(),
            failures: state.failures,
            started_twice: twice(&state.starts),
            started: state.starts.len(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn row(followed: &Followed) -> CacheRow {
    let (status, store) = (followed.informer.status(), followed.informer.store());
    CacheRow {
        name: followed.name.clone(),
        on: followed.trail.member(),
        objects: store.len(),
        revision: store.revision().map_or(0, |revision| revision.get()),
        opened: followed.trail.opened(),
        relists: status.relists(),
    }
}

fn twice(starts: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    starts.iter().filter(|(_, agents)| 1 < agents.len()).map(|(uid, _)| uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_forgets_and_the_count_does_not() {
        let board = Board::new();
        for number in 0..LOG_MAX + 5 {
            board.say(number.to_string());
        }
        let sight = board.look();
        assert_eq!((sight.log.len(), sight.said, sight.log[0].text.as_str()), (LOG_MAX, LOG_MAX + 5, "5"));
    }

    #[test]
    fn a_pod_started_by_two_agents_is_noticed() {
        let board = Board::new();
        board.started("a", "n1");
        board.started("b", "n1");
        board.started("b", "n2");
        let sight = board.look();
        assert_eq!((sight.started, sight.started_twice), (2, vec!["b".to_owned()]));
    }
}
