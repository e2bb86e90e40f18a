//! The text format of Prometheus, one metric after the other.

use meerkat_raft::Histogram;
use std::fmt::Write;

#[derive(Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str, samples: &[(&str, f64)]) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, *value);
        }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, "gauge", help, &[("", value)]);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.metric(name, "counter", help, &[("", value as f64)]);
    }

    /// `buckets` as upper bound and count of that bucket alone.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        self.head(name, "histogram", help);
        self.buckets(name, "", buckets, sum);
    }

    pub(super) fn seconds(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.histogram(name, help, histogram.buckets(), histogram.total().as_secs_f64());
    }

    pub(super) fn milliseconds(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let buckets = histogram.buckets().map(|(bound, count)| (bound * 1e3, count));
        self.histogram(name, help, buckets, histogram.total().as_secs_f64() * 1e3);
    }

    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `labels` in braces, or nothing.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// One row of a histogram; `labels` without braces.
    pub(super) fn buckets(
        &mut self,
        name: &str,
        labels: &str,
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let comma = if labels.is_empty() { "" } else { "," };
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let mut total = 0;
        for (bound, count) in buckets {
            total += count;
            if bound.is_finite() {
                let _ = writeln!(self.0, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
            }
        }
        let _ = writeln!(
            self.0,
            "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {total}\n{name}_sum{braced} {sum}\n{name}_count{braced} {total}"
        );
    }
}

/// A label's value: backslashes, quotes and line ends are the only letters that need care.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_a_histogram_add_up() {
        let mut page = Page::default();
        page.histogram("h", "Help.", [(0.5, 2), (1.0, 1), (f64::INFINITY, 4)].into_iter(), 9.5);
        let expected = "# HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 2\nh_bucket{le=\"1\"} 3\n\
                        h_bucket{le=\"+Inf\"} 7\nh_sum 9.5\nh_count 7\n";
        assert_eq!(page.0, expected);
    }

    #[test]
    fn a_row_of_a_histogram_has_its_labels() {
        let mut page = Page::default();
        page.buckets("h", "To=\"1\"", [(0.5, 2), (f64::INFINITY, 0)].into_iter(), 0.5);
        let expected = "h_bucket{To=\"1\",le=\"0.5\"} 2\nh_bucket{To=\"1\",le=\"+Inf\"} 2\n\
                        h_sum{To=\"1\"} 0.5\nh_count{To=\"1\"} 2\n";
        assert_eq!(page.0, expected);
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\n");
    }
}
