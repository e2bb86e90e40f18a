//! gRPC statuses are made in one place, so that the texts clients match on are one table.

use super::Violation;
use crate::source::{Source, find_words};

/// Where a status may be made: the server's one table, the peer service (whose peers are ourselves),
/// and those who stand on the client's side and answer nobody: the fault harness, and the load
/// generator's connection, since tonic asks of a codec that it fails with one.
const ROOMS: &[&str] = &[
    "crates/server/src/grpc/status.rs",
    "crates/raft/src/network",
    "chaos",
    "crates/meerkat/src/bench/wire.rs",
];

pub fn check(source: &Source) -> Vec<Violation> {
    if source.is_test() || ROOMS.iter().any(|room| source.path.starts_with(room)) {
        return Vec::new();
    }
    let message = "a Status is made only in server/grpc/status.rs and in raft/network";
    find_words(&source.code, "Status::").map(|at| Violation::at(source, at, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> usize {
        check(&Source::new(path, "fn f() -> Status { Status::internal(\"\") }")).len()
    }

    #[test]
    fn a_status_made_elsewhere_is_refused() {
        assert_eq!(found("crates/server/src/grpc/kv.rs"), 1);
        assert_eq!(found("crates/raft/src/propose.rs"), 1);
        for room in [
            "crates/server/src/grpc/status.rs",
            "crates/raft/src/network/service.rs",
            "crates/server/tests/it/kv.rs",
        ] {
            assert_eq!(found(room), 0, "{room}");
        }
    }

    #[test]
    fn another_kind_of_status_is_not_meant() {
        let source = Source::new("crates/meerkat/src/dev.rs", "fn f() { ExitStatus::default(); }");
        assert_eq!(check(&source), []);
    }
}
