//! Points in time as objects carry them: RFC 3339, to the second or to the microsecond, and the short ages
//! that people read.
//!
//! There is no clock here. Whoever asks brings the time along.

use std::fmt;

const DAY_S: i64 = 86_400;
/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write, and 0001-01-01T00:00:00Z, the first.
const LAST_S: i64 = 253_402_300_799;
const FIRST_S: i64 = -62_135_596_800;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since 1970.
    pub seconds: i64,
    /// Below a thousand million.
    pub nanos: u32,
}

impl Timestamp {
    /// Nothing outside of the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Timestamp> {
        ((FIRST_S..=LAST_S).contains(&seconds) && nanos < 1_000_000_000)
            .then_some(Timestamp { seconds, nanos })
    }

    /// With a fraction or without, in UTC or at an offset. A leap second is the one after it.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits.iter().all(u8::is_ascii_digit).then(|| text.get(from..to)?.parse().ok())?
        };
        let mark = |at: usize, marks: &[u8]| bytes.get(at).is_some_and(|byte| marks.contains(byte));
        let form = mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":");
        if !form {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let sane = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        if !sane || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (nanos, zone) = fraction(text.get(19..)?)?;
        let local = days_from_civil(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
        Timestamp::new(local - offset_s(zone)?, nanos)
    }

    /// `2024-01-31T12:00:00Z`
    pub fn to_seconds(self) -> Seconds {
        Seconds(self)
    }

    /// `2024-01-31T12:00:00.000000Z`
    pub fn to_micros(self) -> Micros {
        Micros(self)
    }

    /// How long ago, in whole seconds.
    pub fn age_s(self, now: Timestamp) -> i64 {
        let before = i64::from(now.nanos < self.nanos);
        now.seconds - self.seconds - before
    }
}

pub struct Seconds(Timestamp);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_to_second(self.0.seconds, f)?;
        f.write_str("Z")
    }
}

pub struct Micros(Timestamp);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_to_second(self.0.seconds, f)?;
        write!(f, ".{:06}Z", self.0.nanos / 1000)
    }
}

fn write_to_second(seconds: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_S));
    let of_day = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The nanoseconds after the seconds, and what follows them.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let nanos = format!("{:0<9.9}", &rest[..digits]).parse().ok()?;
    Some((nanos, &rest[digits..]))
}

fn offset_s(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let sign = match zone.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let two = |text: &str, most: i64| -> Option<i64> {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok())?.filter(|number| *number <= most)
    };
    Some(sign * (two(hours, 23)? * 3600 + two(minutes, 59)? * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01. The year is taken to begin in March, so that the leap day is its last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// `5s`, `4m10s`, `3h`, `12d`: at most two units, fewer as the age grows.
pub fn human_age(seconds: i64) -> String {
    let pair = |large: i64, small: i64, units: [char; 2]| {
        let [one, other] = units;
        if small == 0 { format!("{large}{one}") } else { format!("{large}{one}{small}{other}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / DAY_S);
    match seconds {
        // Clocks of two machines may differ a little.
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, seconds % 60, ['m', 's']),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, minutes % 60, ['h', 'm']),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, hours % 24, ['d', 'h']),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, days % 365, ['y', 'd']),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn known_instants() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2000-02-28T23:59:59Z", 951_782_399, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("2000-02-29T12:00:00Z", 951_825_600, 0),
            ("2024-01-31T12:00:00+02:00", 1_706_695_200, 0),
            ("2024-01-31T09:30:00-00:30", 1_706_695_200, 0),
            ("2024-01-31T10:00:00.123456Z", 1_706_695_200, 123_456_000),
            ("2024-01-31T10:00:00.1234567899Z", 1_706_695_200, 123_456_789),
            ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400, 0),
            ("0001-01-01T00:00:00Z", FIRST_S, 0),
            ("9999-12-31T23:59:59Z", LAST_S, 0),
        ] {
            assert_eq!(Timestamp::parse(text), Some(Timestamp { seconds, nanos }), "{text}");
        }
    }

    #[test]
    fn what_is_no_instant() {
        for text in [
            "",
            "yesterday",
            "2024-01-31",
            "2024-01-31T12:00:00",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-31T24:00:00Z",
            "2024-01-31T12:00:00.Z",
            "2024-01-31T12:00:00+2:00",
            "2024-01-31T12:00:61Z",
            "2024-01-31T12:00:00Zx",
            "2024-05-0\u{e9}T12:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "２０２４-01-31T12:00:00Z",
            "+024-01-31T12:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn written_and_read_again() {
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..20_000 {
            let micros: u32 = random.random_range(0..1_000_000);
            let time =
                Timestamp::new(random.random_range(FIRST_S..=LAST_S), micros * 1000).expect("in range");
            assert_eq!(Timestamp::parse(&time.to_micros().to_string()), Some(time));
            let second = Timestamp { nanos: 0, ..time };
            assert_eq!(Timestamp::parse(&time.to_seconds().to_string()), Some(second));
        }
    }

    #[test]
    fn ages_as_people_read_them() {
        for (seconds, age) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
            (LAST_S, "8035y"),
        ] {
            assert_eq!(human_age(seconds), age, "{seconds}");
        }
    }
}
