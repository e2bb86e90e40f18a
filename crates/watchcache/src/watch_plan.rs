//! Where a watch begins, whether it shows the state first, and how it is told of a failure.
//!
//! A version means "changes after this one", never this one itself. A watch that names no version is
//! shown the state first, as if it had asked for that. Once the parameters are read a failure is an
//! event in the stream and no HTTP status: clients take an HTTP 410 for something to try again with the
//! same version, for ever.

use crate::list_options::WatchOptions;
use crate::list_plan::ReadAt;
use crate::resource_version::ResourceVersion;
use meerkat_kubernetes::status::{Reason, Refusal};
use serde_json::{Value, json};
use std::time::Duration;

/// What the server chooses from when the client names no lifetime.
const LIFETIME_FIRST_S: u64 = 1_800;
const LIFETIME_END_S: u64 = 3_600;

/// A stream that ends early is resumed, so a longer wish is cut and not refused; and a deadline can be
/// reckoned with.
pub const LIFETIME_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPlan {
    pub begin: WatchBegin,
    /// Whether the client wants bookmarks.
    pub bookmarks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchBegin {
    /// Every object as ADDED, then the changes since. `at` is never exact.
    State {
        at: ReadAt,
        /// After the objects comes the bookmark that says so, with a version not below any of theirs.
        mark_end: bool,
    },
    Changes(ChangesAfter),
}

/// Only changes with a greater revision than this are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesAfter {
    /// The newest there is when the request comes.
    MostRecent,
    /// The one that the cache has reached.
    Cached,
    /// Too old is told in the stream. In the future is legal: silence until it is passed.
    Revision(u64),
}

pub fn plan_watch(options: &WatchOptions) -> WatchPlan {
    let state = |at| WatchBegin::State { at, mark_end: options.bookmarks };
    let begin = match (options.initial_events, options.version) {
        (None | Some(true), ResourceVersion::Unset) => state(ReadAt::MostRecent),
        (None | Some(true), ResourceVersion::Any) => state(ReadAt::AnyCached),
        (Some(true), ResourceVersion::At(revision)) => state(ReadAt::NotOlderThan(revision)),
        (Some(false), ResourceVersion::Unset) => WatchBegin::Changes(ChangesAfter::MostRecent),
        (Some(false), ResourceVersion::Any) => WatchBegin::Changes(ChangesAfter::Cached),
        (None | Some(false), ResourceVersion::At(revision)) => {
            WatchBegin::Changes(ChangesAfter::Revision(revision))
        }
    };
    WatchPlan { begin, bookmarks: options.bookmarks }
}

impl WatchPlan {
    /// The revision that the cache must reach before the first event. Only a watch that shows the state
    /// waits for one; if it does not come in time the version is too large.
    pub fn awaited(&self) -> Option<u64> {
        match self.begin {
            WatchBegin::State { at, .. } => at.awaited(),
            WatchBegin::Changes(_) => None,
        }
    }
}

/// How long the stream may live. `chance` is any random number: clients that came together shall not
/// come back together.
pub fn lifetime(asked: Option<Duration>, chance: u64) -> Duration {
    let chosen = || Duration::from_secs(LIFETIME_FIRST_S + chance % (LIFETIME_END_S - LIFETIME_FIRST_S));
    asked.map_or_else(chosen, |asked| asked.min(LIFETIME_MAX))
}

/// How far a watch had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchPhase {
    /// Who asks, whether they may, and what for.
    Asking,
    /// The request is understood, and not a byte is sent.
    Starting,
    Streaming,
}

/// How a client of a watch is told of a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchFailure {
    /// The answer to the request.
    Status(Refusal),
    /// The last event of a stream with status 200.
    Event(Value),
}

pub fn failure(phase: WatchPhase, refusal: Refusal) -> WatchFailure {
    match (phase, refusal.reason) {
        // A cache that is not ready, or a server that is too busy, has started no stream; clients come
        // back with the same version, which is what they should do.
        (WatchPhase::Asking, _) | (WatchPhase::Starting, Reason::TooManyRequests) => {
            WatchFailure::Status(refusal)
        }
        (WatchPhase::Starting | WatchPhase::Streaming, _) => WatchFailure::Event(error_event(&refusal)),
    }
}

/// The last event of a watch whose store was restored from a backup or replaced.
pub fn other_history() -> Value {
    error_event(&Refusal::expired("the store was restored or replaced: list again"))
}

/// The last event of a watch of which something has no form that the client asked for.
pub fn unencodable() -> Value {
    error_event(&Refusal::new(
        Reason::InternalError,
        "an event cannot be told in the form that was asked for",
    ))
}

fn error_event(refusal: &Refusal) -> Value {
    json!({ "type": "ERROR", "object": refusal.to_status() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::query::Query;

    fn plan(raw: &str) -> WatchPlan {
        let query = Query::parse(raw).expect("a query");
        plan_watch(&WatchOptions::from_query(&query).expect("valid"))
    }

    fn check(raw: &str, begin: WatchBegin) {
        assert_eq!(plan(raw), WatchPlan { begin, bookmarks: false }, "{raw}");
    }

    fn state(at: ReadAt) -> WatchBegin {
        WatchBegin::State { at, mark_end: false }
    }

    #[test]
    fn a_watch_that_does_not_speak_of_initial_events() {
        check("", state(ReadAt::MostRecent));
        check("resourceVersion=0", state(ReadAt::AnyCached));
        check("resourceVersion=5", WatchBegin::Changes(ChangesAfter::Revision(5)));
    }

    #[test]
    fn a_watch_that_wants_initial_events() {
        let wants = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        check(wants, state(ReadAt::MostRecent));
        check(&format!("{wants}&resourceVersion=0"), state(ReadAt::AnyCached));
        check(&format!("{wants}&resourceVersion=5"), state(ReadAt::NotOlderThan(5)));
    }

    #[test]
    fn a_watch_that_wants_no_initial_events() {
        let wants = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        check(wants, WatchBegin::Changes(ChangesAfter::MostRecent));
        check(&format!("{wants}&resourceVersion=0"), WatchBegin::Changes(ChangesAfter::Cached));
        check(&format!("{wants}&resourceVersion=5"), WatchBegin::Changes(ChangesAfter::Revision(5)));
    }

    #[test]
    fn the_end_of_the_state_is_marked_for_those_who_take_bookmarks() {
        for raw in ["allowWatchBookmarks=true", "allowWatchBookmarks=1&resourceVersion=0"] {
            let planned = plan(raw);
            assert!(planned.bookmarks, "{raw}");
            assert!(matches!(planned.begin, WatchBegin::State { mark_end: true, .. }), "{raw}");
        }
    }

    #[test]
    fn only_a_state_is_waited_for() {
        assert_eq!(plan("resourceVersion=5").awaited(), None);
        let wants = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5";
        assert_eq!(plan(wants).awaited(), Some(5));
        assert_eq!(plan("").awaited(), None);
    }

    #[test]
    fn a_lifetime_is_the_clients_or_ours() {
        let s = Duration::from_secs;
        assert_eq!(lifetime(Some(s(290)), 7), s(290));
        assert_eq!(lifetime(Some(s(u64::MAX)), 7), LIFETIME_MAX);
        assert_eq!(lifetime(None, 0), s(1_800));
        assert_eq!(lifetime(None, 1_799), s(3_599));
        assert!((s(1_800)..s(3_600)).contains(&lifetime(None, u64::MAX)));
    }

    #[test]
    fn a_failure_is_an_event_once_the_request_is_understood() {
        let gone = || Refusal::expired("too old resource version: 5 (100)");
        let event = WatchFailure::Event(json!({ "type": "ERROR", "object": gone().to_status() }));
        assert_eq!(failure(WatchPhase::Asking, gone()), WatchFailure::Status(gone()));
        assert_eq!(failure(WatchPhase::Starting, gone()), event);
        assert_eq!(failure(WatchPhase::Streaming, gone()), event);
        assert_eq!((gone().code(), gone().reason), (410, Reason::Expired));
    }

    #[test]
    fn a_cache_that_is_not_ready_starts_no_stream() {
        let busy = || Refusal::too_many_requests("not ready", 1);
        assert_eq!(failure(WatchPhase::Starting, busy()), WatchFailure::Status(busy()));
        assert!(matches!(failure(WatchPhase::Streaming, busy()), WatchFailure::Event(_)));
    }
}
