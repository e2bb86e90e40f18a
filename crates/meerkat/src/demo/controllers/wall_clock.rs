//! The time now, as objects carry it.

use std::time::{SystemTime, UNIX_EPOCH};

use meerkat_kubernetes::timestamp::Timestamp;

/// To the second.
pub fn seconds() -> String {
    now().to_seconds().to_string()
}

/// To the microsecond, for leases.
pub fn micro_time() -> String {
    now().to_micros().to_string()
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    Timestamp::new(seconds, since.subsec_nanos()).unwrap_or(Timestamp { seconds: 0, nanos: 0 })
}
