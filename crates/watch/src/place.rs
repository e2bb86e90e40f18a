//! Where a new watcher goes.

use crate::history::Horizon;
use meerkat_types::{Revision, WatchStart};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
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
pub(crate) fn place(start: WatchStart, horizon: Horizon, frontier: Revision) -> Place {
    let next = match start {
        WatchStart::Live => horizon.current.next(),
        WatchStart::At(first) if first.get() < 0 => return Place::BeforeHistory,
        WatchStart::At(first) => match horizon.oldest {
            Some(oldest) if first < oldest => return Place::Compacted { oldest },
            _ => first,
        },
    };
    if frontier < next { Place::Synced { next } } else { Place::CatchingUp { next } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: i64) -> WatchStart {
        WatchStart::At(Revision::new(start))
    }

    fn check(start: WatchStart, expected: Place) {
        let horizon = Horizon { current: Revision::new(12), oldest: Some(Revision::new(5)) };
        assert_eq!(place(start, horizon, Revision::new(10)), expected, "{start:?}");
    }

    #[test]
    fn every_start_has_its_place() {
        let next = Revision::new;
        check(WatchStart::Live, Place::Synced { next: next(13) });
        check(at(-1), Place::BeforeHistory);
        check(at(1), Place::Compacted { oldest: next(5) });
        check(at(4), Place::Compacted { oldest: next(5) });
        check(at(5), Place::CatchingUp { next: next(5) });
        check(at(10), Place::CatchingUp { next: next(10) });
        // Visible to readers, but not yet published: publishing will tell it.
        check(at(11), Place::Synced { next: next(11) });
        check(at(100), Place::Synced { next: next(100) });
    }
}
