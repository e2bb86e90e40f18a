//! What came out of a watch load, for people and for programs.
//!
//! A figure that was not measured is absent, and never zero. `faults` is empty if and only if every
//! watcher got exactly what it was owed.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::bench::report::Latency;

#[derive(Debug, Serialize)]
pub struct WatchReport {
    pub workload: &'static str,
    pub endpoints: Vec<String>,
    pub watchers: usize,
    pub streams: usize,
    pub watch_connections: usize,
    pub clients: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    pub value_size: usize,
    pub creation: Creation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puts: Option<Puts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Deliveries>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<MembersCost>,
    /// What watchers got and should not have, or the other way round; and why the run ended early.
    pub faults: Vec<String>,
    pub error_count: u64,
    pub errors: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub struct Creation {
    pub one_at_a_time: bool,
    pub seconds: f64,
    pub per_second: f64,
}

#[derive(Debug, Serialize)]
pub struct Puts {
    pub answered: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub latency_ms: Latency,
}

#[derive(Debug, Serialize)]
pub struct Deliveries {
    pub expected: u64,
    pub received: u64,
    /// Until the last event arrived: since the first put, or since the watchers were asked for.
    pub seconds: f64,
    pub per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Latency>,
    pub generator_cpu_s_per_1000: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_cpu_s_per_1000: Option<f64>,
}

/// Of all members together.
#[derive(Debug, Serialize)]
pub struct MembersCost {
    pub creation_cpu_s: f64,
    /// From the first put, or of a catch-up from the first watcher, until the last event or answer.
    pub load_cpu_s: f64,
    pub rss_before_bytes: u64,
    /// With the watchers and before any put. Absent if the puts came first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_idle_bytes: Option<u64>,
    pub rss_end_bytes: u64,
    /// What an idle watcher adds, with its share of streams and connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_per_watcher: Option<f64>,
}

/// How many of something in a second; nothing took no time, or there was none.
pub fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

impl WatchReport {
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
        let way = if self.creation.one_at_a_time { "one at a time per stream" } else { "pipelined" };
        let created = format!(
            "{} in {:.3} s, {way}: {:.0}/s",
            self.watchers, self.creation.seconds, self.creation.per_second
        );
        line("created", created);
        if let Some(puts) = &self.puts {
            line("puts", format!("{} in {:.3} s: {:.1}/s", puts.answered, puts.seconds, puts.per_second));
            line("put ms", puts.latency_ms.text());
        }
        if let Some(deliveries) = &self.deliveries {
            for (label, rest) in deliveries.lines() {
                line(label, rest);
            }
        }
        if let Some(members) = &self.members {
            line("memory", members.line());
        }
        for (error, count) in &self.errors {
            line("errors", format!("{count} x {error}"));
        }
        if self.faults.is_empty() {
            line("events", "every watcher got exactly what it was owed".to_owned());
        }
        for fault in &self.faults {
            line("FAULT", fault.clone());
        }
        text
    }

    fn load_line(&self) -> String {
        let pace =
            self.rate.map_or("as fast as answered".to_owned(), |rate| format!("{rate} puts/s intended"));
        format!(
            "{}, {} watchers on {} streams on {} connections; {} writers, {pace}, {}-byte values",
            self.workload, self.watchers, self.streams, self.watch_connections, self.clients, self.value_size
        )
    }
}

impl Deliveries {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![(
            "deliveries",
            format!(
                "{} of {} in {:.3} s: {:.0}/s",
                self.received, self.expected, self.seconds, self.per_second
            ),
        )];
        if let Some(latency) = &self.latency_ms {
            lines.push(("event ms", latency.text()));
        }
        let members = self.member_cpu_s_per_1000.map(|cpu| format!("members {cpu:.5}, ")).unwrap_or_default();
        let cost = format!("{members}generator {:.5} s per 1,000 deliveries", self.generator_cpu_s_per_1000);
        lines.push(("CPU", cost));
        lines
    }
}

impl MembersCost {
    fn line(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let idle = self.rss_idle_bytes.map(|bytes| format!("idle {:.1}, ", mib(bytes))).unwrap_or_default();
        let each = self.rss_bytes_per_watcher.map(|bytes| format!(", {bytes:.0} bytes a watcher"));
        format!(
            "members' RSS before {:.1}, {idle}at the end {:.1} MiB{}",
            mib(self.rss_before_bytes),
            mib(self.rss_end_bytes),
            each.unwrap_or_default()
        )
    }
}
