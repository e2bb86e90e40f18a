//! Times as objects carry them: RFC 3339, in UTC, whole seconds.
//!
//! The clock is the caller's. What is printed here is read back here as the same second.

use std::fmt;

const DAY_S: i64 = 86_400;

/// Seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads an RFC 3339 time. A fraction of a second is dropped, an offset is taken into account.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let bytes = text.as_bytes();
        if bytes.len() < 20 || !text.is_ascii() {
            return None;
        }
        let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        if marks.iter().any(|(at, mark)| bytes[*at] != *mark) || !matches!(bytes[10], b'T' | b't' | b' ') {
            return None;
        }
        let (year, month, day) = (digits(bytes, 0, 4)?, digits(bytes, 5, 7)?, digits(bytes, 8, 10)?);
        let (hour, minute, second) = (digits(bytes, 11, 13)?, digits(bytes, 14, 16)?, digits(bytes, 17, 19)?);
        let in_range = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        // The sixtieth second is the leap second's.
        if !in_range || 23 < hour || 59 < minute || 60 < second {
            return None;
        }
        let offset_s = offset(fraction_end(bytes)?)?;
        let seconds = days_before(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
        Some(Timestamp(seconds - offset_s))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.div_euclid(DAY_S), self.0.rem_euclid(DAY_S));
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

fn digits(bytes: &[u8], first: usize, end: usize) -> Option<i64> {
    bytes[first..end].iter().try_fold(0, |sum, byte| {
        if byte.is_ascii_digit() { Some(sum * 10 + i64::from(byte - b'0')) } else { None }
    })
}

/// What follows the seconds and their fraction.
fn fraction_end(bytes: &[u8]) -> Option<&[u8]> {
    if bytes[19] != b'.' {
        return Some(&bytes[19..]);
    }
    let digits = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { None } else { Some(&bytes[20 + digits..]) }
}

fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), rest @ ..] if rest.len() == 5 && rest[2] == b':' => {
            let (hours, minutes) = (digits(rest, 0, 2)?, digits(rest, 3, 5)?);
            if 23 < hours || 59 < minutes {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to the date. Years are counted from March, so that the leap day is the last of
/// its year, and eras of 400 years are all of one length.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, in_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let day_of_year = in_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn known_seconds_print_as_their_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp(seconds).to_string(), text);
        }
    }

    #[test]
    fn what_is_printed_is_read_back_as_the_same_second() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..20_000 {
            let time = Timestamp(random.random_range(-60_000_000_000..250_000_000_000));
            assert_eq!(Timestamp::parse(&time.to_string()), Some(time), "{time}");
        }
    }

    #[test]
    fn offsets_and_fractions_are_understood_and_nonsense_is_not() {
        let noon = Timestamp::parse("2024-05-01T12:00:00Z");
        assert!(noon.is_some());
        for same in ["2024-05-01T12:00:00.999999Z", "2024-05-01T14:00:00+02:00", "2024-05-01T11:30:00-00:30"]
        {
            assert_eq!(Timestamp::parse(same), noon, "{same}");
        }
        for bad in [
            "",
            "yesterday",
            "2024-05-01",
            "2024-05-01T12:00:00",
            "2024-05-01T12:00:00.Z",
            "2024-13-01T12:00:00Z",
            "2023-02-29T12:00:00Z",
            "2024-05-01T24:00:00Z",
            "2024-05-01T12:00:00+2:00",
            "2024-05-01T12:00:00Zx",
            "2024-05-0\u{e9}T12:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }
}
