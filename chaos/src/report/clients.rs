//! What each workload and each client went through.
//!
//! A workload is a card with its rate and its p99; a client is a strip of colours, so that dozens
//! fit under each other and one that starved stands out.

use std::fmt::Write;

use super::Story;
use super::buckets::{self, Bucket, Grid, Latency};
use super::svg::{columns, count, escape, line, span};
use super::timeline;
use crate::record::trace::Op;

/// A strip must stay wider than a hair.
const STRIP_BUCKETS: usize = 200;
const CARD_BUCKETS: usize = 120;
/// More strips than this are no longer looked at.
const STRIPS_MAX: usize = 80;
const STRIP: f64 = 11.0;

/// What a client felt in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeling {
    /// It had asked for nothing.
    Nothing,
    /// It was answered, nearly always within 50 ms.
    Quick,
    /// Nearly always within half a second.
    Slow,
    /// Answered, but slower.
    Late,
    /// A tenth of what ended, or more, had no answer.
    Mixed,
    /// None had.
    Dark,
    /// Nothing ended; it waited all the time.
    Waiting,
}

impl Feeling {
    /// In one bucket; `waited` if an operation spanned it.
    pub fn of(bucket: &Bucket, waited: bool) -> Self {
        let without = bucket.failed + bucket.unknown;
        match (bucket.ok, bucket.latency) {
            (0, _) if 0 < without => Self::Dark,
            (0, _) if waited => Self::Waiting,
            (0, _) => Self::Nothing,
            (ok, _) if ok + without <= without * 10 => Self::Mixed,
            (_, Some(Latency { p99: 0..=50_000, .. })) => Self::Quick,
            (_, Some(Latency { p99: 0..=500_000, .. })) => Self::Slow,
            (_, _) => Self::Late,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Quick => "quick",
            Self::Slow => "slow",
            Self::Late => "late",
            Self::Mixed => "mixed",
            Self::Dark => "dark",
            Self::Waiting => "waiting",
        }
    }
}

/// What one client felt all along.
fn feelings(grid: Grid, ops: &[Op]) -> Vec<Feeling> {
    let mut waited = vec![false; grid.count];
    for op in ops {
        waited[grid.index(op.invoked_us)..=grid.index(op.returned_us)].fill(true);
    }
    let dealt = buckets::deal(grid, ops.iter());
    dealt.iter().zip(waited).map(|(bucket, waited)| Feeling::of(bucket, waited)).collect()
}

/// The part of a client's name before the slash.
fn workload_of(client: &str) -> &str {
    client.split('/').next().unwrap_or(client)
}

/// Operations, dealt to their clients.
fn by_client(story: &Story) -> Vec<Vec<Op>> {
    let mut dealt = vec![Vec::new(); story.record.clients.len()];
    for op in &story.record.ops {
        if let Some(ops) = dealt.get_mut(op.client as usize) {
            ops.push(*op);
        }
    }
    dealt
}

/// One card for each workload.
pub fn cards(story: &Story, length_us: u64) -> String {
    let clients = by_client(story);
    let mut workloads: Vec<&str> = story.record.clients.iter().map(|client| workload_of(client)).collect();
    workloads.sort_unstable();
    workloads.dedup();
    let grid = Grid::over(length_us, CARD_BUCKETS);
    let mut page = String::new();
    for workload in workloads {
        let names = story.record.clients.iter();
        let own: Vec<&Op> = names
            .zip(&clients)
            .filter(|(name, _)| workload_of(name) == workload)
            .flat_map(|(_, ops)| ops)
            .collect();
        if own.is_empty() {
            continue;
        }
        page += &card(workload, grid, &own);
    }
    page
}

fn card(workload: &str, grid: Grid, ops: &[&Op]) -> String {
    let dealt = buckets::deal(grid, ops.iter().copied());
    let (ok, failed, unknown) = totals(&dealt);
    let latency = buckets::latency(answered(ops.iter().copied())).unwrap_or_default();
    let mut card = format!(
        "<div class=\"card\"><h3>{}</h3><p class=\"facts\"><b>{}</b> ok · {} refused · {} unknown<br>\
         p50 {} · p99 {} · max {}</p>",
        escape(workload),
        count(ok),
        count(failed),
        count(unknown),
        span(latency.p50),
        span(latency.p99),
        span(latency.max)
    );
    let (width, height) = (300.0, 56.0);
    let most = dealt.iter().map(|bucket| bucket.ok).max().unwrap_or(0).max(1);
    let step = width / grid.count as f64;
    let tops: Vec<f64> =
        dealt.iter().map(|bucket| height - f64::from(bucket.ok) / f64::from(most) * (height - 4.0)).collect();
    let slowest = dealt.iter().filter_map(|bucket| bucket.latency).map(|one| one.p99).max().unwrap_or(1);
    let level = |micros: u64| height - (micros as f64).ln_1p() / (slowest as f64).ln_1p() * (height - 4.0);
    let curve = dealt.iter().enumerate().map(|(index, bucket)| {
        bucket.latency.as_ref().map(|one| ((index as f64 + 0.5) * step, level(one.p99)))
    });
    let _ = write!(
        card,
        "<svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"rate and p99\"><path class=\"area ok\" d=\"{}\"/><path class=\"curve p99\" d=\"{}\"/></svg>\
         <p class=\"small\">up to {:.0}/s · p99 up to {}</p></div>",
        columns(0.0, step, height, &tops),
        line(curve),
        grid.per_second(most),
        span(slowest)
    );
    card
}

/// One strip for each client.
pub fn strips(story: &Story, length_us: u64) -> String {
    let grid = Grid::over(length_us, STRIP_BUCKETS);
    let frame = timeline::frame(grid.width_us * grid.count as u64);
    let clients = by_client(story);
    let mut order: Vec<usize> = (0..clients.len()).filter(|client| !clients[*client].is_empty()).collect();
    order.sort_by_key(|client| (workload_of(&story.record.clients[*client]), *client));
    let left_out = order.len().saturating_sub(STRIPS_MAX);
    order.truncate(STRIPS_MAX);
    let mut body = String::new();
    let mut y = 4.0;
    for client in &order {
        let name = escape(&story.record.clients[*client]);
        let _ = write!(
            body,
            "<text class=\"lane\" x=\"{:.0}\" y=\"{:.1}\">{name}</text>",
            frame.left - 10.0,
            y + STRIP - 2.0
        );
        let feelings = feelings(grid, &clients[*client]);
        for (feeling, from, until) in stretches(&feelings) {
            if feeling == Feeling::Nothing {
                continue;
            }
            let (x, width) = frame.bar(from as u64 * grid.width_us, until as u64 * grid.width_us, 1.0);
            let _ = write!(
                body,
                "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{STRIP}\"/>",
                feeling.class()
            );
        }
        y += STRIP + 4.0;
    }
    body.insert_str(0, &timeline::axis(frame, (2.0, y)));
    let more = match left_out {
        0 => String::new(),
        some => format!("<p class=\"small\">{some} more clients are in the table below.</p>"),
    };
    format!(
        "<div class=\"scroll\"><svg class=\"timeline\" viewBox=\"0 0 {} {:.0}\" role=\"img\" \
         aria-label=\"Every client along the run\">{body}</svg></div>{more}",
        timeline::WIDTH,
        y + 24.0
    )
}

/// Equal neighbours as one: what, from which and up to which, exclusive.
fn stretches(feelings: &[Feeling]) -> Vec<(Feeling, usize, usize)> {
    let mut found: Vec<(Feeling, usize, usize)> = Vec::new();
    for (index, feeling) in feelings.iter().enumerate() {
        match found.last_mut() {
            Some((last, _, until)) if last == feeling => *until = index + 1,
            _ => found.push((*feeling, index, index + 1)),
        }
    }
    found
}

/// Every client in numbers.
pub fn table(story: &Story) -> String {
    let mut rows = String::new();
    for (name, ops) in story.record.clients.iter().zip(by_client(story)) {
        if ops.is_empty() {
            continue;
        }
        let dealt = buckets::deal(Grid { width_us: u64::MAX, count: 1 }, ops.iter());
        let (ok, failed, unknown) = totals(&dealt);
        let latency = dealt[0].latency.unwrap_or_default();
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            count(ok),
            count(failed),
            count(unknown),
            span(latency.p50),
            span(latency.p99),
            span(latency.max)
        );
    }
    format!(
        "<div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>client</th><td>ok</td><td>refused</td>\
         <td>unknown</td><td>p50</td><td>p99</td><td>max</td></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn totals(dealt: &[Bucket]) -> (u64, u64, u64) {
    let sum = |pick: fn(&Bucket) -> u32| dealt.iter().map(|bucket| u64::from(pick(bucket))).sum();
    (sum(|bucket| bucket.ok), sum(|bucket| bucket.failed), sum(|bucket| bucket.unknown))
}

fn answered<'a>(ops: impl Iterator<Item = &'a Op>) -> Vec<u64> {
    let ok = ops.filter(|op| op.ended == crate::record::trace::Ended::Ok);
    ok.map(|op| op.returned_us.saturating_sub(op.invoked_us)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_bucket_feels_as_what_ended_in_it_or_did_not() {
        let answered =
            |ok, p99| Bucket { ok, latency: Some(Latency { p50: 1, p99, max: p99 }), ..Bucket::default() };
        for (bucket, waited, feeling) in [
            (Bucket::default(), false, Feeling::Nothing),
            (Bucket::default(), true, Feeling::Waiting),
            (answered(3, 50_000), true, Feeling::Quick),
            (answered(3, 50_001), true, Feeling::Slow),
            (answered(3, 500_001), true, Feeling::Late),
            (Bucket { unknown: 1, ..answered(9, 10) }, true, Feeling::Mixed),
            (Bucket { unknown: 1, ..answered(10, 10) }, true, Feeling::Quick),
            (Bucket { failed: 1, ..Bucket::default() }, true, Feeling::Dark),
        ] {
            assert_eq!(Feeling::of(&bucket, waited), feeling, "{bucket:?}");
        }
    }

    #[test]
    fn a_client_that_waits_through_buckets_is_seen_waiting() {
        let ended = crate::record::trace::Ended::Ok;
        let op = Op { client: 0, writes: true, invoked_us: 15, returned_us: 41, ended };
        let felt = feelings(Grid { width_us: 10, count: 6 }, &[op]);
        let [nothing, waiting] = [Feeling::Nothing, Feeling::Waiting];
        assert_eq!(felt, [nothing, waiting, waiting, waiting, Feeling::Quick, nothing]);
    }

    #[test]
    fn neighbours_that_feel_alike_are_one_stretch() {
        let feelings = [Feeling::Quick, Feeling::Quick, Feeling::Dark, Feeling::Quick];
        assert_eq!(
            stretches(&feelings),
            [(Feeling::Quick, 0, 2), (Feeling::Dark, 2, 3), (Feeling::Quick, 3, 4)]
        );
    }

    #[test]
    fn every_workload_has_a_card_and_every_client_a_strip_and_a_row() {
        let story = sample::story(30);
        assert_eq!(cards(&story, 30_000_000).matches("<h3>").count(), 2);
        assert_eq!(strips(&story, 30_000_000).matches("class=\"lane\"").count(), 6);
        assert_eq!(table(&story).matches("<tr><th>").count(), 7, "six and the heading");
    }
}
