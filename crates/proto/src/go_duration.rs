//! Durations as Go writes them (`1h2m3.5s`, `250ms`), since etcd's flags and outputs do.
//!
//! Reading accepts what Go's parser accepts but for negative values, which no flag of ours takes.
//! Writing gives the text Go gives for the same number of nanoseconds.

use std::time::Duration;

const UNITS_NS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60.0 * 1e9),
    ("h", 3600.0 * 1e9),
];

/// Reads a duration; the error is the reason in Go's words.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(format!("time: invalid duration {text:?}"));
    }
    let mut rest = text;
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let number: f64 = number.parse().map_err(|_| format!("time: invalid duration {text:?}"))?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let known = UNITS_NS.iter().find(|(name, _)| *name == unit);
        let (_, scale) = known.ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        nanoseconds += number * scale;
        rest = tail;
    }
    // Above i64::MAX Go refuses too: 292 years.
    if nanoseconds >= i64::MAX as f64 {
        return Err(format!("time: invalid duration {text:?}"));
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

pub fn format(duration: Duration) -> String {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match nanoseconds {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => decimal(nanoseconds, 3, "µs"),
        1_000_000..1_000_000_000 => decimal(nanoseconds, 6, "ms"),
        _ => clock(nanoseconds),
    }
}

fn clock(nanoseconds: u64) -> String {
    const MINUTE_NS: u64 = 60_000_000_000;
    let (minutes, rest) = (nanoseconds / MINUTE_NS, nanoseconds % MINUTE_NS);
    let seconds = decimal(rest, 9, "s");
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

/// `value / 10^digits` with no trailing zeros, then the unit.
fn decimal(value: u64, digits: usize, unit: &str) -> String {
    let scale = 10_u64.pow(digits as u32);
    let fraction = format!("{:0digits$}", value % scale);
    match fraction.trim_end_matches('0') {
        "" => format!("{}{unit}", value / scale),
        fraction => format!("{}.{fraction}{unit}", value / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_prints_as_in_go() {
        let rows = [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (2_231_764, "2.231764ms"),
            (5_000_445_303, "5.000445303s"),
            (60_000_000_000, "1m0s"),
            (5_400_000_000_000, "1h30m0s"),
        ];
        for (nanoseconds, text) in rows {
            assert_eq!(format(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn a_duration_is_a_row_of_numbers_with_units() {
        let rows =
            [("5s", 5_000), ("1m30s", 90_000), ("1.5s", 1_500), ("250ms", 250), ("0", 0), ("2h", 7_200_000)];
        for (text, milliseconds) in rows {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "for {text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_in_go_words() {
        assert_eq!(parse("1x"), Err("time: unknown unit \"x\" in duration \"1x\"".to_owned()));
        assert_eq!(parse("5"), Err("time: missing unit in duration \"5\"".to_owned()));
        assert_eq!(parse(""), Err("time: invalid duration \"\"".to_owned()));
        assert_eq!(parse("s"), Err("time: invalid duration \"s\"".to_owned()));
    }
}
