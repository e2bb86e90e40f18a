//! How the checks of `/livez` and `/readyz` came out, by the names that alerts ask for.

use super::page::Page;
use meerkat_fault::Mutex;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Default)]
struct Outcomes {
    passed: u64,
    failed: u64,
    last_passed: bool,
}

/// By path and check. Both are names of ours, so there are only a few.
#[derive(Default)]
pub(super) struct HealthChecks(Mutex<BTreeMap<(&'static str, &'static str), Outcomes>>);

impl HealthChecks {
    pub(super) fn count(&self, path: &'static str, check: &'static str, passed: bool) {
        let mut checks = self.0.lock();
        let outcomes = checks.entry((path, check)).or_default();
        *(if passed { &mut outcomes.passed } else { &mut outcomes.failed }) += 1;
        outcomes.last_passed = passed;
    }

    pub(super) fn render(&self, page: &mut Page) {
        let checks = self.0.lock().clone();
        let name = "etcd_server_healthcheck";
        page.head(name, "gauge", "Whether a check passed when it was last made.");
        for ((path, check), outcomes) in &checks {
            let passed = if outcomes.last_passed { 1.0 } else { 0.0 };
            page.sample(name, &format!("{{type=\"{path}\",name=\"{check}\"}}"), passed);
        }
        let name = "etcd_server_healthchecks_total";
        page.head(name, "counter", "Checks made, by how they came out.");
        for ((path, check), outcomes) in &checks {
            for (status, count) in [("success", outcomes.passed), ("error", outcomes.failed)] {
                let labels = format!("{{type=\"{path}\",name=\"{check}\",status=\"{status}\"}}");
                page.sample(name, &labels, count as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_is_told_and_all_are_counted() {
        let checks = HealthChecks::default();
        for passed in [true, true, false] {
            checks.count("readyz", "linearizable_read", passed);
        }
        let mut page = Page::default();
        checks.render(&mut page);
        for line in [
            "etcd_server_healthcheck{type=\"readyz\",name=\"linearizable_read\"} 0\n",
            "etcd_server_healthchecks_total{type=\"readyz\",name=\"linearizable_read\",status=\"success\"} 2\n",
            "etcd_server_healthchecks_total{type=\"readyz\",name=\"linearizable_read\",status=\"error\"} 1\n",
        ] {
            assert!(page.0.contains(line), "{line}{}", page.0);
        }
    }
}
