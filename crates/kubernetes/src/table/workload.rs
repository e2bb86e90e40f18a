//! Cells of what runs pods: sets, deployments, jobs, and what scales them.

use super::look::{NONE, UNKNOWN, condition, labels, list, map, number, since, text, time};
use crate::timestamp::{Timestamp, human_age};
use serde_json::Value;

/// Where the pods' template is: a cron job keeps it in a job's, a pod template in itself.
fn template(object: &Value) -> Option<&Value> {
    ["/spec/jobTemplate/spec/template", "/spec/template", "/template"]
        .iter()
        .find_map(|pointer| object.pointer(pointer))
}

/// Their names or their images.
pub fn containers(object: &Value, field: &str) -> String {
    let containers = template(object).map(|template| list(template, "/spec/containers")).unwrap_or_default();
    let shown: Vec<&str> = containers.iter().map(|container| text(container, field)).collect();
    shown.join(",")
}

pub fn pod_labels(object: &Value) -> String {
    labels(template(object).and_then(|template| map(template, "/metadata/labels")))
}

/// `2/3`
pub fn replicas_ready(object: &Value) -> String {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"))
}

pub fn job_status(job: &Value) -> &'static str {
    let holds = |of_type: &str| condition(job, of_type) == Some("True");
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if !text(job, "/metadata/deletionTimestamp").is_empty() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub fn job_completions(job: &Value) -> String {
    let done = number(job, "/status/succeeded");
    match (job.pointer("/spec/completions").and_then(Value::as_i64), number(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

/// From its start to its end, or until now.
pub fn job_duration(job: &Value, now: Timestamp) -> String {
    let end = time(job, "/status/completionTime").unwrap_or(now);
    time(job, "/status/startTime").map(|start| human_age(start.age_s(end))).unwrap_or_default()
}

pub fn last_schedule(job: &Value, now: Timestamp) -> String {
    match time(job, "/status/lastScheduleTime") {
        Some(last) => since(Some(last), now),
        None => NONE.to_owned(),
    }
}

pub fn scale_target(object: &Value) -> String {
    format!("{}/{}", text(object, "/spec/scaleTargetRef/kind"), text(object, "/spec/scaleTargetRef/name"))
}

/// `cpu: 30%/80%`: where each measure stands, and where it is wanted.
pub fn scale_metrics(object: &Value) -> String {
    const SHOWN_MAX: usize = 2;
    let wanted = list(object, "/spec/metrics");
    let current = list(object, "/status/currentMetrics");
    let measures: Vec<String> = wanted
        .iter()
        .take(SHOWN_MAX)
        .enumerate()
        .map(|(at, metric)| scale_metric(metric, current.get(at).unwrap_or(&Value::Null)))
        .collect();
    match wanted.len() {
        0 => NONE.to_owned(),
        count if count > SHOWN_MAX => format!("{} + {} more...", measures.join(", "), count - SHOWN_MAX),
        _ => measures.join(", "),
    }
}

fn scale_metric(wanted: &Value, current: &Value) -> String {
    let (source, named, otherwise) = match text(wanted, "/type") {
        "Resource" => ("resource", true, "<auto>"),
        "ContainerResource" => ("containerResource", true, "<auto>"),
        "Pods" => ("pods", false, UNKNOWN),
        "Object" => ("object", false, UNKNOWN),
        "External" => ("external", false, UNKNOWN),
        _ => return "<unknown type>".to_owned(),
    };
    let value = |object: &Value, place: &str| -> Option<String> {
        let at = |field: &str| object.pointer(&format!("/{source}/{place}/{field}"));
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let amount = at("averageValue").or_else(|| at("value")).map(plain);
        let share = || at("averageUtilization").map(|share| format!("{share}%"));
        amount.or_else(share)
    };
    let prefix =
        if named { format!("{}: ", text(wanted, &format!("/{source}/name"))) } else { String::new() };
    let stands = value(current, "current").unwrap_or_else(|| UNKNOWN.to_owned());
    let target = value(wanted, "target").unwrap_or_else(|| otherwise.to_owned());
    let average = wanted.pointer(&format!("/{source}/target/averageValue")).is_some();
    let note = if average && ["object", "external"].contains(&source) { " (avg)" } else { "" };
    format!("{prefix}{stands}/{target}{note}")
}

/// `statefulset.apps/web`
pub fn controller(object: &Value) -> String {
    let owners = list(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true))) else {
        return NONE.to_owned();
    };
    let group =
        text(owner, "/apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use serde_json::json;

    #[test]
    fn a_deployment_and_its_replicas() {
        let object = json!({
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "web" }, "matchExpressions": [
                    { "key": "tier", "operator": "In", "values": ["a", "b"] },
                    { "key": "old", "operator": "DoesNotExist" },
                ] },
                "template": { "spec": { "containers": [
                    { "name": "a", "image": "x:1" }, { "name": "b", "image": "y:2" },
                ] } },
            },
            "status": { "readyReplicas": 2, "updatedReplicas": 1 },
        });
        check(
            "apps",
            "deployments",
            &object,
            &[
                ("Ready", json!("2/3")),
                ("Up-to-date", json!("1")),
                ("Available", json!("0")),
                ("Containers", json!("a,b")),
                ("Images", json!("x:1,y:2")),
                ("Selector", json!("app=web,tier in (a,b),!old")),
            ],
        );
    }

    #[test]
    fn a_job_and_how_long_it_took() {
        let job = json!({
            "spec": { "completions": 2 },
            "status": {
                "succeeded": 2, "startTime": "2024-01-31T11:00:00Z", "completionTime": "2024-01-31T11:00:30Z",
                "conditions": [{ "type": "Complete", "status": "True" }],
            },
        });
        let done = [("Status", json!("Complete")), ("Completions", json!("2/2")), ("Duration", json!("30s"))];
        check("batch", "jobs", &job, &done);
        let parallel =
            json!({ "spec": { "parallelism": 4 }, "status": { "startTime": "2024-01-31T11:59:00Z" } });
        let busy =
            [("Status", json!("Running")), ("Completions", json!("0/1 of 4")), ("Duration", json!("60s"))];
        check("batch", "jobs", &parallel, &busy);
    }

    #[test]
    fn an_autoscaler_and_its_measures() {
        let object = json!({
            "spec": {
                "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "maxReplicas": 5,
                "metrics": [
                    { "type": "Resource", "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } },
                    { "type": "Pods", "pods": { "target": { "averageValue": "1k" } } },
                    { "type": "External" },
                ],
            },
            "status": { "currentMetrics": [{ "resource": { "current": { "averageUtilization": 30 } } }] },
        });
        check(
            "autoscaling",
            "horizontalpodautoscalers",
            &object,
            &[
                ("Reference", json!("Deployment/web")),
                ("MinPods", json!("<unset>")),
                ("MaxPods", json!("5")),
                ("Targets", json!("cpu: 30%/80%, <unknown>/1k + 1 more...")),
            ],
        );
    }

    #[test]
    fn a_revision_names_its_controller() {
        let owner =
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true });
        let object = json!({ "metadata": { "ownerReferences": [owner] }, "revision": 3 });
        let expected = [("Controller", json!("statefulset.apps/web")), ("Revision", json!("3"))];
        check("apps", "controllerrevisions", &object, &expected);
    }
}
