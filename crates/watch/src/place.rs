//! Where a new watcher goes.

use crate::history::Horizon;
use meerkat_types::{Revision, WatchStart};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Nothing is owed up to the frontier.
    Synced {
        next: Revision,
    },
    CatchingUp {
        next: Revision,
    },
    /// What is asked for is gone.
    Compacted {
        oldest: Revision,
    },
    /// No revision is below zero.
    BeforeHistory,
}

/// `frontier` is the newest revision that was published to watchers; readers may see more.
pub(crate) fn place(start: WatchStart, horizon: Horizon, frontier: Revision) -> Placement {
    let next = match start {
        WatchStart::Live => horizon.current.next(),
        WatchStart::At(first) if first.get() < 0 => return Placement::BeforeHistory,
        WatchStart::At(first) => match horizon.oldest {
            Some(oldest) if first < oldest => return Placement::Compacted { oldest },
            _ => first,
        },
    };
    if frontier < next { Placement::Synced { next } } else { Placement::CatchingUp { next } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: i64) -> WatchStart {
        WatchStart::At(Revision::new(start))
    }

    fn check(start: WatchStart, expected: Placement) {
        let horizon = Horizon { current: Revision::new(12), oldest: Some(Revision::new(5)) };
        assert_eq!(place(start, horizon, Revision::new(10)), expected, "{start:?}");
    }

    #[test]
    fn every_start_has_its_place() {
        let next = Revision::new;
        check(WatchStart::Live, Placement::Synced { next: next(13) });
        check(at(-1), Placement::BeforeHistory);
        check(at(1), Placement::Compacted { oldest: next(5) });
        check(at(4), Placement::Compacted { oldest: next(5) });
        check(at(5), Placement::CatchingUp { next: next(5) });
        check(at(10), Placement::CatchingUp { next: next(10) });
        // Visible to readers, but not yet published: publishing will tell it.
        check(at(11), Placement::Synced { next: next(11) });
        check(at(100), Placement::Synced { next: next(100) });
    }
}
