//! The writer: so many puts a second, each sent once, each outcome counted in the client's own words.
//!
//! Now and then it compacts what lies far behind, so that it can be left running.

use std::fmt;
use std::time::{Duration, Instant};

use meerkat_client::{Client, Error, Fate, Revision};
use tokio::time::MissedTickBehavior;

use super::{KEYS, PREFIX, WriteArgs, ending};
use crate::failure::Failure;

const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// History that is kept: at the default pace, more than a quarter of an hour.
const REVISIONS_KEPT: i64 = 20_000;
const WRITES_BETWEEN_COMPACTIONS: u64 = 5_000;

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    acknowledged: u64,
    not_done: u64,
    unknown: u64,
    last: Option<Revision>,
    longest: Duration,
}

impl Tally {
    fn take(&mut self, outcome: Result<Revision, Fate>, took: Duration) {
        self.longest = self.longest.max(took);
        match outcome {
            Ok(revision) => {
                self.acknowledged += 1;
                self.last = Some(revision);
            }
            Err(Fate::Refused | Fate::NotDone) => self.not_done += 1,
            Err(_) => self.unknown += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, not_done, unknown, last, longest } = self;
        write!(f, "acknowledged {acknowledged}, not done {not_done}, unknown {unknown}, ")?;
        match last {
            Some(revision) => write!(f, "at revision {revision}, ")?,
            None => write!(f, "at no revision yet, ")?,
        }
        write!(f, "longest wait {} ms", longest.as_millis())
    }
}

pub async fn run(client: &Client, args: &WriteArgs) -> Result<(), Failure> {
    let ending = ending(args.live.lasting)?;
    tokio::pin!(ending);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tally = Tally::default();
    let mut reported = Instant::now();
    let mut failing = false;
    for number in 0_u64.. {
        tokio::select! {
            () = &mut ending => break,
            _ = ticks.tick() => {}
        }
        let began = Instant::now();
        let put = client.put(key(number), number.to_string()).timeout(WRITE_TIMEOUT).await;
        // The first of a row of failures stands for all of them.
        if let (Err(error), false) = (&put, failing) {
            println!("writer: write {number}: {error}");
        }
        failing = put.is_err();
        tally.take(put.map(|response| response.revision).map_err(|error| error.fate()), began.elapsed());
        if number % WRITES_BETWEEN_COMPACTIONS == WRITES_BETWEEN_COMPACTIONS - 1 {
            compact(client, tally.last).await;
        }
        if args.live.report <= reported.elapsed() {
            println!("writer: {tally}");
            reported = Instant::now();
            tally.longest = Duration::ZERO;
        }
    }
    println!("writer: stopped: {tally}");
    if tally.acknowledged == 0 {
        return Err(Failure::error("nothing was acknowledged; are the members running? (--endpoints)"));
    }
    Ok(())
}

/// Keys sort as the numbers do that were written first.
fn key(number: u64) -> String {
    format!("{PREFIX}{:03}", number % KEYS)
}

/// Another writer may have compacted further: that is as good.
async fn compact(client: &Client, last: Option<Revision>) {
    let Some(until) = last.map(|last| last.get() - REVISIONS_KEPT).filter(|until| 0 < *until) else { return };
    let done: Result<_, Error> = client.compact(Revision::new(until)).timeout(WRITE_TIMEOUT).await;
    if let Err(error) = done {
        println!("writer: compaction at {until}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_keeps_what_is_known_apart_from_what_is_not() {
        let mut tally = Tally::default();
        tally.take(Ok(Revision::new(5)), Duration::from_millis(3));
        tally.take(Err(Fate::NotDone), Duration::from_millis(9));
        tally.take(Err(Fate::Unknown), Duration::from_millis(1));
        let text = tally.to_string();
        assert_eq!(text, "acknowledged 1, not done 1, unknown 1, at revision 5, longest wait 9 ms");
    }

    #[test]
    fn keys_come_round_again() {
        assert_eq!((key(1), key(KEYS + 1)), ("live/001".to_owned(), "live/001".to_owned()));
    }
}
