//! Cells of services, endpoints and ingresses.

use super::look::{NONE, UNKNOWN, list, number, some_of, text, texts};
use serde_json::Value;
use std::collections::BTreeSet;

const SHOWN_MAX: usize = 3;
const LOAD_BALANCER_CHARS_MAX: usize = 16;

pub fn service_external_ip(service: &Value) -> String {
    let external: Vec<&str> = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let balancers = load_balancer(service);
            let all: Vec<&str> = Some(balancers.as_str())
                .into_iter()
                .filter(|text| !text.is_empty())
                .chain(external)
                .collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Addresses, or names where there are none; cut, since a column is narrow.
pub fn load_balancer(object: &Value) -> String {
    let addresses: BTreeSet<&str> =
        list(object, "/status/loadBalancer/ingress")
            .iter()
            .map(|ingress| {
                if text(ingress, "/ip").is_empty() {
                    text(ingress, "/hostname")
                } else {
                    text(ingress, "/ip")
                }
            })
            .filter(|address| !address.is_empty())
            .collect();
    let all = addresses.into_iter().collect::<Vec<_>>().join(",");
    if all.chars().count() <= LOAD_BALANCER_CHARS_MAX {
        return all;
    }
    let cut: String = all.chars().take(LOAD_BALANCER_CHARS_MAX - 3).collect();
    format!("{cut}...")
}

/// `80/TCP,443:30443/TCP`
pub fn service_ports(service: &Value) -> String {
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let (number_of, node) = (number(port, "/port"), number(port, "/nodePort"));
        let protocol = if text(port, "/protocol").is_empty() { "TCP" } else { text(port, "/protocol") };
        if node > 0 { format!("{number_of}:{node}/{protocol}") } else { format!("{number_of}/{protocol}") }
    });
    let ports: Vec<String> = ports.collect();
    if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }
}

pub fn endpoints(object: &Value) -> String {
    let mut shown = Vec::new();
    let mut count = 0;
    for subset in list(object, "/subsets") {
        let (addresses, ports) = (texts(list(subset, "/addresses"), "/ip"), list(subset, "/ports"));
        // Only as many are made as are shown: the product of the two can be large.
        count += addresses.len() * ports.len().max(1);
        if ports.is_empty() {
            shown.extend(addresses.iter().take(SHOWN_MAX).map(|address| (*address).to_owned()));
        }
        for port in ports.iter().take(SHOWN_MAX) {
            let number = number(port, "/port");
            shown.extend(addresses.iter().take(SHOWN_MAX).map(|address| join(address, number)));
        }
        shown.truncate(SHOWN_MAX);
    }
    match count {
        0 => NONE.to_owned(),
        count if count > SHOWN_MAX => format!("{} + {} more...", shown.join(","), count - SHOWN_MAX),
        _ => shown.join(","),
    }
}

fn join(address: &str, port: i64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

pub fn slice_ports(slice: &Value) -> String {
    let ports: Vec<String> = list(slice, "/ports")
        .iter()
        .map(|port| match (port.get("port").and_then(Value::as_i64), text(port, "/name")) {
            (Some(number), _) => number.to_string(),
            (None, "") => "*".to_owned(),
            (None, name) => name.to_owned(),
        })
        .collect();
    some_of(&ports, SHOWN_MAX, "<unset>")
}

pub fn slice_endpoints(slice: &Value) -> String {
    let endpoints = list(slice, "/endpoints").iter();
    let addresses: Vec<&str> =
        endpoints.flat_map(|endpoint| list(endpoint, "/addresses")).filter_map(Value::as_str).collect();
    some_of(&addresses, SHOWN_MAX, "<unset>")
}

pub fn ingress_class(ingress: &Value) -> String {
    let class = text(ingress, "/spec/ingressClassName");
    if !class.is_empty() {
        return class.to_owned();
    }
    let older = ingress.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let older = older.and_then(|all| all.get("kubernetes.io/ingress.class")).and_then(Value::as_str);
    older.unwrap_or(NONE).to_owned()
}

pub fn ingress_hosts(ingress: &Value) -> String {
    some_of(&texts(list(ingress, "/spec/rules"), "/host"), SHOWN_MAX, "*")
}

pub fn ingress_ports(ingress: &Value) -> &'static str {
    if list(ingress, "/spec/tls").is_empty() { "80" } else { "80, 443" }
}

/// `IngressParameters.example.com/name`
pub fn class_parameters(class: &Value) -> String {
    let Some(parameters) = class.pointer("/spec/parameters").filter(|value| value.is_object()) else {
        return NONE.to_owned();
    };
    let group = text(parameters, "/apiGroup");
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use serde_json::json;

    #[test]
    fn services_by_their_type() {
        for (spec, status, external) in [
            (json!({ "type": "ClusterIP" }), json!({}), "<none>"),
            (
                json!({ "type": "NodePort", "externalIPs": ["1.1.1.1", "2.2.2.2"] }),
                json!({}),
                "1.1.1.1,2.2.2.2",
            ),
            (json!({ "type": "LoadBalancer" }), json!({}), "<pending>"),
            (
                json!({ "type": "LoadBalancer" }),
                json!({ "loadBalancer": { "ingress": [{ "ip": "9.9.9.9" }] } }),
                "9.9.9.9",
            ),
            (json!({ "type": "ExternalName", "externalName": "x.org" }), json!({}), "x.org"),
            (json!({}), json!({}), "<unknown>"),
        ] {
            let service = json!({ "spec": spec, "status": status });
            check(
                "",
                "services",
                &service,
                &[("External-IP", json!(external)), ("Cluster-IP", json!("<none>"))],
            );
        }
        let ports =
            json!([{ "port": 80, "protocol": "TCP" }, { "port": 53, "protocol": "UDP", "nodePort": 30053 }]);
        let service = json!({ "spec": { "ports": ports, "selector": { "app": "web", "b": "c" } } });
        let expected = [("Port(s)", json!("80/TCP,53:30053/UDP")), ("Selector", json!("app=web,b=c"))];
        check("", "services", &service, &expected);
    }

    #[test]
    fn endpoints_are_cut_after_three() {
        let addresses = json!([{ "ip": "10.0.0.1" }, { "ip": "fd00::2" }]);
        let object =
            json!({ "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }, { "port": 81 }] }] });
        let shown = json!("10.0.0.1:80,[fd00::2]:80,10.0.0.1:81 + 1 more...");
        check("", "endpoints", &object, &[("Endpoints", shown)]);
        let headless = json!({ "subsets": [{ "addresses": addresses }] });
        check("", "endpoints", &headless, &[("Endpoints", json!("10.0.0.1,fd00::2"))]);
        check("", "endpoints", &json!({}), &[("Endpoints", json!("<none>"))]);
        let slice = json!({ "ports": [{ "port": 80 }, { "name": "x" }, {}], "endpoints": [{ "addresses": ["a", "b"] }] });
        let expected = [("Ports", json!("80,x,*")), ("Endpoints", json!("a,b"))];
        check("discovery.k8s.io", "endpointslices", &slice, &expected);
    }

    #[test]
    fn an_ingress_and_where_it_leads_from() {
        let hosts = json!([{ "host": "a" }, { "host": "b" }, {}, { "host": "c" }, { "host": "d" }]);
        let status = json!({ "loadBalancer": { "ingress": [{ "hostname": "very-long-name.example.com" }] } });
        let object = json!({ "spec": { "rules": hosts, "tls": [{}] }, "status": status });
        check(
            "networking.k8s.io",
            "ingresses",
            &object,
            &[
                ("Class", json!("<none>")),
                ("Hosts", json!("a,b,c + 1 more...")),
                ("Ports", json!("80, 443")),
                ("Address", json!("very-long-nam...")),
            ],
        );
        check("networking.k8s.io", "ingresses", &json!({}), &[("Hosts", json!("*")), ("Ports", json!("80"))]);
    }
}
