//! How long a call may take, if its client says so in `Grpc-Timeout`: a whole number and a unit, as gRPC
//! writes it (`5S`, `100m`).

use crate::grpc::status;
use http::HeaderMap;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

const HEADER: &str = "grpc-timeout";

/// When the call is to end, if it is.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get(HEADER).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match parse(&text) {
        Some(Wanted::Endless) => Ok(None),
        // What is beyond every clock is no end.
        Some(Wanted::Within(time)) => Ok(Instant::now().checked_add(time)),
        None => Err(status::bad_timeout(&text)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Zero, to etcd's gateway.
    Endless,
    Within(Duration),
}

fn parse(text: &str) -> Option<Wanted> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "H" => Duration::from_secs(60 * 60),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    let number: i64 = number.parse().ok()?;
    if number == 0 {
        return Some(Wanted::Endless);
    }
    // Before it has begun it is over.
    let Ok(number) = u64::try_from(number) else { return Some(Wanted::Within(Duration::ZERO)) };
    let nanoseconds = u128::from(number) * unit.as_nanos();
    Some(Wanted::Within(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_and_nothing_else() {
        let within = |time| Some(Wanted::Within(time));
        for (text, expected) in [
            ("5S", within(Duration::from_secs(5))),
            ("100m", within(Duration::from_millis(100))),
            ("2H", within(Duration::from_secs(7_200))),
            ("3M", within(Duration::from_secs(180))),
            ("7u", within(Duration::from_micros(7))),
            ("1n", within(Duration::from_nanos(1))),
            ("+1S", within(Duration::from_secs(1))),
            ("-1S", within(Duration::ZERO)),
            ("9223372036854775807H", within(Duration::from_nanos(u64::MAX))),
            ("0S", Some(Wanted::Endless)),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("1.5S", None),
            ("5 S", None),
            ("99999999999999999999S", None),
            ("5é", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
