//! What the door counts, in the text that Prometheus reads.

use crate::keeper::{Deed, Tally};
use meerkat_watchcache::feed::FeedCounters;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// In seconds, each the last of its bucket.
const BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

#[derive(Debug, Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Counts>>);

/// Of one verb.
#[derive(Debug, Default)]
struct Counts {
    by_code: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS_S.len()],
    sum_s: f64,
    total: u64,
}

/// What is counted elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    pub in_flight: usize,
    pub waiting: usize,
    pub watches: usize,
    pub connections: usize,
}

impl Metrics {
    /// How long it took until the answer began.
    pub fn note(&self, verb: &'static str, code: u16, took: Duration) {
        let took_s = took.as_secs_f64();
        let mut verbs = self.0.lock();
        let counts = verbs.entry(verb).or_default();
        *counts.by_code.entry(code).or_default() += 1;
        if let Some(bucket) = BUCKETS_S.iter().position(|last| took_s <= *last) {
            counts.buckets[bucket] += 1;
        }
        counts.sum_s += took_s;
        counts.total += 1;
    }

    pub fn text(&self, gauges: &Gauges) -> String {
        let mut out = String::new();
        let verbs = self.0.lock();
        about(&mut out, "requests_total", "counter", "Requests by verb and status.");
        for (verb, counts) in verbs.iter() {
            for (code, count) in &counts.by_code {
                line(&mut out, "requests_total", &format!("verb=\"{verb}\",code=\"{code}\""), *count as f64);
            }
        }
        about(&mut out, "request_duration_seconds", "histogram", "Time until an answer began.");
        for (verb, counts) in verbs.iter() {
            let mut below = 0;
            for (last, count) in BUCKETS_S.iter().zip(counts.buckets) {
                below += count;
                let labels = format!("verb=\"{verb}\",le=\"{last}\"");
                line(&mut out, "request_duration_seconds_bucket", &labels, below as f64);
            }
            let labels = format!("verb=\"{verb}\",le=\"+Inf\"");
            line(&mut out, "request_duration_seconds_bucket", &labels, counts.total as f64);
            let labels = format!("verb=\"{verb}\"");
            line(&mut out, "request_duration_seconds_sum", &labels, counts.sum_s);
            line(&mut out, "request_duration_seconds_count", &labels, counts.total as f64);
        }
        drop(verbs);
        for (name, help, value) in [
            ("requests_in_flight", "Requests that are being answered.", gauges.in_flight),
            ("requests_waiting", "Requests that wait for their turn.", gauges.waiting),
            ("watches", "Watches that are open.", gauges.watches),
            ("connections", "Connections that are open.", gauges.connections),
        ] {
            about(&mut out, name, "gauge", help);
            line(&mut out, name, "", value as f64);
        }
        out
    }
}

fn about(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP meerkat_listwatch_{name} {help}");
    let _ = writeln!(out, "# TYPE meerkat_listwatch_{name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "meerkat_listwatch_{name}{labels} {value}");
}

/// What is told of each feed, and how it is read.
type Told = (&'static str, &'static str, &'static str, fn(&FeedCounters) -> f64);

const OF_FEEDS: [Told; 15] = [
    ("feed_ready", "gauge", "Whether the cache is filled.", |feed| f64::from(u8::from(feed.ready))),
    ("feed_cut_off", "gauge", "Whether the store is cut off from its cluster.", |feed| {
        f64::from(u8::from(feed.cut_off))
    }),
    ("feed_cut_offs_total", "counter", "Times the store was cut off.", |feed| feed.tally.cut_offs as f64),
    ("feed_objects", "gauge", "Objects in the cache.", |feed| feed.objects as f64),
    ("feed_revision", "gauge", "How far the cache has come.", |feed| feed.revision as f64),
    ("feed_watchers", "gauge", "Watchers that are level.", |feed| feed.watchers_live as f64),
    ("feed_watchers_parked", "gauge", "Watchers that catch up.", |feed| feed.watchers_parked as f64),
    ("feed_ring_events", "gauge", "Events that can be replayed.", |feed| feed.ring_events as f64),
    ("feed_events_total", "counter", "Events seen.", |feed| feed.tally.events as f64),
    ("feed_dispatched_total", "counter", "Lines given to watchers.", |feed| feed.tally.dispatched as f64),
    ("feed_encodes_total", "counter", "Frames made.", |feed| feed.encodes as f64),
    ("feed_forgotten_total", "counter", "Watchers given up on.", |feed| feed.tally.forgotten as f64),
    ("feed_relists_total", "counter", "Times the cache was filled anew.", |feed| feed.tally.relists as f64),
    ("feed_undecodable_total", "counter", "Values that are no objects.", |feed| {
        feed.tally.undecodable as f64
    }),
    ("feed_mismatches_total", "counter", "Checks that found a difference.", |feed| {
        feed.tally.mismatches as f64
    }),
];

pub fn of_keeper(tally: &Tally) -> String {
    let mut out = String::new();
    for deed in Deed::ALL {
        let (name, help) = deed.metric();
        about(&mut out, name, "counter", help);
        line(&mut out, name, "", tally.of(deed) as f64);
    }
    out
}

pub fn of_feeds(feeds: &[FeedCounters]) -> String {
    let mut out = String::new();
    for (name, kind, help, read) in OF_FEEDS {
        about(&mut out, name, kind, help);
        for feed in feeds {
            line(&mut out, name, &format!("place=\"{}\"", feed.place), read(feed));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_told_by_their_place() {
        let feed =
            FeedCounters { place: "pods".to_owned(), objects: 3, ready: true, ..FeedCounters::default() };
        let text = of_feeds(&[feed]);
        assert!(text.contains("meerkat_listwatch_feed_objects{place=\"pods\"} 3\n"), "{text}");
        assert!(text.contains("meerkat_listwatch_feed_ready{place=\"pods\"} 1\n"), "{text}");
    }

    #[test]
    fn what_was_noted_is_told() {
        let metrics = Metrics::default();
        metrics.note("GET", 200, Duration::from_millis(3));
        metrics.note("GET", 200, Duration::from_secs(100));
        metrics.note("GET", 404, Duration::from_millis(3));
        let text = metrics.text(&Gauges { in_flight: 4, ..Gauges::default() });
        for line in [
            "meerkat_listwatch_requests_total{verb=\"GET\",code=\"200\"} 2",
            "meerkat_listwatch_requests_total{verb=\"GET\",code=\"404\"} 1",
            "meerkat_listwatch_request_duration_seconds_bucket{verb=\"GET\",le=\"0.005\"} 2",
            "meerkat_listwatch_request_duration_seconds_bucket{verb=\"GET\",le=\"60\"} 2",
            "meerkat_listwatch_request_duration_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 3",
            "meerkat_listwatch_requests_in_flight 4",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}\n{text}");
        }
    }
}
