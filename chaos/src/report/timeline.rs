//! The picture of a run: who led, what was broken, and what clients felt of it, along one axis.
//!
//! From top to bottom: the leader as a coloured band, whether writes were possible, one lane of bars
//! for each kind of fault, operations a second, latency on a logarithmic scale. Gaps and changes of
//! leader go through all of them, so that a cause stands above its effect.

use std::fmt::Write;

use super::Story;
use super::buckets::{Bucket, Grid, Latency};
use super::gaps::Availability;
use super::svg::{Frame, clock, columns, count, escape, line, span, ticks, time_ticks};

/// The drawing's own units.
pub const WIDTH: f64 = 1200.0;
const LEFT: f64 = 132.0;
const RIGHT: f64 = WIDTH - 24.0;
const BAND: f64 = 18.0;
const LANE: f64 = 17.0;
const PLOT: f64 = 130.0;
const SPACE: f64 = 30.0;

/// What of a bucket one layer of a plot shows.
type Pick<Whole, Part> = fn(&Whole) -> Part;

/// How time runs in drawings of this width.
pub fn frame(length_us: u64) -> Frame {
    Frame { left: LEFT, right: RIGHT, length_us: length_us.max(1) }
}

/// What a kind of fault hurts, for its colour.
pub fn family(kind: &str) -> &'static str {
    match kind {
        "kill" | "terminate" | "pause" | "rolling-restart" => "process",
        "partition" | "one-way" | "black-hole" | "slow-network" | "lossy-network" => "network",
        "slow-disk" | "full-disk" | "torn-write" | "lost-writes" => "disk",
        "clock-jump" | "clock-skew" => "clock",
        "membership" | "leader-transfer" => "membership",
        _ => "upkeep",
    }
}

/// The whole picture.
pub fn draw(story: &Story, grid: Grid, buckets: &[Bucket], availability: &Availability) -> String {
    let length_us = grid.width_us * grid.count as u64;
    let frame = frame(length_us);
    let mut y = 6.0;
    let mut body = leaders(story, frame, y);
    y += BAND + 7.0;
    body += &writable(frame, availability, y);
    y += BAND + 9.0;
    let lanes = lanes(story, frame, &mut y);
    body += &lanes;
    y += SPACE;
    let top = y;
    body += &throughput(frame, grid, buckets, y);
    y += PLOT + SPACE + 6.0;
    body += &latency(frame, grid, buckets, y);
    y += PLOT;
    body += &through(story, frame, availability, (top, y));
    // Under everything else.
    body.insert_str(0, &axis(frame, (6.0, y)));
    let _ = write!(
        body,
        "<rect class=\"probe\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
         <line class=\"hair\" y1=\"6\" y2=\"{y:.1}\" visibility=\"hidden\"/>",
        RIGHT - LEFT,
        y - top
    );
    format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" \
         aria-label=\"Timeline of the run\" data-left=\"{LEFT}\" data-right=\"{RIGHT}\">{body}</svg>",
        y + 26.0
    )
}

/// A label in the gutter, level with the middle of a lane.
fn label(text: &str, middle: f64) -> String {
    format!("<text class=\"lane\" x=\"{:.0}\" y=\"{:.1}\">{}</text>", LEFT - 10.0, middle + 4.0, escape(text))
}

/// What a plot shows, above it.
fn heading(text: &str, y: f64) -> String {
    format!("<text class=\"plot\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>", y - 9.0, escape(text))
}

fn bar(class: &str, (x, width): (f64, f64), (y, height): (f64, f64), title: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\">\
         <title>{}</title></rect>",
        escape(title)
    )
}

/// The name of a member.
pub fn member_name(story: &Story, member: usize) -> String {
    story.members.get(member).cloned().unwrap_or_else(|| format!("member {member}"))
}

fn leaders(story: &Story, frame: Frame, y: f64) -> String {
    let mut drawn = label("leader", y + BAND / 2.0);
    let reigns = &story.record.leaders;
    for (index, led) in reigns.iter().enumerate() {
        let until = reigns.get(index + 1).map_or(frame.length_us, |next| next.at_us);
        let (class, who) = match led.member {
            None => ("nobody".to_owned(), "nobody leads".to_owned()),
            Some(member) => (format!("m{}", member % 8), format!("{} leads", member_name(story, member))),
        };
        let title = format!("{who}, term {}, from {} to {}", led.term, clock(led.at_us), clock(until));
        let place = frame.bar(led.at_us, until, 1.0);
        drawn += &bar(&class, place, (y, BAND), &title);
        if let Some(member) = led.member.filter(|_| 34.0 < place.1) {
            let name = escape(&member_name(story, member));
            let (x, y) = (place.0 + 6.0, y + BAND / 2.0 + 4.0);
            let _ = write!(drawn, "<text class=\"on\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }
    drawn
}

fn writable(frame: Frame, availability: &Availability, y: f64) -> String {
    let mut drawn = label("writes", y + BAND / 2.0);
    if availability.wanted_us == 0 {
        return drawn;
    }
    let whole = "writes are acknowledged; the gaps are in red";
    drawn += &bar("possible", (frame.left, frame.right - frame.left), (y, BAND), whole);
    for gap in &availability.gaps {
        let title = format!("no write acknowledged for {} at {}", span(gap.length_us()), clock(gap.from_us));
        drawn += &bar("gap", frame.bar(gap.from_us, gap.until_us, 1.5), (y, BAND), &title);
    }
    drawn
}

/// One lane for each kind of fault, in the order of their first blows.
fn lanes(story: &Story, frame: Frame, y: &mut f64) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for fault in &story.record.faults {
        if !kinds.contains(&fault.kind.as_str()) {
            kinds.push(&fault.kind);
        }
    }
    kinds.sort_by_key(|kind| family(kind));
    let mut drawn = String::new();
    for kind in kinds {
        let _ = write!(
            drawn,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>",
            *y + LANE / 2.0
        );
        drawn += &label(kind, *y + LANE / 2.0);
        for fault in story.record.faults.iter().filter(|fault| fault.kind == kind) {
            let until = fault.healed_us.unwrap_or(frame.length_us);
            let lasted = span(until.saturating_sub(fault.struck_us));
            let title = format!("{kind}: {}\nat {} for {lasted}", fault.what, clock(fault.struck_us));
            let class = format!("fault {}", family(kind));
            let place = frame.bar(fault.struck_us, until, 3.0);
            drawn += &bar(&class, place, (*y + 2.0, LANE - 4.0), &title);
        }
        *y += LANE + 2.0;
    }
    drawn
}

fn throughput(frame: Frame, grid: Grid, buckets: &[Bucket], y: f64) -> String {
    let most = buckets.iter().map(|bucket| bucket.ok + bucket.failed + bucket.unknown).max().unwrap_or(0);
    let marks = ticks(grid.per_second(most), 4);
    let top = marks.last().copied().unwrap_or(1.0);
    let height = |per_second: f64| y + PLOT - per_second / top * PLOT;
    let mut drawn = heading("operations a second: answered, refused, unknown", y);
    for mark in &marks {
        drawn += &level(&count(*mark as u64), height(*mark));
    }
    // From the tallest to the lowest, so that each covers what the next is not.
    let stacks: [(&str, Pick<Bucket, u32>); 3] = [
        ("unknown", |bucket| bucket.ok + bucket.failed + bucket.unknown),
        ("failed", |bucket| bucket.ok + bucket.failed),
        ("ok", |bucket| bucket.ok),
    ];
    let width = (frame.right - frame.left) / grid.count as f64;
    for (class, stack) in stacks {
        let tops: Vec<f64> = buckets.iter().map(|bucket| height(grid.per_second(stack(bucket)))).collect();
        let path = columns(frame.left, width, y + PLOT, &tops);
        let _ = write!(drawn, "<path class=\"area {class}\" d=\"{path}\"/>");
    }
    drawn
}

fn latency(frame: Frame, grid: Grid, buckets: &[Bucket], y: f64) -> String {
    let mut drawn = heading("latency of answered operations: p50, p99, max", y);
    let known = buckets.iter().filter_map(|bucket| bucket.latency);
    let (least, most) =
        known.fold((u64::MAX, 1), |(least, most), one| (least.min(one.p50), most.max(one.max)));
    let first = (least.clamp(1, most) as f64).log10().floor();
    let last = (most as f64).log10().ceil().max(first + 1.0);
    let height = |micros: u64| {
        let share = ((micros.max(1) as f64).log10() - first) / (last - first);
        y + PLOT - share.clamp(0.0, 1.0) * PLOT
    };
    for decade in first as i32..=last as i32 {
        let micros = 10u64.saturating_pow(decade.unsigned_abs());
        drawn += &level(&decade_name(micros), height(micros));
    }
    let middle = |index: usize| frame.x(grid.width_us * index as u64 + grid.width_us / 2);
    let curves: [(&str, Pick<Latency, u64>); 3] =
        [("max", |one| one.max), ("p99", |one| one.p99), ("p50", |one| one.p50)];
    for (class, pick) in curves {
        let points = buckets.iter().enumerate();
        let points = points
            .map(|(index, bucket)| bucket.latency.as_ref().map(|one| (middle(index), height(pick(one)))));
        let _ = write!(drawn, "<path class=\"curve {class}\" d=\"{}\"/>", line(points));
    }
    drawn
}

fn decade_name(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

/// A line of the scale with its number.
pub fn level(text: &str, y: f64) -> String {
    format!(
        "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
        LEFT - 10.0,
        y + 4.0,
        escape(text)
    )
}

/// What goes through all plots: gaps and changes of leader.
fn through(story: &Story, frame: Frame, availability: &Availability, (top, bottom): (f64, f64)) -> String {
    let mut drawn = String::new();
    for gap in &availability.gaps {
        let (x, width) = frame.bar(gap.from_us, gap.until_us, 1.0);
        let _ = write!(
            drawn,
            "<rect class=\"shade\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
            bottom - top
        );
    }
    let mut last = None;
    for led in story.record.leaders.iter().filter(|led| led.member.is_some()) {
        if last.is_some_and(|reign| reign != (led.member, led.term)) {
            let x = frame.x(led.at_us);
            let _ = write!(
                drawn,
                "<line class=\"change\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
            );
        }
        last = Some((led.member, led.term));
    }
    drawn
}

/// The axis of time under a drawing.
pub fn axis(frame: Frame, (top, bottom): (f64, f64)) -> String {
    let mut drawn = String::new();
    for at_us in time_ticks(frame.length_us, 10) {
        let x = frame.x(at_us);
        let _ = write!(
            drawn,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"time\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 17.0,
            clock(at_us)
        );
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{buckets, gaps, sample};

    #[test]
    fn every_fault_gap_and_reign_is_in_the_picture() {
        let story = sample::story(60);
        let grid = Grid::over(60_000_000, 300);
        let dealt = buckets::deal(grid, story.record.ops.iter());
        let availability = gaps::find(&story.record.ops, gaps::GAP_MIN_US);
        let drawn = draw(&story, grid, &dealt, &availability);
        assert_eq!(drawn.matches("class=\"fault process\"").count(), story.record.faults.len());
        assert_eq!(drawn.matches("class=\"gap\"").count(), availability.gaps.len());
        assert_eq!(drawn.matches("class=\"nobody\"").count(), 6);
        assert_eq!(drawn.matches("class=\"change\"").count(), 5);
        assert!(!drawn.contains("<script>"), "text of the run is escaped");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "every coordinate is a number");
    }

    #[test]
    fn a_run_without_anything_can_be_drawn() {
        let mut story = sample::story(1);
        story.record = crate::record::trace::Record::default();
        let grid = Grid::over(0, 300);
        let drawn =
            draw(&story, grid, &buckets::deal(grid, std::iter::empty()), &gaps::Availability::default());
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
