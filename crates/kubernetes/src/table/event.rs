//! Cells of an event, in its stored form: an older event has two times and a count, a newer one has one
//! time and perhaps a series.

use super::look::{UNKNOWN, number, since, text, time};
use crate::timestamp::Timestamp;
use serde_json::Value;

pub fn first_seen(event: &Value, now: Timestamp) -> String {
    since(time(event, "/firstTimestamp").or_else(|| time(event, "/eventTime")), now)
}

pub fn last_seen(event: &Value, now: Timestamp) -> String {
    if has_series(event) {
        return since(time(event, "/series/lastObservedTime"), now);
    }
    match time(event, "/lastTimestamp") {
        Some(last) => since(Some(last), now),
        None => first_seen(event, now),
    }
}

pub fn count(event: &Value) -> i64 {
    if has_series(event) { number(event, "/series/count") } else { number(event, "/count").max(1) }
}

fn has_series(event: &Value) -> bool {
    event.get("series").is_some_and(Value::is_object)
}

/// `pod/web-0`
pub fn object(event: &Value) -> String {
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let name = text(event, "/involvedObject/name");
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

/// `kubelet, node-1`
pub fn source(event: &Value) -> String {
    let either = |one: &str, other: &str| {
        let found = text(event, one);
        if found.is_empty() { text(event, other).to_owned() } else { found.to_owned() }
    };
    let component = either("/source/component", "/reportingComponent");
    let instance = either("/source/host", "/reportingInstance");
    match (component.as_str(), instance.as_str()) {
        ("", "") => UNKNOWN.to_owned(),
        (_, "") => component,
        ("", _) => instance,
        _ => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use serde_json::json;

    #[test]
    fn an_older_event_and_a_newer_one() {
        let older = json!({
            "type": "Normal", "reason": "Pulled", "message": " done\n", "count": 4,
            "involvedObject": { "kind": "Pod", "name": "web-0" }, "source": { "component": "kubelet", "host": "n1" },
            "firstTimestamp": "2024-01-31T11:00:00Z", "lastTimestamp": "2024-01-31T11:59:00Z",
        });
        check(
            "",
            "events",
            &older,
            &[
                ("Last Seen", json!("60s")),
                ("First Seen", json!("60m")),
                ("Count", json!("4")),
                ("Object", json!("pod/web-0")),
                ("Source", json!("kubelet, n1")),
                ("Message", json!("done")),
            ],
        );
        let newer = json!({
            "eventTime": "2024-01-31T11:58:00.000000Z", "reportingComponent": "c", "involvedObject": { "kind": "Node" },
        });
        check(
            "events.k8s.io",
            "events",
            &newer,
            &[
                ("Last Seen", json!("2m")),
                ("Count", json!("1")),
                ("Object", json!("node")),
                ("Source", json!("c")),
            ],
        );
        let series = json!({ "series": { "count": 9, "lastObservedTime": "2024-01-31T11:59:59.000000Z" } });
        check(
            "",
            "events",
            &series,
            &[("Last Seen", json!("1s")), ("Count", json!("9")), ("Source", json!("<unknown>"))],
        );
    }
}
