//! Whether what a process holds stays level over a long run.
//!
//! Each life of a process is judged by itself: a restart is no shrinking, and what a life has gathered
//! before it is warm is no leak. Two questions are asked of the rest. Is the last third of it above the
//! middle third, by the medians? And does it rise throughout, by the median of the slopes between
//! samples? Peaks move neither. The second bound is twice the first, because it is about twice the
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::trace::Held;

/// How much more is still level: a share of the earlier amount, and a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Of what was held before.
    pub share: f64,
    /// Beyond that.
    pub constant: f64,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The first part of a life that is not judged.
    pub warm_up: Duration,
    /// A life must last so long beyond that to be judged.
    pub at_least: Duration,
    /// For resident memory, in bytes.
    pub memory: Bound,
    /// For open file descriptors.
    pub files: Bound,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_secs(300),
            at_least: Duration::from_secs(300),
            memory: Bound { share: 0.10, constant: 16.0 * 1024.0 * 1024.0 },
            files: Bound { share: 0.10, constant: 16.0 },
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Samples that were judged; of lives that were long enough.
    pub judged: u64,
    /// What is not level.
    pub findings: Vec<String>,
    /// Each life in a line, for people.
    pub levels: Vec<String>,
}

/// Fewer samples than this say nothing about thirds.
const SAMPLES_MIN: usize = 12;
/// Pairs grow with the square; this many samples make slopes enough.
const SLOPE_SAMPLES: usize = 150;

/// Judges all lives of all processes.
pub fn check(held: &[Held], demand: &Demand) -> Judgement {
    let mut lives: BTreeMap<(usize, u32), Vec<&Held>> = BTreeMap::new();
    // A process that has ended and was not yet waited for holds nothing.
    for one in held.iter().filter(|one| 0 < one.rss_bytes) {
        lives.entry((one.member, one.pid)).or_default().push(one);
    }
    let mut judgement = Judgement::default();
    for ((member, pid), life) in lives {
        let Some(warm) = warm_part(&life, demand) else { continue };
        judgement.judged += warm.len() as u64;
        let who = format!("member {member} (process {pid})");
        let series = |pick: fn(&Held) -> u64| -> Vec<(f64, f64)> {
            warm.iter().map(|one| (one.at_us as f64 / 1e6, pick(one) as f64)).collect()
        };
        for (what, unit, per_unit, series, bound) in [
            ("memory", "MiB", 1024.0 * 1024.0, series(|one| one.rss_bytes), demand.memory),
            ("file descriptors", "open", 1.0, series(|one| one.files), demand.files),
        ] {
            let trend = Trend::of(&series);
            let told = trend.tell(&format!("{who}: {what}"), unit, per_unit);
            if trend.rises(bound) {
                judgement.findings.push(told.clone());
            }
            judgement.levels.push(told);
        }
    }
    judgement
}

fn warm_part<'a>(life: &[&'a Held], demand: &Demand) -> Option<Vec<&'a Held>> {
    let born = life.first()?.at_us;
    let warm_up = u64::try_from(demand.warm_up.as_micros()).unwrap_or(u64::MAX);
    let warm: Vec<&Held> =
        life.iter().copied().filter(|one| born.saturating_add(warm_up) <= one.at_us).collect();
    let lasted = Duration::from_micros(warm.last()?.at_us - warm.first()?.at_us);
    (demand.at_least <= lasted && SAMPLES_MIN <= warm.len()).then_some(warm)
}

/// A series in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trend {
    middle: f64,
    last: f64,
    /// What the median slope adds up to over the whole series.
    growth: f64,
    lasted_s: f64,
}

impl Trend {
    /// Of a series in order of time that is not empty.
    fn of(series: &[(f64, f64)]) -> Self {
        let third = series.len() / 3;
        let amounts = |part: &[(f64, f64)]| median(part.iter().map(|(_, amount)| *amount).collect());
        let lasted_s = series[series.len() - 1].0 - series[0].0;
        Self {
            middle: amounts(&series[third..series.len() - third]),
            last: amounts(&series[series.len() - third..]),
            growth: slope(series) * lasted_s,
            lasted_s,
        }
    }

    fn rises(&self, bound: Bound) -> bool {
        let room = self.middle * bound.share + bound.constant;
        room < self.last - self.middle || 2.0 * room < self.growth
    }

    fn tell(&self, what: &str, unit: &str, per_unit: f64) -> String {
        format!(
            "{what}: {:.1} {unit} in the middle third, {:.1} in the last; {:+.1} by its slope over {:.0} s",
            self.middle / per_unit,
            self.last / per_unit,
            self.growth / per_unit,
            self.lasted_s
        )
    }
}

/// The median of the slopes between all pairs of samples: half of these could be anything.
fn slope(series: &[(f64, f64)]) -> f64 {
    let step = series.len().div_ceil(SLOPE_SAMPLES);
    let thin: Vec<(f64, f64)> = series.iter().step_by(step).copied().collect();
    let mut slopes = Vec::with_capacity(thin.len() * thin.len() / 2);
    for (index, earlier) in thin.iter().enumerate() {
        let later = thin[index + 1..].iter().filter(|later| earlier.0 < later.0);
        slopes.extend(later.map(|later| (later.1 - earlier.1) / (later.0 - earlier.0)));
    }
    median(slopes)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    /// Half an hour, a sample a second: memory in MiB and files by the second.
    fn life(member: usize, pid: u32, memory: fn(f64) -> f64, files: fn(f64) -> f64) -> Vec<Held> {
        let held = |second: u64| Held {
            at_us: second * 1_000_000,
            member,
            rss_bytes: (memory(second as f64) * MIB) as u64,
            files: files(second as f64) as u64,
            pid,
        };
        (0..1_800).map(held).collect()
    }

    fn findings(memory: fn(f64) -> f64, files: fn(f64) -> f64) -> Vec<String> {
        let judgement = check(&life(0, 7, memory, files), &Demand::default());
        assert_eq!(judgement.judged, 1_500);
        judgement.findings
    }

    #[test]
    fn level_series_with_noise_waves_peaks_and_a_warm_start_are_flat() {
        let level: [fn(f64) -> f64; 5] = [
            |_| 80.0,
            |at| 80.0 + (at * 7.0).sin() * 12.0,
            |at| if (at as u64).is_multiple_of(10) { 300.0 } else { 80.0 },
            |at| 80.0 - 60.0 * (-at / 60.0).exp(),
            |at| 120.0 - at / 60.0,
        ];
        for (index, memory) in level.into_iter().enumerate() {
            assert_eq!(findings(memory, |_| 60.0), Vec::<String>::new(), "series {index}");
        }
    }

    #[test]
    fn slow_leaks_and_late_steps_are_found() {
        let leaking: [fn(f64) -> f64; 3] = [
            // 100 MiB in half an hour.
            |at| 80.0 + at / 18.0,
            // The same under noise.
            |at| 80.0 + at / 18.0 + (at * 7.0).sin() * 12.0,
            |at| if at < 1_300.0 { 80.0 } else { 120.0 },
        ];
        for (index, memory) in leaking.into_iter().enumerate() {
            let found = findings(memory, |_| 60.0);
            assert!(found.len() == 1 && found[0].contains("memory"), "series {index}: {found:?}");
        }
    }

    #[test]
    fn descriptors_that_do_not_come_back_are_found() {
        let found = findings(|_| 80.0, |at| 60.0 + at / 20.0);
        assert!(found.len() == 1 && found[0].contains("file descriptors"), "{found:?}");
        assert!(findings(|_| 80.0, |at| 60.0 + (at * 3.0).sin() * 30.0).is_empty());
    }

    #[test]
    fn a_restart_is_judged_as_two_lives_and_a_short_life_not_at_all() {
        let mut held = life(0, 7, |_| 200.0, |_| 60.0);
        held.truncate(200);
        let short = check(&held, &Demand::default());
        assert_eq!((short.judged, short.findings.len()), (0, 0));
        // The second life is larger than the first, and level.
        held = life(0, 7, |_| 80.0, |_| 60.0);
        for one in held.iter_mut().skip(900) {
            one.pid = 8;
            one.rss_bytes *= 2;
        }
        let both = check(&held, &Demand::default());
        assert_eq!((both.findings.len(), both.levels.len()), (0, 4), "{both:?}");
    }

    #[test]
    fn one_leaking_member_among_three_is_named() {
        let mut held = life(0, 7, |_| 80.0, |_| 60.0);
        held.extend(life(1, 8, |at| 80.0 + at / 18.0, |_| 60.0));
        held.extend(life(2, 9, |_| 80.0, |_| 60.0));
        let found = check(&held, &Demand::default()).findings;
        assert!(found.len() == 1 && found[0].starts_with("member 1 (process 8)"), "{found:?}");
    }
}
