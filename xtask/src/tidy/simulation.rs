//! Only the simulation may switch on its seams.
//!
//! `become_tasks` puts a process's threads on tasks, and `memory::choose` its databases in memory. A member
//! that did either would lose what it acknowledged, so no crate but `crates/sim` names them.

use super::Violation;
use crate::source::{Source, find_words};

/// The switches, and the file that defines each.
const SWITCHES: &[(&str, &str)] = &[
    ("become_tasks", "crates/raft/src/threads.rs"),
    ("memory::choose", "crates/engine/src/memory.rs"),
    ("meerkat_engine::memory", "crates/engine/src/memory.rs"),
];

pub fn check(source: &Source) -> Vec<Violation> {
    if source.path.starts_with("crates/sim") {
        return Vec::new();
    }
    let switches = SWITCHES.iter().filter(|(_, home)| source.path != std::path::Path::new(home));
    switches
        .flat_map(|(switch, _)| find_words(&source.code, switch))
        .map(|at| Violation::at(source, at, "only crates/sim may switch on the seams of simulation"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn only_the_simulation_switches_its_seams_on() {
        let text = "fn main() { threads::become_tasks(); memory::choose(7); }";
        assert_eq!(found("crates/meerkat/src/main.rs", text), 2);
        assert_eq!(found("crates/server/src/node.rs", "use meerkat_engine::memory::{choose};"), 1);
        assert_eq!(found("crates/sim/src/host.rs", text), 0);
        assert_eq!(found("crates/raft/src/threads.rs", "pub fn become_tasks() {}"), 0);
        assert_eq!(found("crates/server/src/node.rs", "if threads::are_tasks() {}"), 0);
    }
}
