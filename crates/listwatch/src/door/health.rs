//! `/healthz`, `/livez` and `/readyz`: alive is whoever answers; ready is who knows the namespaces and the
//! definitions, and hears of changes.

use super::Door;
use super::answer::{self, Body};
use http::{Response, StatusCode};
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::list_plan::ReadAt;
use meerkat_watchcache::request_path::Probe;
use std::sync::atomic::Ordering;
use std::time::Duration;

const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// Of a query; more cannot match a check.
const EXCLUDED_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Ping,
    /// Whether the store is heard of.
    Store,
    Shutdown,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Check::Ping => "ping",
            Check::Store => "etcd",
            Check::Shutdown => "shutdown",
        }
    }

    /// `store`: the name of before.
    fn is_called(self, name: &str) -> bool {
        self.name() == name || (self, name) == (Check::Store, "store")
    }

    async fn passes(self, door: &Door) -> bool {
        match self {
            Check::Ping => true,
            Check::Store => is_ready(door).await,
            Check::Shutdown => !*door.ending.borrow(),
        }
    }
}

fn checks(probe: Probe) -> &'static [Check] {
    match probe {
        Probe::Livez => &[Check::Ping],
        Probe::Healthz => &[Check::Ping, Check::Store],
        Probe::Readyz => &[Check::Ping, Check::Store, Check::Shutdown],
    }
}

fn name(probe: Probe) -> &'static str {
    match probe {
        Probe::Livez => "livez",
        Probe::Healthz => "healthz",
        Probe::Readyz => "readyz",
    }
}

/// How a check came out; `None`: the client left it out.
type Outcome = (Check, Option<bool>);

/// `one`: the check that is asked for, if it is not all of them.
pub async fn answer(
    door: &Door,
    probe: Probe,
    one: Option<&str>,
    query: &Query,
) -> Result<Response<Body>, Refusal> {
    let excluded: Vec<&str> = query.all("exclude").take(EXCLUDED_MAX).collect();
    let mut outcomes = Vec::new();
    for check in checks(probe).iter().copied().filter(|check| one.is_none_or(|name| check.is_called(name))) {
        let is_excluded = one.is_none() && excluded.iter().any(|name| check.is_called(name));
        outcomes.push((check, if is_excluded { None } else { Some(check.passes(door).await) }));
    }
    if outcomes.is_empty() {
        return Err(Refusal::no_such_page());
    }
    let is_verbose = one.is_none() && query.first("verbose").is_some();
    let (passed, text) = report(probe, &outcomes, &excluded, is_verbose);
    let code = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(answer::new(code, "text/plain; charset=utf-8", answer::full(text)))
}

/// Every check on a line of its own if one failed, or somebody wants to know.
fn report(probe: Probe, outcomes: &[Outcome], excluded: &[&str], is_verbose: bool) -> (bool, String) {
    let passed = outcomes.iter().all(|(_, outcome)| *outcome != Some(false));
    if passed && !is_verbose {
        return (true, "ok".to_owned());
    }
    let mut text = String::new();
    for (check, outcome) in outcomes {
        let name = check.name();
        text.push_str(&match outcome {
            None => format!("[+]{name} excluded: ok\n"),
            Some(true) => format!("[+]{name} ok\n"),
            Some(false) => format!("[-]{name} failed: reason withheld\n"),
        });
    }
    let unknown = |name: &&&str| !outcomes.iter().any(|(check, _)| check.is_called(name));
    let unknown: Vec<String> = excluded.iter().filter(unknown).map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    text.push_str(&format!("{} check {}\n", name(probe), if passed { "passed" } else { "failed" }));
    (passed, text)
}

async fn is_ready(door: &Door) -> bool {
    if !door.furnished.load(Ordering::Acquire) {
        return false;
    }
    let registry = door.storage.kinds().now();
    for (group, resource) in super::FIRST_KINDS {
        let Some(kind) = registry.by_group_resource(group, resource) else { return false };
        let Ok(feed) = door.storage.feeds().of(kind) else { return false };
        let read = tokio::time::timeout(READY_TIMEOUT, feed.version(ReadAt::AnyCached)).await;
        // One that is cut off does not hear of what others write: clients are better served elsewhere.
        if !matches!(read, Ok(Ok(_))) || feed.is_cut_off() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_listed_when_asked_for_or_failed() {
        let all = |ping, store| [(Check::Ping, ping), (Check::Store, store), (Check::Shutdown, Some(true))];
        let told = |outcomes: &[Outcome], excluded: &[&str], is_verbose| {
            report(Probe::Readyz, outcomes, excluded, is_verbose)
        };
        let good = all(Some(true), Some(true));
        assert_eq!(told(&good, &[], false), (true, "ok".to_owned()));
        let listed = "[+]ping ok\n[+]etcd ok\n[+]shutdown ok\nreadyz check passed\n";
        assert_eq!(told(&good, &[], true), (true, listed.to_owned()));
        let failed = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(told(&all(Some(true), Some(false)), &[], false), (false, failed.to_owned()));
        let excluded = "[+]ping ok\n[+]etcd excluded: ok\n[+]shutdown ok\n\
             warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n";
        assert_eq!(told(&all(Some(true), None), &["store", "x"], true), (true, excluded.to_owned()));
    }
}
