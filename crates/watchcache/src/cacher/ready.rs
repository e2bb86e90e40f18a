//! What a request meets while the cache is being filled: never an empty answer.
//!
//! What can be read cheaply from the store is read there. What would have every client of a restarting
//! member read everything from it is told to come back, the later the longer it lasts.

use super::filter::Filter;
use meerkat_kubernetes::status::Refusal;
use std::num::NonZeroUsize;

/// Where a request goes that finds the cache not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detour {
    Store,
    ComeBack(Refusal),
}

pub fn get() -> Detour {
    Detour::Store
}

/// `down_ms`: how long the cache has not been ready.
pub fn list(filter: &Filter, limit: Option<NonZeroUsize>, down_ms: u64) -> Detour {
    if limit.is_some() && !filter.has_selector() { Detour::Store } else { Detour::ComeBack(refusal(down_ms)) }
}

pub fn watch(down_ms: u64) -> Detour {
    Detour::ComeBack(refusal(down_ms))
}

pub(super) fn refusal(down_ms: u64) -> Refusal {
    Refusal::too_many_requests("storage is (re)initializing", retry_after_s(down_ms))
}

/// A second at first, ten after forty seconds, never more than thirty.
pub fn retry_after_s(down_ms: u64) -> u32 {
    let down_s = down_ms as f64 / 1_000.0;
    (0.06 * down_s).exp().clamp(1.0, 30.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::filter::{Scope, Term, Test};

    #[test]
    fn the_longer_it_lasts_the_later_to_come_back() {
        let rows = [(0, 1), (10_000, 1), (12_000, 2), (40_000, 11), (60_000, 30), (u64::MAX, 30)];
        for (down_ms, expected) in rows {
            assert_eq!(retry_after_s(down_ms), expected, "after {down_ms} ms");
        }
    }

    #[test]
    fn only_what_the_store_answers_cheaply_goes_there() {
        let selective = Filter::new(Scope::all(), vec![Term::label("a", Test::Exists)]);
        let one = NonZeroUsize::new(1);
        assert_eq!(list(&Filter::default(), one, 0), Detour::Store);
        for detour in [list(&Filter::default(), None, 0), list(&selective, one, 0), watch(0)] {
            let Detour::ComeBack(refusal) = detour else { panic!("the store must not be asked") };
            assert_eq!((refusal.code(), refusal.retry_after_s), (429, Some(1)));
        }
        assert_eq!(get(), Detour::Store);
    }
}
