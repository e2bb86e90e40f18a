//! The writer: one new key after the other, each with the next number, each outcome counted.
//!
//! A number is sent once. What becomes of it is taken from the client's own words: acknowledged,
//! certainly not done, or unknown; the verdict holds the client to them.

use std::time::Duration;

use meerkat_client::{Client, Error, Fate};
use meerkat_types::Revision;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::checker::Number;
use super::model::{Input, WriteEnd};
use super::teller::Teller;

/// All keys of the demo are below this.
pub const PREFIX: &str = "demo/";

const INTERVAL: Duration = Duration::from_millis(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last write may be tried for.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes until told to stop, and then until one more write is acknowledged: so that what was left
/// unknown lies in the past of what the judgement reads.
pub async fn write(client: Client, teller: Teller, stop: watch::Receiver<bool>) -> Result<(), String> {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop_at: Option<Instant> = None;
    let mut failing = false;
    for number in (0..).map(Number) {
        ticks.tick().await;
        if stop_at.is_none() && *stop.borrow() {
            stop_at = Some(Instant::now());
        }
        teller.tell(Input::Sent(number)).await;
        let put = client.put(key(number), number.0.to_string()).timeout(WRITE_TIMEOUT).await;
        let end = end_of(put.as_ref().map(|response| response.revision));
        // The first of a row of failures stands for all of them.
        if let (Err(error), false) = (&put, failing) {
            let what = if end == WriteEnd::Unknown { "outcome unknown" } else { "not done" };
            teller.say(format!("write {}: {what}: {error}", number.0)).await;
        }
        failing = put.is_err();
        teller.tell(Input::Written { number, end }).await;
        match stop_at {
            Some(_) if matches!(end, WriteEnd::Acknowledged(_)) => return Ok(()),
            Some(since) if since.elapsed() > LAST_WRITE_TIMEOUT => {
                return Err(format!("no write was acknowledged for {LAST_WRITE_TIMEOUT:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn end_of(put: Result<Revision, &Error>) -> WriteEnd {
    match put {
        Ok(revision) => WriteEnd::Acknowledged(revision),
        Err(error) => match error.fate() {
            Fate::Refused | Fate::NotDone => WriteEnd::NotDone,
            _ => WriteEnd::Unknown,
        },
    }
}

/// Keys sort as their numbers do.
pub fn key(number: Number) -> String {
    format!("{PREFIX}{:012}", number.0)
}

/// The number of a key with its value; nothing if they are not the writer's.
pub fn number_of(key: &[u8], value: &[u8]) -> Option<Number> {
    let digits = key.strip_prefix(PREFIX.as_bytes())?;
    let parse = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let number = parse(digits)?;
    (parse(value)? == number).then_some(Number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_again_in_key_and_value() {
        let number = Number(1234);
        assert_eq!(number_of(key(number).as_bytes(), b"1234"), Some(number));
        assert_eq!(number_of(key(number).as_bytes(), b"1235"), None);
        assert_eq!(number_of(b"demo/x", b"1"), None);
        assert_eq!(number_of(b"other/1", b"1"), None);
        assert!(key(Number(9)) < key(Number(10)));
    }
}
