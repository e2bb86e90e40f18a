//! What the metadata of a watch stream asks for, beyond etcd. Nothing here changes what a client
//! that sends none of it sees.
//!
//! - `meerkat-watch-slow`: `wait`, `coalesce` or `cancel`, for clients that read too slowly.
//! - `meerkat-watch-progress-interval`: a duration of a second or more, for watchers that want
//!   progress marks.

use http::HeaderMap;
use meerkat_proto::go_duration;
use meerkat_watch::{SlowPolicy, StreamOptions};
use std::time::Duration;

const SLOW: &str = "meerkat-watch-slow";
const PROGRESS_INTERVAL: &str = "meerkat-watch-progress-interval";
const HAS_LEADER: &str = "hasleader";

/// More often than this no client needs to hear that nothing happened.
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchOptions {
    pub(super) slow: SlowPolicy,
    pub(super) progress_interval: Duration,
    pub(super) require_leader: bool,
}

impl WatchOptions {
    pub(super) fn for_stream(self, client: &str) -> StreamOptions {
        StreamOptions { client: client.into(), slow: self.slow, require_leader: self.require_leader }
    }
}

/// The error says what is wrong and what would be right.
pub(super) fn read(metadata: &HeaderMap, progress_interval: Duration) -> Result<WatchOptions, String> {
    let text = |name: &'static str| {
        metadata.get(name).map(|value| value.to_str().map_err(|_| format!("{name} is not plain text")))
    };
    let slow = match text(SLOW).transpose()? {
        None | Some("wait") => SlowPolicy::Wait,
        Some("coalesce") => SlowPolicy::Coalesce,
        Some("cancel") => SlowPolicy::Cancel,
        Some(other) => return Err(format!("{SLOW} is {other:?}; use wait, coalesce or cancel")),
    };
    let progress_interval = match text(PROGRESS_INTERVAL).transpose()? {
        None => progress_interval,
        Some(text) => match go_duration::parse(text) {
            Ok(interval) if PROGRESS_INTERVAL_MIN <= interval => interval,
            Ok(_) | Err(_) => {
                return Err(format!("{PROGRESS_INTERVAL} is {text:?}; use a duration of 1s or more"));
            }
        },
    };
    let require_leader = metadata.get(HAS_LEADER).is_some_and(|value| value == "true");
    Ok(WatchOptions { slow, progress_interval, require_leader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(name: &'static str, value: &'static str, expected: Result<WatchOptions, &str>) {
        let metadata =
            HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_static(value))]);
        let found = read(&metadata, Duration::from_secs(600));
        assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text));
    }

    #[test]
    fn metadata_is_taken_or_refused_by_name() {
        let plain = WatchOptions {
            slow: SlowPolicy::Wait,
            progress_interval: Duration::from_secs(600),
            require_leader: false,
        };
        check("other", "whatever", Ok(plain));
        check(SLOW, "coalesce", Ok(WatchOptions { slow: SlowPolicy::Coalesce, ..plain }));
        check(SLOW, "drop", Err("meerkat-watch-slow is \"drop\"; use wait, coalesce or cancel"));
        let often = WatchOptions { progress_interval: Duration::from_secs(1), ..plain };
        check(PROGRESS_INTERVAL, "1s", Ok(often));
        let refused = "meerkat-watch-progress-interval is \"10ms\"; use a duration of 1s or more";
        check(PROGRESS_INTERVAL, "10ms", Err(refused));
        check(HAS_LEADER, "true", Ok(WatchOptions { require_leader: true, ..plain }));
    }
}
