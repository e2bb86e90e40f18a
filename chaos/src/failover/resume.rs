//! How long a watcher was without news because of a fault: pure.
//!
//! While writes go on, every watcher of all keys hears something all the time. Its longest silence
//! between a fault and the return to calm is the time it took to resume, also if it moved more than
//! once. Time in which no member could get a write through is taken off: nobody can be told of what
//! does not happen.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pace::Ack;
use super::schedule::Kind;

/// A pause between acknowledgements longer than this means that nobody could write.
const STALL_OVER: Duration = Duration::from_millis(150);

/// When a watcher was told of which revision.
pub type Arrival = (Duration, i64);

/// One watcher whose member was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// By what.
    pub kind: Kind,
    /// When.
    pub struck: Duration,
    /// When all was calm again.
    pub settled: Duration,
    /// Which watcher.
    pub watcher: usize,
}

/// How it went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Its longest silence.
    pub raw: Duration,
    /// The longest without the time in which nobody could write.
    pub net: Duration,
}

/// How a watcher went on after a fault; none if it was told nothing more that happened after that.
/// Both lists are in the order of time.
pub fn resumed(hit: &Hit, arrivals: &[Arrival], acks: &[Ack]) -> Option<Resumed> {
    let fresh = acks.iter().filter(|ack| hit.struck <= ack.sent).map(|ack| ack.revision).min()?;
    let after = &arrivals[arrivals.partition_point(|(at, _)| *at <= hit.struck)..];
    let news = after.iter().position(|(_, revision)| fresh <= *revision)?;
    let calm = after.partition_point(|(at, _)| *at <= hit.settled);
    let heard = after.iter().take((news + 1).max(calm + 1));
    let mut last = hit.struck;
    let mut longest = Resumed { raw: Duration::ZERO, net: Duration::ZERO };
    for (at, _) in heard {
        let silence = *at - last;
        longest.raw = longest.raw.max(silence);
        longest.net = longest.net.max(silence.saturating_sub(stalled(last, *at, acks)));
        last = *at;
    }
    Some(longest)
}

/// How much of a span of time nobody could write.
pub fn stalled(from: Duration, upto: Duration, acks: &[Ack]) -> Duration {
    let first = acks.partition_point(|ack| ack.acknowledged <= from);
    let inside = acks[first..].iter().map(|ack| ack.acknowledged).take_while(|at| *at < upto);
    let mut last = from;
    let mut total = Duration::ZERO;
    for at in inside.chain([upto]) {
        total += (at - last).saturating_sub(STALL_OVER);
        last = at;
    }
    total
}

/// The times of many.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// By kind of fault: the net times, and the raw ones.
    by_kind: BTreeMap<Kind, (Vec<Duration>, Vec<Duration>)>,
    /// Watchers that never went on, by kind.
    never: BTreeMap<Kind, usize>,
}

impl Times {
    /// Adds what became of a hit.
    pub fn add(&mut self, kind: Kind, resumed: Option<Resumed>) {
        match resumed {
            Some(resumed) => {
                let (net, raw) = self.by_kind.entry(kind).or_default();
                net.push(resumed.net);
                raw.push(resumed.raw);
            }
            None => *self.never.entry(kind).or_default() += 1,
        }
    }

    /// Adds all of another run.
    pub fn absorb(&mut self, other: Times) {
        for (kind, (net, raw)) in other.by_kind {
            let own = self.by_kind.entry(kind).or_default();
            own.0.extend(net);
            own.1.extend(raw);
        }
        for (kind, count) in other.never {
            *self.never.entry(kind).or_default() += count;
        }
    }

    /// How many went on.
    pub fn len(&self) -> usize {
        self.by_kind.values().map(|(net, _)| net.len()).sum()
    }

    /// Whether nobody was hit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What took longer than its kind of fault may take, and who never went on.
    pub fn over_bound(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for (kind, (net, _)) in &self.by_kind {
            let bound = kind.resumes_within();
            let over: Vec<&Duration> = net.iter().filter(|net| bound < **net).collect();
            if let Some(worst) = over.iter().max() {
                let (count, of) = (over.len(), net.len());
                findings.push(format!("{kind}: {count} of {of} took longer than {bound:?}, up to {worst:?}"));
            }
        }
        findings.extend(self.never.iter().map(|(kind, count)| format!("{kind}: {count} never went on")));
        findings
    }

    /// One line for each kind of fault.
    pub fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:<22} {:>6} {:>6} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8}",
            "fault", "hits", "never", "p50 ms", "p99 ms", "max ms", "raw p50", "raw p99", "raw max"
        )];
        for kind in Kind::ALL {
            let (net, raw) = self.by_kind.get(&kind).cloned().unwrap_or_default();
            let never = self.never.get(&kind).copied().unwrap_or(0);
            if net.len() + never == 0 {
                continue;
            }
            let at = |times: &[Duration], per_mille| quantile(times, per_mille).as_millis();
            lines.push(format!(
                "{kind:<22} {:>6} {never:>6} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8}",
                net.len() + never,
                at(&net, 500),
                at(&net, 990),
                at(&net, 1_000),
                at(&raw, 500),
                at(&raw, 990),
                at(&raw, 1_000),
            ));
        }
        lines.join("\n")
    }
}

/// The smallest time that so many of a thousand do not exceed.
pub fn quantile(times: &[Duration], per_mille: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * per_mille).div_ceil(1_000).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn ack(sent: u64, acknowledged: u64, revision: i64) -> Ack {
        Ack { sent: ms(sent), acknowledged: ms(acknowledged), revision }
    }

    /// One write every 50 ms, acknowledged after 5, for two seconds.
    fn steady() -> Vec<Ack> {
        (0..40).map(|number| ack(number * 50, number * 50 + 5, 2 + number as i64)).collect()
    }

    fn hit(struck: u64, settled: u64) -> Hit {
        Hit { kind: Kind::Kill, struck: ms(struck), settled: ms(settled), watcher: 0 }
    }

    #[test]
    fn what_was_under_way_at_the_fault_is_no_recovery() {
        // Revision 22 was sent at 1,000; the fault is at 1,020. 22 still arrives; 23 is the first after.
        let arrivals = [(ms(1_006), 21), (ms(1_021), 22), (ms(1_400), 23), (ms(1_401), 24)];
        let resumed = resumed(&hit(1_020, 1_100), &arrivals, &steady()).expect("it goes on");
        assert_eq!(resumed, Resumed { raw: ms(379), net: ms(379) });
    }

    #[test]
    fn the_longest_silence_until_calm_counts_and_none_after_it() {
        let arrivals = [(ms(1_100), 23), (ms(1_600), 24), (ms(1_700), 25), (ms(9_000), 26)];
        let resumed = resumed(&hit(1_020, 1_650), &arrivals, &steady()).expect("it goes on");
        assert_eq!(resumed.raw, ms(500));
    }

    #[test]
    fn a_watcher_that_hears_nothing_more_never_goes_on() {
        assert_eq!(resumed(&hit(1_020, 1_500), &[(ms(900), 20), (ms(1_021), 22)], &steady()), None);
        assert_eq!(resumed(&hit(1_020, 1_500), &[], &steady()), None);
    }

    #[test]
    fn the_time_in_which_nobody_could_write_is_taken_off() {
        let acks = [ack(950, 955, 20), ack(1_900, 2_005, 21), ack(2_050, 2_055, 22)];
        let resumed = resumed(&hit(1_000, 2_100), &[(ms(2_300), 21)], &acks).expect("it goes on");
        // 1,005 ms and 245 ms without an acknowledgement, of which 150 each are no stall.
        assert_eq!(resumed, Resumed { raw: ms(1_300), net: ms(1_300 - 855 - 95) });
        assert_eq!(stalled(ms(100), ms(1_900), &steady()), Duration::ZERO);
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=100).map(ms).collect();
        assert_eq!(
            (quantile(&times, 500), quantile(&times, 990), quantile(&times, 1_000)),
            (ms(50), ms(99), ms(100))
        );
        assert_eq!((quantile(&[], 500), quantile(&[ms(7)], 990)), (Duration::ZERO, ms(7)));
    }

    #[test]
    fn times_over_their_bound_and_watchers_that_stay_silent_are_found() {
        let mut times = Times::default();
        let took = |net| Some(Resumed { raw: net, net });
        times.add(Kind::Kill, took(ms(1_999)));
        times.add(Kind::ClientHole, took(ms(4_999)));
        assert_eq!(times.over_bound(), Vec::<String>::new());
        times.add(Kind::Kill, took(ms(2_001)));
        times.add(Kind::Freeze, None);
        assert_eq!(times.over_bound().len(), 2, "{:?}", times.over_bound());
        let mut all = Times::default();
        all.absorb(times);
        assert_eq!((all.len(), all.over_bound().len()), (3, 2));
        assert_eq!(all.table().lines().count(), 4, "{}", all.table());
    }
}
