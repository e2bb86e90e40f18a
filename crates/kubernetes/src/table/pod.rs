//! What a pod is doing, in one word: the most telling thing that any of its containers has to say.
//!
//! Containers that prepare the pod speak first, and while one of them is at work the others do not. Then the
//! first container of the pod has the last word. A pod that is being deleted is said to be terminating.

use super::look::{NONE, condition, flag, list, number, since, text, time};
use crate::timestamp::Timestamp;
use serde_json::Value;

pub struct Summary {
    pub reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    pub fn of(pod: &Value) -> Summary {
        let sidecars =
            list(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Summary {
            reason: first_word(pod).to_owned(),
            ready: 0,
            containers: list(pod, "/spec/containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let preparing = summary.prepare(pod);
        if !preparing || condition(pod, "Initialized") == Some("True") {
            summary.run(pod);
        }
        summary.end(pod);
        summary
    }

    pub fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.containers)
    }

    pub fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(_) if self.restarts > 0 => {
                format!("{} ({} ago)", self.restarts, since(self.last_restart, now))
            }
            _ => self.restarts.to_string(),
        }
    }

    /// The containers that come first. Whether one of them is still at it.
    fn prepare(&mut self, pod: &Value) -> bool {
        let specs = list(pod, "/spec/initContainers");
        for (at, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let sidecar =
                specs.iter().any(|spec| is_sidecar(spec) && text(spec, "/name") == text(status, "/name"));
            if exit_code(status) == Some(0) {
                continue;
            }
            if sidecar && flag(status, "/started") {
                self.ready += usize::from(flag(status, "/ready"));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match ended(status) {
                Some(why) => format!("Init:{why}"),
                None if waiting.is_empty() || waiting == "PodInitializing" => {
                    format!("Init:{at}/{}", specs.len())
                }
                None => format!("Init:{waiting}"),
            };
            return true;
        }
        false
    }

    fn run(&mut self, pod: &Value) {
        self.forget_preparation(pod);
        let (mut running, mut failure) = (false, None);
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(why) = ended(status) {
                failure = if exit_code(status) == Some(0) { failure } else { Some(why.clone()) };
                self.reason = why;
            } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // One container is done; what of the others?
        if self.reason == "Completed" {
            self.reason = match (running && condition(pod, "Ready") == Some("True"), failure) {
                (true, _) => "Running".to_owned(),
                (false, Some(failure)) => failure,
                (false, None) if running => "NotReady".to_owned(),
                (false, None) => "Completed".to_owned(),
            };
        }
    }

    /// Of the containers that came first, only those that stay count from now on.
    fn forget_preparation(&mut self, pod: &Value) {
        (self.restarts, self.last_restart) = (0, None);
        let specs = list(pod, "/spec/initContainers");
        for status in list(pod, "/status/initContainerStatuses") {
            if specs.iter().any(|spec| is_sidecar(spec) && text(spec, "/name") == text(status, "/name")) {
                self.count_restarts(status);
            }
        }
    }

    fn end(&mut self, pod: &Value) {
        if text(pod, "/metadata/deletionTimestamp").is_empty() {
            return;
        }
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut self.reason);
        } else if !["Succeeded", "Failed"].contains(&text(pod, "/status/phase")) {
            "Terminating".clone_into(&mut self.reason);
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts = self.restarts.saturating_add(number(status, "/restartCount"));
        self.last_restart = self.last_restart.max(time(status, "/lastState/terminated/finishedAt"));
    }
}

fn first_word(pod: &Value) -> &str {
    let gated = |condition: &Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
    };
    if list(pod, "/status/conditions").iter().any(gated) {
        return "SchedulingGated";
    }
    let reason = text(pod, "/status/reason");
    if reason.is_empty() { text(pod, "/status/phase") } else { reason }
}

/// A container that comes first and stays.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn exit_code(status: &Value) -> Option<i64> {
    status.pointer("/state/terminated").map(|state| number(state, "/exitCode"))
}

/// How a container came to its end.
fn ended(status: &Value) -> Option<String> {
    let state = status.pointer("/state/terminated")?;
    let (reason, signal) = (text(state, "/reason"), number(state, "/signal"));
    Some(match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", number(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    })
}

pub fn ip(pod: &Value) -> String {
    let first = list(pod, "/status/podIPs").first().map(|ip| text(ip, "/ip")).unwrap_or_default();
    let ip = if first.is_empty() { text(pod, "/status/podIP") } else { first };
    if ip.is_empty() { NONE.to_owned() } else { ip.to_owned() }
}

pub fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open =
        gates.iter().filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True")).count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Value {
        json!({
            "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "x" }, { "name": "y" }], "initContainers": [{ "name": "i" }] },
            "status": status,
        })
    }

    #[test]
    fn one_word_for_what_a_pod_is_doing() {
        let running = json!({ "ready": true, "state": { "running": {} } });
        let done = json!({ "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        for (status, word, count) in [
            (json!({ "phase": "Pending" }), "Pending", "0/2"),
            (json!({ "phase": "Running", "containerStatuses": [running, running] }), "Running", "2/2"),
            (json!({ "phase": "Failed", "reason": "Evicted" }), "Evicted", "0/2"),
            (
                json!({ "containerStatuses": [{ "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] }),
                "CrashLoopBackOff",
                "0/2",
            ),
            (
                json!({ "containerStatuses": [{ "state": { "terminated": { "exitCode": 3 } } }] }),
                "ExitCode:3",
                "0/2",
            ),
            (
                json!({ "containerStatuses": [{ "state": { "terminated": { "signal": 9 } } }] }),
                "Signal:9",
                "0/2",
            ),
            (json!({ "conditions": ready, "containerStatuses": [done, running] }), "Running", "1/2"),
            (json!({ "containerStatuses": [done, running] }), "NotReady", "1/2"),
            (json!({ "containerStatuses": [done, done] }), "Completed", "0/2"),
            (
                json!({ "initContainerStatuses": [{ "state": { "running": {} } }], "containerStatuses": [running] }),
                "Init:0/1",
                "0/2",
            ),
            (
                json!({ "initContainerStatuses": [{ "state": { "waiting": { "reason": "ErrImagePull" } } }] }),
                "Init:ErrImagePull",
                "0/2",
            ),
            (
                json!({ "initContainerStatuses": [{ "state": { "terminated": { "exitCode": 1 } } }] }),
                "Init:ExitCode:1",
                "0/2",
            ),
            (
                json!({ "initContainerStatuses": [done], "phase": "Running", "containerStatuses": [running] }),
                "Running",
                "1/2",
            ),
            (
                json!({ "conditions": [{ "type": "PodScheduled", "reason": "SchedulingGated" }] }),
                "SchedulingGated",
                "0/2",
            ),
        ] {
            check("", "pods", &pod(status), &[("Status", json!(word)), ("Ready", json!(count))]);
        }
    }

    #[test]
    fn a_pod_that_is_being_deleted() {
        let mut object = pod(json!({ "phase": "Running" }));
        object["metadata"]["deletionTimestamp"] = json!("2024-01-31T11:00:00Z");
        check("", "pods", &object, &[("Status", json!("Terminating"))]);
        object["status"]["reason"] = json!("NodeLost");
        check("", "pods", &object, &[("Status", json!("Unknown"))]);
    }

    #[test]
    fn restarts_and_the_last_of_them() {
        let last = json!({ "terminated": { "finishedAt": "2024-01-31T11:55:00Z" } });
        let object = pod(
            json!({ "containerStatuses": [{ "restartCount": 2, "lastState": last }, { "restartCount": 1 }] }),
        );
        check("", "pods", &object, &[("Restarts", json!("3 (5m ago)"))]);
        check("", "pods", &pod(json!({})), &[("Restarts", json!("0"))]);
    }

    #[test]
    fn what_is_shown_to_those_who_ask_for_more() {
        let mut object = pod(
            json!({ "podIPs": [{ "ip": "10.0.0.1" }], "conditions": [{ "type": "g", "status": "True" }] }),
        );
        object["spec"]["readinessGates"] = json!([{ "conditionType": "g" }, { "conditionType": "h" }]);
        check(
            "",
            "pods",
            &object,
            &[("IP", json!("10.0.0.1")), ("Node", json!("<none>")), ("Readiness Gates", json!("1/2"))],
        );
    }
}
