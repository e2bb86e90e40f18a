//! What came out of a load: counts, latencies, errors by text; for people and for programs.
//!
//! Latencies are of answered requests only; errors are counted apart and never averaged in.
//! Microseconds inside, milliseconds in print.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies above this are recorded as this: a minute is as good as never.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Different error texts kept; more are counted together. A text may hold a varying number.
const ERROR_TEXTS_MAX: usize = 32;

/// What one thread saw. Added up at the end.
pub struct Tally {
    latency_us: Histogram<u64>,
    errors: BTreeMap<String, u64>,
}

impl Tally {
    pub fn new() -> Tally {
        let latency_us =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are constants in range");
        Tally { latency_us, errors: BTreeMap::new() }
    }

    pub fn answered(&mut self, latency: Duration) {
        self.answered_us(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn answered_us(&mut self, latency_us: u64) {
        self.latency_us.saturating_record(latency_us.clamp(1, LATENCY_US_MAX));
    }

    pub fn failed(&mut self, text: &str) {
        self.failed_many(text, 1);
    }

    pub fn failed_many(&mut self, text: &str, count: u64) {
        if count == 0 {
            return;
        }
        let room = self.errors.len() < ERROR_TEXTS_MAX;
        let text = if room || self.errors.contains_key(text) { text } else { "other errors" };
        *self.errors.entry(text.to_owned()).or_default() += count;
    }

    pub fn latency_ms(&self) -> Latency {
        let quantile = |q: f64| self.latency_us.value_at_quantile(q) as f64 / 1e3;
        Latency {
            mean: self.latency_us.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: self.latency_us.max() as f64 / 1e3,
        }
    }

    /// Requests that were answered, and well.
    pub fn answered_count(&self) -> u64 {
        self.latency_us.len()
    }

    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    pub fn into_errors(self) -> BTreeMap<String, u64> {
        self.errors
    }

    pub fn add(&mut self, other: Tally) {
        self.latency_us.add(&other.latency_us).expect("both have the same bounds");
        for (text, count) in other.errors {
            self.failed_many(&text, count);
        }
    }
}

/// The load as it was asked for, repeated in the result so that a file of results explains itself.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    pub workload: String,
    pub endpoints: Vec<String>,
    pub clients: usize,
    pub connections: usize,
    /// Requests a second that were intended; absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    pub key_size: usize,
    pub value_size: usize,
    pub key_space: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_keys: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub conditions: Conditions,
    pub seconds: f64,
    pub operations: u64,
    pub ops_per_second: f64,
    pub latency_ms: Latency,
    pub error_count: u64,
    pub errors: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    pub max: f64,
}

impl Latency {
    /// On one line.
    pub fn text(&self) -> String {
        format!(
            "mean {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3}",
            self.mean, self.p50, self.p90, self.p99, self.p99_9, self.max
        )
    }
}

impl Report {
    pub fn new(conditions: Conditions, tally: Tally, elapsed: Duration) -> Report {
        let histogram = &tally.latency_us;
        let seconds = elapsed.as_secs_f64();
        Report {
            conditions,
            seconds,
            operations: histogram.len(),
            ops_per_second: if seconds > 0.0 { histogram.len() as f64 / seconds } else { 0.0 },
            latency_ms: tally.latency_ms(),
            error_count: tally.error_count(),
            errors: tally.into_errors(),
        }
    }

    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts only")
    }

    pub fn text(&self) -> String {
        let c = &self.conditions;
        let mut text = String::new();
        let pace = c.rate.map_or("as fast as answered".to_owned(), |rate| format!("{rate} op/s intended"));
        let mut line = |label: &str, rest: String| {
            writeln!(text, "  {label:<11} {rest}").expect("writing to a string cannot fail");
        };
        line(
            "load",
            format!("{}, {} clients on {} connections, {pace}", c.workload, c.clients, c.connections),
        );
        line("data", format!("{}-byte keys of {}, {}-byte values", c.key_size, c.key_space, c.value_size));
        line("endpoints", c.endpoints.join(", "));
        line("operations", format!("{} in {:.3} s", self.operations, self.seconds));
        line("throughput", format!("{:.1} op/s", self.ops_per_second));
        line("latency ms", self.latency_ms.text());
        if self.errors.is_empty() {
            line("errors", "none".to_owned());
        }
        for (error, count) in &self.errors {
            line("errors", format!("{count} x {error}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions() -> Conditions {
        Conditions {
            workload: "put".to_owned(),
            endpoints: vec!["127.0.0.1:1".to_owned()],
            clients: 2,
            connections: 1,
            rate: None,
            key_size: 16,
            value_size: 256,
            key_space: 10,
            range_keys: None,
        }
    }

    #[test]
    fn threads_add_up() {
        let mut all = Tally::new();
        for ms in 1..=100 {
            let mut one = Tally::new();
            one.answered(Duration::from_millis(ms));
            one.failed("no leader");
            all.add(one);
        }
        let report = Report::new(conditions(), all, Duration::from_secs(10));
        assert_eq!((report.operations, report.error_count), (100, 100));
        assert!((report.ops_per_second - 10.0).abs() < 1e-9);
        assert!((report.latency_ms.p50 - 50.0).abs() < 0.1, "{:?}", report.latency_ms);
        assert!((report.latency_ms.p99 - 99.0).abs() < 0.1, "{:?}", report.latency_ms);
        assert_eq!(report.errors["no leader"], 100);
    }

    #[test]
    fn the_json_result_names_every_figure() {
        let report = Report::new(conditions(), Tally::new(), Duration::from_secs(1));
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        for name in ["workload", "ops_per_second", "seconds", "operations", "errors", "error_count"] {
            assert!(json.get(name).is_some(), "{name} is missing");
        }
        for name in ["mean", "p50", "p90", "p99", "p99.9", "max"] {
            assert!(json["latency_ms"][name].is_number(), "{name} is missing");
        }
    }

    #[test]
    fn errors_with_ever_new_texts_stay_bounded() {
        let mut tally = Tally::new();
        for number in 0..1_000 {
            tally.failed(&format!("error {number}"));
        }
        assert_eq!(tally.errors.len(), ERROR_TEXTS_MAX + 1);
        assert_eq!(tally.errors.values().sum::<u64>(), 1_000);
    }
}
