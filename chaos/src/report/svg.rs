//! The few things that all drawings need: safe text, round numbers, axes, paths.
//!
//! Text from a run goes through `escape` and nothing else does: a member's log or a key may hold
//! anything. Coordinates have one decimal, which is finer than a screen and keeps pages small.

use std::fmt::Write;

/// Text as it may stand in HTML, in SVG, and in an attribute between double quotes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not allowed in a page, and nothing to see.
            control if control.is_control() && control != '\n' && control != '\t' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// Where the plot of a drawing lies, and how time runs along it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Where time zero is.
    pub left: f64,
    /// Where the end of the run is.
    pub right: f64,
    /// The length of the run; at least one.
    pub length_us: u64,
}

impl Frame {
    /// Where a moment lies.
    pub fn x(&self, at_us: u64) -> f64 {
        let share = at_us.min(self.length_us) as f64 / self.length_us as f64;
        self.left + share * (self.right - self.left)
    }

    /// A bar from one moment to another as `x` and `width`, never too thin to be seen.
    pub fn bar(&self, from_us: u64, until_us: u64, thinnest: f64) -> (f64, f64) {
        let (from, until) = (self.x(from_us), self.x(until_us));
        let width = (until - from).max(thinnest);
        (from.min(self.right - width), width)
    }
}

/// Round steps from zero to at least `most`: the numbers to label, about `wanted` of them.
pub fn ticks(most: f64, wanted: usize) -> Vec<f64> {
    if most <= 0.0 || !most.is_finite() {
        return vec![0.0, 1.0];
    }
    let rough = most / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude).into_iter().find(|step| rough <= *step);
    let step = step.unwrap_or(10.0 * magnitude);
    let count = (most / step).ceil() as usize;
    (0..=count).map(|index| index as f64 * step).collect()
}

/// Moments to label on the axis of time, about `wanted` of them.
pub fn time_ticks(length_us: u64, wanted: usize) -> Vec<u64> {
    const STEPS_S: &[u64] = &[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600];
    let rough = length_us / 1_000_000 / wanted.max(1) as u64;
    let step = STEPS_S.iter().find(|step| rough <= **step).copied().unwrap_or(rough.max(1)) * 1_000_000;
    (0..=length_us / step).map(|index| index * step).collect()
}

/// A moment as minutes and seconds.
pub fn clock(at_us: u64) -> String {
    let tenths = at_us / 100_000;
    let (minutes, seconds, tenth) = (tenths / 600, tenths / 10 % 60, tenths % 10);
    if tenth == 0 { format!("{minutes}:{seconds:02}") } else { format!("{minutes}:{seconds:02}.{tenth}") }
}

/// A length of time with a unit that suits it.
pub fn span(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.2} s", micros as f64 / 1e6),
        _ => format!("{} min {:02} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

/// A count with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if 0 < index && (digits.len() - index).is_multiple_of(3) {
            apart.push('\u{202f}');
        }
        apart.push(digit);
    }
    apart
}

/// A line through points; a `None` lifts the pen.
pub fn line(points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
    let mut path = String::new();
    let mut down = false;
    for point in points {
        if let Some((x, y)) = point {
            let _ = write!(path, "{}{x:.1} {y:.1}", if down { 'L' } else { 'M' });
        }
        down = point.is_some();
    }
    path
}

/// The area of equal columns that stand on `floor`, each with its own top.
pub fn columns(from: f64, width: f64, floor: f64, tops: &[f64]) -> String {
    let mut path = format!("M{from:.1} {floor:.1}");
    for (index, top) in tops.iter().enumerate() {
        let _ = write!(path, "V{top:.1}H{:.1}", from + (index + 1) as f64 * width);
    }
    let _ = write!(path, "V{floor:.1}Z");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_end_an_element_or_an_attribute() {
        let hostile = "</title><script>\"it's\" & \u{0}\u{1b}[31m";
        let safe = escape(hostile);
        assert_eq!(safe, "&lt;/title&gt;&lt;script&gt;&quot;it&#39;s&quot; &amp; \u{fffd}\u{fffd}[31m");
        assert_eq!(escape("two\nlines\tand ünïcode"), "two\nlines\tand ünïcode");
    }

    #[test]
    fn moments_lie_between_the_edges_and_bars_can_be_seen() {
        let frame = Frame { left: 100.0, right: 200.0, length_us: 1_000 };
        assert_eq!([0, 500, 1_000, 9_999].map(|at| frame.x(at)), [100.0, 150.0, 200.0, 200.0]);
        assert_eq!(frame.bar(0, 500, 2.0), (100.0, 50.0));
        assert_eq!(frame.bar(1_000, 1_000, 2.0), (198.0, 2.0));
    }

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(87.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(4.0, 4), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(time_ticks(180_000_000, 6), [0, 30, 60, 90, 120, 150, 180].map(|s| s * 1_000_000));
    }

    #[test]
    fn times_and_counts_are_written_for_people() {
        assert_eq!([0, 61_500_000, 3_600_000_000].map(clock), ["0:00", "1:01.5", "60:00"]);
        assert_eq!(
            [12, 1_234, 45_678, 1_500_000, 65_000_000].map(span),
            ["12 µs", "1.2 ms", "45 ms", "1.50 s", "1 min 05 s"]
        );
        assert_eq!([5, 1_234, 1_234_567].map(count), ["5", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn a_line_is_lifted_where_nothing_is_known() {
        let points = [Some((0.0, 1.0)), Some((1.0, 2.0)), None, Some((3.0, 4.0))];
        assert_eq!(line(points.into_iter()), "M0.0 1.0L1.0 2.0M3.0 4.0");
        assert_eq!(columns(0.0, 5.0, 10.0, &[4.0, 6.0]), "M0.0 10.0V4.0H5.0V6.0H10.0V10.0Z");
    }
}
