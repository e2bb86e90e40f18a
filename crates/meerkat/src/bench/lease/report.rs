//! What came out of a lease load, for people and for programs.
//!
//! A figure that was not measured is absent, and never zero. `faults` is empty if and only if the run
//! went to its end and no lease was lost.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::bench::report::Latency;

#[derive(Debug, Serialize)]
pub struct LeaseReport {
    pub workload: &'static str,
    pub endpoints: Vec<String>,
    pub leases: usize,
    pub ttl_seconds: u32,
    pub streams: usize,
    pub connections: usize,
    /// Grants or renewals, whichever are the load.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puts: Option<Puts>,
    /// Why the run ended early, or proves nothing.
    pub faults: Vec<String>,
    pub error_count: u64,
    pub errors: BTreeMap<String, u64>,
}

/// One load from its begin to its last answer.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub seconds: f64,
    pub operations: u64,
    pub ops_per_second: f64,
    pub latency_ms: Latency,
    pub generator_cpu_s_per_1000: f64,
    /// Of all members together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_cpu_s_per_1000: Option<f64>,
}

/// Phases of puts, as they were measured in turn.
#[derive(Debug, Serialize)]
pub struct Puts {
    pub clients: usize,
    /// Before there was any lease.
    pub before: Vec<Phase>,
    /// While the leases live and nobody renews them.
    pub idle: Vec<Phase>,
    /// While all of them are renewed in a third of their time.
    pub renewed: Vec<Phase>,
    /// Those of all phases together.
    pub renewals: Renewals,
}

#[derive(Debug, Serialize)]
pub struct Phase {
    pub operations: u64,
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Of all members together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_cpu_s: Option<f64>,
    /// Renewals that were answered meanwhile.
    pub renewals_per_second: f64,
}

#[derive(Debug, Serialize)]
pub struct Renewals {
    pub answered: u64,
    pub latency_ms: Latency,
}

/// The middle one of some numbers; of an even count, the mean of the two.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.len(), numbers.get(middle)) {
        (_, None) => 0.0,
        (length, Some(upper)) if length % 2 == 1 => *upper,
        (_, Some(upper)) => (numbers[middle - 1] + upper) / 2.0,
    }
}

impl LeaseReport {
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts only")
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |label: &str, rest: String| {
            writeln!(text, "  {label:<11} {rest}").expect("writing to a string cannot fail");
        };
        line("load", self.load_line());
        line("endpoints", self.endpoints.join(", "));
        if let Some(measured) = &self.measured {
            line("operations", format!("{} in {:.3} s", measured.operations, measured.seconds));
            line("throughput", format!("{:.1} op/s", measured.ops_per_second));
            line("latency ms", measured.latency_ms.text());
            let members =
                measured.member_cpu_s_per_1000.map(|cpu| format!("members {cpu:.5}, ")).unwrap_or_default();
            let generator = measured.generator_cpu_s_per_1000;
            line("CPU", format!("{members}generator {generator:.5} s per 1,000 operations"));
        }
        if let Some(puts) = &self.puts {
            for (label, rest) in puts.lines() {
                line(label, rest);
            }
        }
        if self.errors.is_empty() {
            line("errors", "none".to_owned());
        }
        for (error, count) in &self.errors {
            line("errors", format!("{count} x {error}"));
        }
        for fault in &self.faults {
            line("FAULT", fault.clone());
        }
        text
    }

    fn load_line(&self) -> String {
        let on = format!("on {} connections", self.connections);
        match (&self.puts, self.leases) {
            (Some(puts), leases) => format!(
                "{}, {} clients; {leases} leases of {} s on {} streams {on}",
                self.workload, puts.clients, self.ttl_seconds, self.streams
            ),
            (None, 0) => format!(
                "{}, leases of {} s, {} clients {on}, as fast as answered",
                self.workload, self.ttl_seconds, self.streams
            ),
            (None, leases) => format!(
                "{}, {leases} leases of {} s, {} streams {on}, as fast as answered",
                self.workload, self.ttl_seconds, self.streams
            ),
        }
    }
}

impl Puts {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let row = |phases: &[Phase], what: &str| {
            let rates: Vec<f64> = phases.iter().map(|phase| phase.per_second).collect();
            let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rates.iter().copied().fold(0.0, f64::max);
            let p99 = median(phases.iter().map(|phase| phase.p99_ms).collect());
            format!("{:.0}/s ({low:.0} to {high:.0}), p99 {p99:.2} ms, {what}", median(rates))
        };
        let ratios = self.idle.iter().zip(&self.renewed);
        let ratios: Vec<f64> = ratios.map(|(idle, renewed)| renewed.per_second / idle.per_second).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let rates = self.renewed.iter().map(|phase| phase.renewals_per_second).collect();
        vec![
            ("puts", row(&self.before, "before there was a lease")),
            ("puts", row(&self.idle, "leases live, not renewed")),
            ("puts", row(&self.renewed, "leases renewed in a third of their time")),
            ("ratio", format!("{:.3} within a pair ({low:.3} to {high:.3})", median(ratios.clone()))),
            ("renewals", format!("{} in all, {:.0}/s", self.renewals.answered, median(rates))),
            ("renewal ms", self.renewals.latency_ms.text()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        for (numbers, expected) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 2.0, 9.0], 3.0)]
        {
            assert!((median(numbers) - expected).abs() < 1e-9);
        }
    }
}
