//! Which endpoint next: pure. Time and chance are handed in.
//!
//! Always true: while one endpoint is healthy, none that is not is chosen, unless the caller asked
//! to avoid the healthy one. The last good endpoint is kept as long as it is healthy; when it is
//! lost, the next is drawn at random, so that a thousand clients of one lost member do not all run
//! to the same neighbour.

use std::time::{Duration, Instant};

/// One endpoint of a client, for the client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointId(pub(crate) u64);

/// How an endpoint stands, as far as its member has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It answers and knows a leader.
    Healthy,
    /// Nothing is known of it yet.
    Untried,
    /// It answers, but is cut off from a majority: good for local reads only.
    NoLeader,
    /// It does not answer. It is tried again when its pause is over.
    Ejected,
}

/// What the picker knows of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    pub(crate) standing: Standing,
    /// Failures since it was last healthy; they make the pause grow.
    pub(crate) failures: u32,
    /// When an ejected endpoint is worth another try.
    pub(crate) back_at: Option<Instant>,
}

/// The first pause of an ejected endpoint; doubled for each failure after that.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// No pause is longer. A member that comes back is used again within this time.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Health {
    pub(crate) const UNTRIED: Health = Health { standing: Standing::Untried, failures: 0, back_at: None };

    pub(crate) fn good() -> Health {
        Health { standing: Standing::Healthy, failures: 0, back_at: None }
    }

    pub(crate) fn no_leader(self) -> Health {
        Health { standing: Standing::NoLeader, failures: self.failures, back_at: None }
    }

    /// Ejected for a pause that grows, drawn at random between half of its bound and its bound.
    pub(crate) fn failed(self, now: Instant, random: u64) -> Health {
        let failures = self.failures.saturating_add(1);
        let bound = PAUSE_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(PAUSE_MAX);
        let back_at = now + bound / 2 + fraction(bound / 2, random);
        Health { standing: Standing::Ejected, failures, back_at: Some(back_at) }
    }
}

/// A random part of `whole`.
pub(crate) fn fraction(whole: Duration, random: u64) -> Duration {
    // 2^32 steps are fine enough for any pause.
    let part = u32::try_from(random >> 32).unwrap_or(u32::MAX);
    whole.mul_f64(f64::from(part) / f64::from(u32::MAX))
}

/// The endpoint to use now. `None` only when there are no endpoints.
pub(crate) fn choose(
    endpoints: &[(EndpointId, Health)],
    last_good: Option<EndpointId>,
    avoid: Option<EndpointId>,
    now: Instant,
    random: u64,
) -> Option<EndpointId> {
    let others = endpoints.iter().filter(|(id, _)| Some(*id) != avoid);
    let best = others.clone().map(|(_, health)| rank(health, now)).min();
    let Some(best) = best else {
        // The one to avoid is the only one.
        return endpoints.first().map(|(id, _)| *id);
    };
    let mut candidates: Vec<_> = others.filter(|(_, health)| rank(health, now) == best).collect();
    if let Some(last) = candidates.iter().find(|(id, _)| Some(*id) == last_good) {
        return Some(last.0);
    }
    if best == Rank::Paused {
        // None is due: the one that is due first.
        candidates.sort_by_key(|(_, health)| health.back_at);
        return candidates.first().map(|(id, _)| *id);
    }
    let count = u64::try_from(candidates.len()).unwrap_or(1).max(1);
    let index = usize::try_from(random % count).unwrap_or(0);
    candidates.get(index).map(|(id, _)| *id)
}

/// Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Healthy,
    Untried,
    NoLeader,
    Due,
    Paused,
}

fn rank(health: &Health, now: Instant) -> Rank {
    match health.standing {
        Standing::Healthy => Rank::Healthy,
        Standing::Untried => Rank::Untried,
        Standing::NoLeader => Rank::NoLeader,
        Standing::Ejected if health.back_at.is_none_or(|back| back <= now) => Rank::Due,
        Standing::Ejected => Rank::Paused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);
    const C: EndpointId = EndpointId(3);

    fn with(standing: Standing) -> Health {
        Health { standing, failures: 0, back_at: None }
    }

    fn pick(
        healths: [Health; 3],
        last: Option<EndpointId>,
        avoid: Option<EndpointId>,
        random: u64,
    ) -> EndpointId {
        let now = Instant::now();
        let endpoints: Vec<_> = [A, B, C].into_iter().zip(healths).collect();
        choose(&endpoints, last, avoid, now, random).expect("three endpoints")
    }

    #[test]
    fn the_last_good_one_is_kept_while_it_is_healthy() {
        let healthy = with(Standing::Healthy);
        for random in 0..9 {
            assert_eq!(pick([healthy; 3], Some(B), None, random), B);
        }
        let lost = [healthy, with(Standing::NoLeader), healthy];
        assert_ne!(pick(lost, Some(B), None, 1), B);
    }

    #[test]
    fn a_lost_one_is_followed_by_a_random_healthy_one() {
        let healths = [with(Standing::Healthy), with(Standing::Ejected), with(Standing::Healthy)];
        let mut drawn = [0; 4];
        for random in 0..100 {
            drawn[usize::try_from(pick(healths, Some(B), None, random).0).expect("small")] += 1;
        }
        assert_eq!(drawn, [0, 50, 0, 50]);
    }

    #[test]
    fn the_order_is_healthy_then_untried_then_leaderless_then_due_then_paused() {
        let later = Instant::now() + Duration::from_secs(60);
        let paused = Health { standing: Standing::Ejected, failures: 1, back_at: Some(later) };
        let ladder = [
            with(Standing::Healthy),
            with(Standing::Untried),
            with(Standing::NoLeader),
            with(Standing::Ejected),
            paused,
        ];
        for (better, rest) in ladder.iter().zip(1..) {
            for worse in &ladder[rest..] {
                for random in 0..3 {
                    assert_eq!(pick([*worse, *worse, *better], Some(A), None, random), C);
                }
            }
        }
    }

    #[test]
    fn when_all_are_paused_the_first_to_be_due_is_chosen() {
        let now = Instant::now();
        let due = |seconds| Health {
            standing: Standing::Ejected,
            failures: 3,
            back_at: Some(now + Duration::from_secs(seconds)),
        };
        assert_eq!(pick([due(30), due(10), due(20)], None, None, 7), B);
    }

    #[test]
    fn one_to_avoid_is_chosen_only_if_it_is_alone() {
        let healthy = with(Standing::Healthy);
        let ejected = with(Standing::Ejected);
        for random in 0..9 {
            assert_ne!(pick([healthy, ejected, ejected], Some(A), Some(A), random), A);
        }
        assert_eq!(choose(&[(A, healthy)], None, Some(A), Instant::now(), 0), Some(A));
        assert_eq!(choose(&[], None, None, Instant::now(), 0), None);
    }

    #[test]
    fn pauses_grow_up_to_their_bound_and_are_never_shorter_than_half() {
        let now = Instant::now();
        let mut health = Health::good();
        let mut bound = PAUSE_FIRST;
        for _ in 0..40 {
            let shortest = health.failed(now, 0).back_at.expect("a pause") - now;
            let longest = health.failed(now, u64::MAX).back_at.expect("a pause") - now;
            assert_eq!(shortest, bound / 2);
            assert_eq!(longest, bound);
            health = health.failed(now, 0);
            bound = (bound * 2).min(PAUSE_MAX);
        }
        assert_eq!(Health::good().failures, 0, "one good answer forgets them all");
    }
}
