//! gRPC statuses are made in one place, so that the texts clients match on are one table.

use super::Violation;
use crate::source::{Source, find_words};

/// Where a status may be made: the server's one table, the peer service (whose peers are ourselves),
/// and those who stand on the client's side and answer nobody: the fault harness, the client's calls
/// that end without an answer, and the load generator's connection, since tonic asks of a codec that
/// it fails with one.
const ROOMS: &[&str] = &[
    "crates/server/src/grpc/status.rs",
    "crates/raft/src/network",
    "chaos",
    "crates/client/src/call.rs",
    "crates/meerkat/src/bench/wire.rs",
];

/// What reads a status that somebody else has made.
const READERS: &[&str] = &["from_header_map"];

pub fn check(source: &Source) -> Vec<Violation> {
    if source.is_test() || ROOMS.iter().any(|room| source.path.starts_with(room)) {
        return Vec::new();
    }
    let message = "a Status is made only in server/grpc/status.rs and in raft/network";
    let code = source.code_without_tests();
    let makes_one = |at: &usize| {
        let rest = &code[at + "Status::".len()..];
        // A constant begins with a capital letter.
        rest.starts_with(|first: char| first.is_lowercase())
            && !READERS.iter().any(|reader| rest.starts_with(reader))
    };
    find_words(code, "Status::").filter(makes_one).map(|at| Violation::at(source, at, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAKES_ONE: &str = "fn f() -> Status { Status::internal(\"\") }";

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn a_status_made_elsewhere_is_refused() {
        assert_eq!(found("crates/server/src/grpc/kv.rs", MAKES_ONE), 1);
        assert_eq!(found("crates/raft/src/propose.rs", MAKES_ONE), 1);
        for room in ["server/src/grpc/status.rs", "raft/src/network/service.rs", "server/tests/it/kv.rs"] {
            assert_eq!(found(&format!("crates/{room}"), MAKES_ONE), 0, "{room}");
        }
    }

    #[test]
    fn a_test_may_make_one_to_look_at() {
        assert_eq!(
            found("crates/meerkat/src/a.rs", &format!("#[cfg(test)]\nmod tests {{ {MAKES_ONE} }}")),
            0
        );
    }

    #[test]
    fn reading_one_is_not_making_one() {
        for text in ["ExitStatus::default()", "Status::GRPC_STATUS", "Status::from_header_map(headers)"] {
            assert_eq!(found("crates/server/src/grpc/kv.rs", &format!("fn f() {{ {text}; }}")), 0, "{text}");
        }
    }
}
