//! Moments as text: RFC 3339 in UTC, to the millisecond.

const DAY_MS: u64 = 86_400_000;

/// `2026-11-16T07:01:04.250Z` for milliseconds since the Unix epoch.
pub fn rfc3339(unix_ms: u64) -> String {
    let (year, month, day) = civil(unix_ms / DAY_MS);
    let ms = unix_ms % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// Year, month and day of a day since the epoch. Years are counted from March, so that the day a
/// leap year adds is the last of its year; every 400 of them have the same number of days.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_EPOCH: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March have 153 days, and so have the next five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
        ];
        for (unix_ms, text) in rows {
            assert_eq!(rfc3339(unix_ms), text);
        }
    }

    #[test]
    fn each_day_is_one_after_the_day_before() {
        let mut last = civil(0);
        for day in 1..400 * 366 {
            let next = civil(day);
            let (year, month, _) = last;
            let follows = next == (year, month, last.2 + 1)
                || (next == (year, month + 1, 1) && 28 <= last.2)
                || (next == (year + 1, 1, 1) && (month, last.2) == (12, 31));
            assert!(follows, "{last:?} then {next:?}");
            last = next;
        }
    }
}
