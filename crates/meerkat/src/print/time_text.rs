//! Moments as text: RFC 3339 in UTC, to the millisecond.

use jiff::Timestamp;

/// `2026-11-16T07:01:04.250Z` for milliseconds since the Unix epoch.
pub fn rfc3339(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_text() {
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599_250, "2024-12-31T23:59:59.250Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            // The last that can be written.
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ];
        for (unix_ms, text) in rows {
            assert_eq!(rfc3339(unix_ms), text);
        }
    }
}
