//! Points in time as objects carry them: RFC 3339, to the second or to the microsecond, and the short ages
//! that people read.
//!
//! There is no clock here. Whoever asks brings the time along.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use std::fmt;
use std::str::FromStr;

const DAY_S: i64 = 86_400;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
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
        let mark = |at: usize, marks: &[u8]| bytes.get(at).is_some_and(|byte| marks.contains(byte));
        let form = mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":");
        if !form {
            return None;
        }
        let two = |at: usize| number::<i8>(text.get(at..at + 2)?);
        let date = Date::new(number(text.get(..4)?)?, two(5)?, two(8)?).ok()?;
        let second = two(17)?;
        let leap = i64::from(second == 60);
        let second = if second == 60 { 59 } else { second };
        let time = Time::new(two(11)?, two(14)?, second, 0).ok()?;
        let (nanos, zone) = fraction(text.get(19..)?)?;
        let local = date.to_datetime(time).duration_since(EPOCH).as_secs() + leap;
        Timestamp::new(local - offset_s(zone)?, nanos)
    }

    /// The date and the time of day, in UTC.
    pub fn civil(self) -> DateTime {
        let below = SignedDuration::from_nanos(i64::from(self.nanos));
        EPOCH.saturating_add(SignedDuration::from_secs(self.seconds).saturating_add(below))
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
        write!(f, "{:.0}Z", self.0.civil())
    }
}

pub struct Micros(Timestamp);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}Z", self.0.civil())
    }
}

/// Digits and nothing else.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
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
    let two = |text: &str, most: i64| number::<i64>(text).filter(|it| text.len() == 2 && *it <= most);
    Some(sign * (two(hours, 23)? * 3600 + two(minutes, 59)? * 60))
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
