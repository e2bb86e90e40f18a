//! What was sampled along a run: how far watchers were behind, and what members' processes held.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Story;
use super::buckets::Grid;
use super::svg::{columns, count, escape, line, ticks};
use super::timeline;
use crate::record::trace::Held;

const LAG_BUCKETS: usize = 120;
/// More cards than this are no longer looked at.
const WATCHERS_MAX: usize = 60;
/// More points than this on one curve cannot be told apart.
const POINTS_MAX: usize = 600;
const PLOT: f64 = 150.0;

/// One small picture for each watcher: by how many revisions it was behind. All have one scale, so
/// that they can be compared.
pub fn lags(story: &Story, length_us: u64) -> String {
    let grid = Grid::over(length_us, LAG_BUCKETS);
    let mut dealt: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    for lag in &story.record.lags {
        let buckets = dealt.entry(lag.watcher).or_insert_with(|| vec![0; grid.count]);
        let bucket = &mut buckets[grid.index(lag.at_us)];
        *bucket = lag.revisions.max(*bucket);
        last.insert(lag.watcher, lag.revisions);
    }
    let most = dealt.values().flatten().copied().max().unwrap_or(0).max(1);
    let mut page = String::new();
    for (watcher, behind) in dealt.iter().take(WATCHERS_MAX) {
        let name = story.record.watchers.get(*watcher as usize).map_or("watcher", String::as_str);
        page += &lag_card(name, behind, last[watcher], most);
    }
    if WATCHERS_MAX < dealt.len() {
        let _ = write!(page, "<p class=\"small\">and {} more</p>", dealt.len() - WATCHERS_MAX);
    }
    page
}

fn lag_card(name: &str, behind: &[u64], last: u64, most: u64) -> String {
    let (width, height) = (220.0, 40.0);
    let share = |lag: u64| (lag as f64).ln_1p() / (most as f64).ln_1p();
    let tops: Vec<f64> = behind.iter().map(|lag| height - share(*lag) * (height - 3.0)).collect();
    format!(
        "<div class=\"card tight\"><h3>{}</h3><svg viewBox=\"0 0 {width} {height}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"lag\"><path class=\"area lag\" d=\"{}\"/></svg>\
         <p class=\"small\">at most {} behind, {} at the end</p></div>",
        escape(name),
        columns(0.0, width / behind.len() as f64, height, &tops),
        count(behind.iter().copied().max().unwrap_or(0)),
        count(last)
    )
}

/// Resident memory of every member.
pub fn memory(story: &Story, length_us: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    curves(story, length_us, "resident memory, MiB", |held| held.rss_bytes as f64 / MIB)
}

/// Open file descriptors of every member.
pub fn files(story: &Story, length_us: u64) -> String {
    curves(story, length_us, "open file descriptors", |held| held.files as f64)
}

/// A curve for each member, broken where its process is another one.
fn curves(story: &Story, length_us: u64, what: &str, value: fn(&Held) -> f64) -> String {
    // A process that has ended and was not yet waited for holds nothing.
    let held: Vec<&Held> = story.record.held.iter().filter(|one| 0 < one.rss_bytes).collect();
    let frame = timeline::frame(length_us.max(held.iter().map(|one| one.at_us).max().unwrap_or(0)));
    let marks = ticks(held.iter().map(|one| value(one)).fold(0.0, f64::max), 4);
    let top = marks.last().copied().unwrap_or(1.0);
    let (upper, floor) = (24.0, 24.0 + PLOT);
    let height = |amount: f64| floor - amount / top * PLOT;
    let mut body = timeline::axis(frame, (upper, floor));
    let _ = write!(body, "<text class=\"plot\" x=\"{}\" y=\"{:.1}\">{what}</text>", frame.left, upper - 9.0);
    for mark in &marks {
        body += &timeline::level(&count(*mark as u64), height(*mark));
    }
    let mut members: Vec<usize> = held.iter().map(|one| one.member).collect();
    members.sort_unstable();
    members.dedup();
    for member in &members {
        let own: Vec<&Held> = held.iter().copied().filter(|one| one.member == *member).collect();
        let points = own.iter().enumerate().flat_map(|(index, one)| {
            let reborn = 0 < index && own[index - 1].pid != one.pid;
            let kept = reborn || index % own.len().div_ceil(POINTS_MAX) == 0 || index + 1 == own.len();
            let point = kept.then(|| Some((frame.x(one.at_us), height(value(one)))));
            [reborn.then_some(None), point].into_iter().flatten()
        });
        let name = escape(&timeline::member_name(story, *member));
        let class = member % 8;
        let path = line(points);
        let _ = write!(body, "<path class=\"curve s{class}\" d=\"{path}\"><title>{name}</title></path>");
    }
    format!(
        "<div class=\"scroll\"><svg class=\"timeline\" viewBox=\"0 0 {} {:.0}\" role=\"img\" \
         aria-label=\"{what}\">{body}</svg></div>",
        timeline::WIDTH,
        floor + 24.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn every_watcher_has_a_card_and_its_name_is_safe() {
        let page = lags(&sample::story(20), 20_000_000);
        assert_eq!(page.matches("<h3>").count(), 2);
        assert!(page.contains("watch/&lt;slow&gt; &amp; &quot;late&quot;"), "{page}");
    }

    #[test]
    fn a_restart_lifts_the_pen() {
        let mut story = sample::story(20);
        let pens =
            |page: &str| page.split("<path").skip(1).map(|path| path.matches('M').count()).sum::<usize>();
        assert_eq!(pens(&memory(&story, 20_000_000)), 3);
        for held in story.record.held.iter_mut().filter(|held| held.member == 1 && 10_000_000 < held.at_us) {
            held.pid += 1;
        }
        assert_eq!(pens(&memory(&story, 20_000_000)), 4);
        assert_eq!(pens(&files(&story, 20_000_000)), 4);
    }

    #[test]
    fn hours_of_samples_are_few_points() {
        let story = sample::story(7_200);
        let page = memory(&story, 7_200_000_000);
        assert!(page.len() < 60_000, "{} bytes", page.len());
        assert!(!page.contains("NaN"), "every coordinate is a number");
    }
}
