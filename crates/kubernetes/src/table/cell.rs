//! One cell: a column's value for one object.
//!
//! A path that leads to several values shows them with commas.

use super::look::{list, map, selector, since, text_or, time};
use super::{cluster, event, network, pod, workload};
use crate::json_path::JsonPath;
use crate::registry::{Column, ColumnSource, NamedCell};
use crate::timestamp::Timestamp;
use serde_json::{Value, json};

pub fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match &column.source {
        ColumnSource::Path(path) => at_path(column, path, object),
        ColumnSource::Since(path) => match path.first(object).and_then(Value::as_str) {
            Some(found) => json!(since(Timestamp::parse(found), now)),
            None => Value::Null,
        },
        ColumnSource::Named(name) => named(*name, object, now),
    }
}

fn at_path(column: &Column, path: &JsonPath, object: &Value) -> Value {
    let found = path.find(object);
    let found: Vec<&Value> = found.into_iter().filter(|value| !value.is_null() && **value != "").collect();
    match (column.data_type.as_str(), found.as_slice()) {
        (_, []) => column.missing.clone(),
        ("integer" | "number", [number, ..]) if number.is_number() => (*number).clone(),
        ("boolean", [truth, ..]) if truth.is_boolean() => (*truth).clone(),
        ("integer" | "number" | "boolean", _) => Value::Null,
        (_, all) => json!(all.iter().map(|value| plain(value)).collect::<Vec<String>>().join(",")),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn count(object: &Value, pointer: &str) -> Value {
    json!(list(object, pointer).len())
}

fn data_count(object: &Value) -> String {
    let size = |pointer: &str| map(object, pointer).map_or(0, serde_json::Map::len);
    (size("/data") + size("/binaryData")).to_string()
}

fn named(name: NamedCell, object: &Value, now: Timestamp) -> Value {
    let text = match name {
        NamedCell::ActiveCount => return count(object, "/status/active"),
        NamedCell::DriverCount => return count(object, "/spec/drivers"),
        NamedCell::WebhookCount => return count(object, "/webhooks"),
        NamedCell::Age => since(time(object, "/metadata/creationTimestamp"), now),
        NamedCell::DataCount => data_count(object),
        NamedCell::PodReady => pod::Summary::of(object).ready(),
        NamedCell::PodStatus => pod::Summary::of(object).reason,
        NamedCell::PodRestarts => pod::Summary::of(object).restarts(now),
        NamedCell::PodIp => pod::ip(object),
        NamedCell::PodReadinessGates => pod::readiness_gates(object),
        NamedCell::PodLabels => workload::pod_labels(object),
        NamedCell::Containers => workload::containers(object, "/name"),
        NamedCell::Images => workload::containers(object, "/image"),
        NamedCell::ReplicasReady => workload::replicas_ready(object),
        NamedCell::Selector => selector(object, "/spec/selector"),
        NamedCell::PodSelector => selector(object, "/spec/podSelector"),
        NamedCell::NodeSelector => selector(object, "/spec/template/spec/nodeSelector"),
        NamedCell::JobTemplateSelector => selector(object, "/spec/jobTemplate/spec/selector"),
        NamedCell::JobStatus => workload::job_status(object).to_owned(),
        NamedCell::JobCompletions => workload::job_completions(object),
        NamedCell::JobDuration => workload::job_duration(object, now),
        NamedCell::LastSchedule => workload::last_schedule(object, now),
        NamedCell::ScaleTarget => workload::scale_target(object),
        NamedCell::ScaleMetrics => workload::scale_metrics(object),
        NamedCell::Controller => workload::controller(object),
        NamedCell::ServiceExternalIp => network::service_external_ip(object),
        NamedCell::ServicePorts => network::service_ports(object),
        NamedCell::Endpoints => network::endpoints(object),
        NamedCell::SlicePorts => network::slice_ports(object),
        NamedCell::SliceEndpoints => network::slice_endpoints(object),
        NamedCell::IngressClass => network::ingress_class(object),
        NamedCell::IngressHosts => network::ingress_hosts(object),
        NamedCell::IngressPorts => network::ingress_ports(object).to_owned(),
        NamedCell::LoadBalancer => network::load_balancer(object),
        NamedCell::ClassParameters => network::class_parameters(object),
        NamedCell::NodeStatus => cluster::node_status(object),
        NamedCell::NodeRoles => cluster::node_roles(object),
        NamedCell::AccessModes => cluster::access_modes(object, "/spec/accessModes"),
        NamedCell::ClaimAccessModes => cluster::access_modes(object, "/status/accessModes"),
        NamedCell::VolumeClaim => cluster::volume_claim(object),
        NamedCell::VolumeStatus => terminating_or_phase(object),
        NamedCell::QuotaRequests => cluster::quota(object, false),
        NamedCell::QuotaLimits => cluster::quota(object, true),
        NamedCell::Role => cluster::role(object),
        NamedCell::SubjectUsers => cluster::subjects(object, "User"),
        NamedCell::SubjectGroups => cluster::subjects(object, "Group"),
        NamedCell::SubjectAccounts => cluster::subjects(object, "ServiceAccount"),
        NamedCell::EventLastSeen => event::last_seen(object, now),
        NamedCell::EventFirstSeen => event::first_seen(object, now),
        NamedCell::EventObject => event::object(object),
        NamedCell::EventSource => event::source(object),
        NamedCell::EventMessage => text_or(object, "/message", "").trim().to_owned(),
        NamedCell::EventCount => event::count(object).to_string(),
    };
    Value::String(text)
}

fn terminating_or_phase(object: &Value) -> String {
    let going = object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if going { "Terminating".to_owned() } else { text_or(object, "/status/phase", "").to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, now};
    use super::*;
    use crate::crd;

    fn custom(data_type: &str, path: &str, object: &Value) -> Value {
        let mut definition = crd::tests::established(crd::tests::example());
        definition["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{ "name": "X", "type": data_type, "jsonPath": path }]);
        let kinds = crd::Definition::parse(&definition).expect("good").kinds();
        cell(&kinds[0].columns[1], object, now())
    }

    #[test]
    fn cells_of_custom_columns() {
        let object = json!({
            "metadata": { "creationTimestamp": "2024-01-31T11:59:30Z" },
            "spec": { "n": 3, "f": 1.5, "b": true, "s": "x", "l": ["a", "b"], "m": { "k": 1 } },
        });
        for (data_type, path, expected) in [
            ("integer", ".spec.n", json!(3)),
            ("number", ".spec.f", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("string", ".spec.s", json!("x")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.l[*]", json!("a,b")),
            ("string", ".spec.m", json!("{\"k\":1}")),
            ("integer", ".spec.s", json!(null)),
            ("string", ".spec.missing", json!(null)),
            ("date", ".metadata.creationTimestamp", json!("30s")),
            ("date", ".spec.missing", json!(null)),
            ("date", ".spec.s", json!("<unknown>")),
        ] {
            assert_eq!(custom(data_type, path, &object), expected, "{data_type} {path}");
        }
    }

    #[test]
    fn what_is_absent_in_a_built_in_kind_is_zero_or_empty() {
        let nothing = json!({});
        check("apps", "replicasets", &nothing, &[("Desired", json!(0)), ("Age", json!("<unknown>"))]);
        check("", "namespaces", &nothing, &[("Status", json!(""))]);
        check("batch", "cronjobs", &nothing, &[("Suspend", json!(false)), ("Timezone", json!("<none>"))]);
        check("policy", "poddisruptionbudgets", &nothing, &[("Min Available", json!("N/A"))]);
    }

    #[test]
    fn roles_show_when_they_were_made() {
        let role = json!({ "metadata": { "name": "a", "creationTimestamp": "2024-01-31T11:59:30Z" } });
        let made = json!("2024-01-31T11:59:30Z");
        check("rbac.authorization.k8s.io", "clusterroles", &role, &[("Created At", made)]);
    }

    #[test]
    fn a_volume_that_is_going_says_so() {
        let mut claim = json!({ "status": { "phase": "Bound" }, "metadata": {} });
        check("", "persistentvolumeclaims", &claim, &[("Status", json!("Bound"))]);
        claim["metadata"]["deletionTimestamp"] = json!("2024-01-31T11:59:30Z");
        check("", "persistentvolumeclaims", &claim, &[("Status", json!("Terminating"))]);
    }
}
