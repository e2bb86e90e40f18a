//! Which crates may name which libraries, in their manifest and in their text.
//!
//! A library that only one room names can be replaced by furnishing one room.

use super::Violation;
use crate::metadata::Package;
use crate::source::{Source, find_words};

/// A library, the directories that may name it, and why no other may.
struct Rule {
    library: &'static str,
    rooms: &'static [&'static str],
    reason: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        library: "rocksdb",
        rooms: &["crates/engine"],
        reason: "the disk is reached through meerkat-engine, where every write names its durability",
    },
    Rule {
        library: "openraft",
        rooms: &["crates/raft"],
        reason: "its API moves, and only the adapters in meerkat-raft move with it",
    },
    Rule {
        library: "tonic",
        // `meerkat` and `chaos` use the generated stubs: the first until the client crate exists,
        // the second because the server must be judged without a client in between.
        rooms: &[
            "crates/proto",
            "crates/raft",
            "crates/server",
            "crates/client",
            "crates/meerkat",
            "crates/sim",
            "chaos",
        ],
        reason: "the wire ends at the doors; what lies behind them speaks meerkat-types",
    },
    Rule {
        library: "axum",
        rooms: &["crates/server", "crates/listwatch"],
        reason: "only the doors speak HTTP",
    },
    Rule {
        library: "parking_lot",
        rooms: &[
            "crates/fault",
            "crates/watchcache",
            "crates/listwatch",
            "crates/client",
            "crates/meerkat",
            "crates/sim",
            "chaos",
        ],
        reason: "a member's locks are meerkat_fault's: a panic while one is held ends the process",
    },
];

/// Libraries with a clock, a task or chance in them, which a deterministic or synchronous room has
/// no use for. Its tests may.
const NOT_WHERE_ALL_IS_SYNCHRONOUS: &[&str] = &["tokio", "tokio-stream", "futures", "rand", "hyper"];
const SYNCHRONOUS: &[&str] =
    &["crates/types", "crates/fault", "crates/engine", "crates/state", "crates/kubernetes"];

pub fn check_manifests(packages: &[Package]) -> Vec<Violation> {
    packages.iter().flat_map(check_manifest).collect()
}

fn check_manifest(package: &Package) -> Vec<Violation> {
    let manifest = package.directory.join("Cargo.toml");
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        let rule = RULES.iter().find(|rule| rule.library == dependency.name);
        if let Some(rule) =
            rule.filter(|rule| !rule.rooms.iter().any(|room| package.directory.ends_with(room)))
        {
            let message = format!("{} may not depend on {}: {}", package.name, rule.library, rule.reason);
            found.push(Violation::whole(&manifest, message));
        }
        let synchronous = SYNCHRONOUS.iter().any(|room| package.directory.ends_with(room));
        if synchronous && !dependency.dev && NOT_WHERE_ALL_IS_SYNCHRONOUS.contains(&dependency.name.as_str())
        {
            let message =
                format!("{} is synchronous and may not depend on {}", package.name, dependency.name);
            found.push(Violation::whole(&manifest, message));
        }
    }
    found
}

pub fn check_source(source: &Source) -> Vec<Violation> {
    let barred = RULES.iter().filter(|rule| !rule.rooms.iter().any(|room| source.path.starts_with(room)));
    let mut found = Vec::new();
    for rule in barred {
        let path = format!("{}::", rule.library);
        for at in find_words(&source.code, &path) {
            let message = format!("{} may not be named here: {}", rule.library, rule.reason);
            found.push(Violation::at(source, at, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn manifest(directory: &str, library: &str, dev: bool) -> usize {
        let dependencies = vec![Dependency { name: library.to_owned(), dev }];
        check_manifests(&[Package { name: "it".to_owned(), directory: directory.into(), dependencies }]).len()
    }

    fn text(path: &str, text: &str) -> usize {
        check_source(&Source::new(path, text)).len()
    }

    #[test]
    fn only_the_engine_names_rocksdb() {
        assert_eq!(manifest("crates/engine", "rocksdb", false), 0);
        assert_eq!(manifest("crates/state", "rocksdb", false), 1);
        assert_eq!(text("crates/engine/src/db.rs", "use rocksdb::DB;"), 0);
        assert_eq!(text("crates/state/src/lib.rs", "fn f(db: rocksdb::DB) {}"), 1);
        assert_eq!(text("crates/state/src/lib.rs", "// rocksdb::DB is elsewhere\n"), 0);
    }

    #[test]
    fn only_raft_names_openraft() {
        assert_eq!(manifest("crates/raft", "openraft", false), 0);
        assert_eq!(manifest("crates/server", "openraft", true), 1);
        assert_eq!(text("crates/server/src/node.rs", "use openraft::Raft;"), 1);
    }

    #[test]
    fn tonic_stays_at_the_doors() {
        assert_eq!(manifest("crates/server", "tonic", false), 0);
        assert_eq!(manifest("crates/state", "tonic", false), 1);
        assert_eq!(text("crates/types/src/key.rs", "use tonic::Code;"), 1);
    }

    #[test]
    fn only_the_doors_speak_http() {
        assert_eq!(manifest("crates/server", "axum", false), 0);
        assert_eq!(manifest("crates/raft", "axum", false), 1);
    }

    #[test]
    fn a_synchronous_room_has_no_runtime_but_its_tests_may() {
        assert_eq!(manifest("crates/state", "tokio", false), 1);
        assert_eq!(manifest("crates/state", "rand", true), 0);
    }
}
