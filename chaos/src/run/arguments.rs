//! Plans as command lines: the fields of a plan are its flags, and their defaults are its full size.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Command};

/// The plan of an empty command line.
pub fn full<Plan: Args>() -> Plan {
    let none: [&str; 0] = [];
    let command = Plan::augment_args(Command::new("full").no_binary_name(true));
    Plan::from_arg_matches(&command.get_matches_from(none)).expect("every flag of a plan has a default")
}

/// A seed from the clock, for a run that does not say; every run prints its seed.
pub fn some_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// `--seconds 10`
pub fn seconds(text: &str) -> Result<Duration, String> {
    number(text).map(Duration::from_secs)
}

/// `--rest-ms 10`
pub fn millis(text: &str) -> Result<Duration, String> {
    number(text).map(Duration::from_millis)
}

/// `--ring-mib 64`, in bytes.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    number(text)?.checked_mul(1 << 20).ok_or_else(|| "more MiB than there are bytes".to_owned())
}

/// `--minutes 1.5`
pub fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(60.0 * minutes).map_err(|_| "not a length".to_owned())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_are_read_and_what_is_none_is_refused() {
        assert_eq!(minutes("1.5"), Ok(Duration::from_secs(90)));
        assert_eq!((seconds("3"), millis("7")), (Ok(Duration::from_secs(3)), Ok(Duration::from_millis(7))));
        assert_eq!(mebibytes("2"), Ok(2 << 20));
        for text in ["", "-1", "x", "NaN"] {
            assert!(minutes(text).is_err() && seconds(text).is_err() && mebibytes(text).is_err(), "{text:?}");
        }
        assert!(mebibytes(&u64::MAX.to_string()).is_err());
    }
}
