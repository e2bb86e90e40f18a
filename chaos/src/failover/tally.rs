//! What one watcher lost, heard twice, or heard out of order: pure counts.
//!
//! The nine properties say whether anything is wrong; these say how much, for clients that are
//! known to lose events.

use std::collections::HashSet;
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use bytes::Bytes;

use crate::checker::watch_history::WatchHistory;
use crate::watch::WatchLog;

/// The sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Watchers.
    pub watchers: usize,
    /// Watchers to which nothing more came before the end.
    pub stopped: usize,
    /// Events that were owed.
    pub owed: usize,
    /// Of these, events that never came.
    pub lost: usize,
    /// Events that came more than once, each time but the first.
    pub repeated: usize,
    /// Events that came after one of a later revision.
    pub reordered: usize,
}

impl Tally {
    /// Of one watcher. `from` is the first revision it is owed.
    pub fn of(log: &WatchLog, from: i64, history: &WatchHistory) -> Self {
        let wanted = history.events().iter().filter(|event| log.spec.wants(event.kind, &event.key));
        let owed: HashSet<(i64, &Bytes)> = wanted
            .filter(|event| from <= event.revision())
            .map(|event| (event.revision(), &event.key))
            .collect();
        let mut heard = HashSet::new();
        let mut tally = Self { watchers: 1, owed: owed.len(), ..Self::default() };
        let mut highest = 0;
        for event in log.events() {
            let revision = event.revision();
            if !heard.insert((revision, &event.key)) {
                tally.repeated += 1;
            } else if revision < highest {
                tally.reordered += 1;
            }
            highest = highest.max(revision);
        }
        tally.lost = owed.iter().filter(|event| !heard.contains(*event)).count();
        let last = owed.iter().map(|(revision, _)| *revision).max().unwrap_or(0);
        tally.stopped = usize::from(highest < last);
        tally
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            watchers: self.watchers + other.watchers,
            stopped: self.stopped + other.stopped,
            owed: self.owed + other.owed,
            lost: self.lost + other.lost,
            repeated: self.repeated + other.repeated,
            reordered: self.reordered + other.reordered,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} watchers ({} stopped for good): of {} events owed {} lost, {} repeated, {} out of order",
            self.watchers, self.stopped, self.owed, self.lost, self.repeated, self.reordered
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{Kind, Reply, Seen, Session, Stored, WatchSpec};

    fn put(revision: i64) -> Seen {
        let now =
            Stored { create_revision: 2, mod_revision: revision, version: revision - 1, ..Stored::default() };
        Seen { kind: Kind::Put, key: Bytes::from_static(b"k"), now, prev: None }
    }

    fn tally(heard: &[i64], from: i64) -> Tally {
        let (history, findings) = WatchHistory::replay((2..7).map(put).collect());
        assert_eq!(findings, Vec::<String>::new());
        let reply = Reply { events: heard.iter().copied().map(put).collect(), ..Reply::default() };
        let mut log = WatchLog::new("w", WatchSpec::of_all().from(from));
        log.sessions.push(Session { replies: vec![reply], ..Session::default() });
        Tally::of(&log, from, &history)
    }

    #[test]
    fn what_is_lost_repeated_and_out_of_order_is_counted_apart() {
        let whole = Tally { watchers: 1, owed: 5, ..Tally::default() };
        assert_eq!(tally(&[2, 3, 4, 5, 6], 2), whole);
        assert_eq!(tally(&[2, 3, 3, 5, 6], 2), Tally { lost: 1, repeated: 1, ..whole });
        assert_eq!(tally(&[2, 4, 3, 5, 6], 2), Tally { reordered: 1, ..whole });
        assert_eq!(tally(&[2, 3], 2), Tally { lost: 3, stopped: 1, ..whole });
        assert_eq!(tally(&[5, 6], 5), Tally { owed: 2, ..whole });
        assert_eq!([tally(&[2, 3], 2), tally(&[5, 6], 5)].into_iter().sum::<Tally>().lost, 3);
    }
}
