//! A member's tasks and threads are begun in one place, which says what a panic in each costs.
//!
//! A bare `tokio::spawn` is a task whose death nobody notices. The doors of the list-watch API are not held
//! to this: their tasks restart on purpose.

use super::Violation;
use crate::source::{Source, find_words};

const ROOMS: &[&str] =
    &["crates/engine/src", "crates/state/src", "crates/watch/src", "crates/raft/src", "crates/server/src"];

/// Where tasks and threads are begun, and why they may be.
const HOMES: &[(&str, &str)] = &[
    ("crates/raft/src/tasks.rs", "all other rooms begin their tasks by it"),
    ("crates/raft/src/threads.rs", "work that blocks, for whoever waits for it"),
    ("crates/server/src/node.rs", "ports, which are drained by themselves"),
    ("crates/server/src/listen/port.rs", "handshakes, one for each connection"),
    ("crates/server/src/tls/reverse_lookup.rs", "one question, whose asker waits"),
    ("crates/watch/src/hub.rs", "one read of history, whose asker waits and is supervised"),
];

const BARE: &[&str] = &[
    "tokio::spawn",
    "task::spawn",
    "task::spawn_blocking",
    "thread::spawn",
    "thread::Builder",
    "JoinSet::new",
    "task::JoinSet",
];

/// Where work that blocks is that of one request, whose asker waits and is told.
const REQUESTS: &[&str] = &[
    "crates/server/src/grpc",
    "crates/server/src/member",
    "crates/server/src/auth/password.rs",
    "crates/raft/src/agreement.rs",
    "crates/raft/src/defragment.rs",
];

const UNNAMED: &[&str] = &["threads::spawn_blocking", "threads::{spawn_blocking"];

pub fn check(source: &Source) -> Vec<Violation> {
    let held = ROOMS.iter().any(|room| source.path.starts_with(room)) && !source.is_test();
    if !held || HOMES.iter().any(|(home, _)| source.path.ends_with(home)) {
        return Vec::new();
    }
    let code = source.code_without_tests();
    let bare = BARE.iter().flat_map(|word| find_words(code, word));
    let message =
        "begin it by meerkat_raft::tasks or meerkat_fault::spawn_thread, which say what a panic in it costs";
    let mut found: Vec<Violation> = bare.map(|at| Violation::at(source, at, message)).collect();
    if !REQUESTS.iter().any(|request| source.path.starts_with(request)) {
        let unnamed = UNNAMED.iter().flat_map(|word| find_words(code, word));
        let message = "name the supervised work that this is a part of, by spawn_blocking_part";
        found.extend(unnamed.map(|at| Violation::at(source, at, message)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAWNS: &str = "fn f() { tokio::spawn(async {}); std::thread::spawn(|| ()); }";

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn a_bare_spawn_is_refused() {
        assert_eq!(found("crates/raft/src/propose.rs", SPAWNS), 2);
        assert_eq!(found("crates/server/src/upkeep.rs", "use tokio::task::JoinSet;"), 1);
        assert_eq!(found("crates/raft/src/tasks.rs", SPAWNS), 0);
    }

    #[test]
    fn work_that_blocks_names_its_task_unless_it_is_of_a_request() {
        let text = "fn f() { crate::threads::spawn_blocking(|| ()); }";
        assert_eq!(found("crates/server/src/space/keeper.rs", text), 1);
        assert_eq!(found("crates/server/src/grpc/kv.rs", text), 0);
        let named = "fn f() { threads::spawn_blocking_part(\"space\", || ()); }";
        assert_eq!(found("crates/server/src/space/keeper.rs", named), 0);
    }

    #[test]
    fn tests_and_the_doors_that_restart_their_work_may() {
        assert_eq!(found("crates/raft/tests/it/main.rs", SPAWNS), 0);
        assert_eq!(found("crates/raft/src/a.rs", &format!("#[cfg(test)]\nmod tests {{ {SPAWNS} }}")), 0);
        assert_eq!(found("crates/watchcache/src/keep_running.rs", SPAWNS), 0);
    }
}
