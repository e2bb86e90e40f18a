//! Tells clients which groups, versions and kinds there are: one document at a time, or all in two.
//!
//! A client that asks for the aggregated form believes it only if the answer's content type repeats the
//! parameters, and only if `/api` and `/apis` both do. So [`OFFER`] is the same for both, and the content
//! type of the [`Form`](crate::negotiation::Form) goes with every answer. Where a version of the aggregated
//! form is asked for here and there is none, the plain form is meant.

use crate::negotiation::{Answer, DiscoveryVersion, Media, Offer};
use crate::registry::{Group, GroupVersion, Kind, Registry, join_api_version};
use serde_json::{Map, Value, json};

const AGGREGATED_GROUP: &str = "apidiscovery.k8s.io";

/// What `/api` and `/apis` can be given in.
pub const OFFER: Offer<'static> = Offer { answer: Answer::Discovery, whole: &[Media::Json], metadata: &[] };

/// Of every document here, with its quotes: what a document says is a matter of the registry and of its form.
pub fn etag(registry: &Registry, form: Option<DiscoveryVersion>) -> String {
    let form = form.map_or("", DiscoveryVersion::as_str);
    format!("\"{}{form}\"", registry.hash())
}

/// `/api`
pub fn core(registry: &Registry, form: Option<DiscoveryVersion>) -> Value {
    match form {
        Some(version) => aggregated(registry.group("").into_iter(), version),
        None => {
            let versions: Vec<&str> = registry.group("").into_iter().flat_map(versions_of).collect();
            json!({ "kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": [] })
        }
    }
}

/// `/apis`
pub fn groups(registry: &Registry, form: Option<DiscoveryVersion>) -> Value {
    let named = registry.groups().iter().filter(|group| !group.name.is_empty());
    match form {
        Some(version) => aggregated(named, version),
        None => {
            let groups: Vec<Value> = named.map(group_fields).map(Value::Object).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
    }
}

/// `/apis/<group>`
pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut fields = group_fields(registry.group(name).filter(|group| !group.name.is_empty())?);
    fields.insert("kind".to_owned(), json!("APIGroup"));
    fields.insert("apiVersion".to_owned(), json!("v1"));
    Some(Value::Object(fields))
}

/// `/api/v1`, `/apis/<group>/<version>`: these have the plain form only.
pub fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.group_version(group, version)?.kinds();
    let resources: Vec<Value> = kinds.flat_map(|kind| resource_entries(kind)).collect();
    let group_version = join_api_version(group, version);
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn versions_of(group: &Group) -> impl Iterator<Item = &str> {
    group.versions.iter().map(|each| each.version.as_str())
}

fn group_fields(group: &Group) -> Map<String, Value> {
    let versions: Vec<Value> = versions_of(group)
        .map(|version| json!({ "groupVersion": join_api_version(&group.name, version), "version": version }))
        .collect();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(group.name));
    // A group without a version does not come to be: its first kind brings one.
    fields.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
    fields.insert("versions".to_owned(), Value::Array(versions));
    fields
}

/// The resource, and its subresources as `plural/status`.
fn resource_entries(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.is_namespaced(),
        "kind": kind.kind, "verbs": kind.verbs,
    });
    add_names(&mut main, kind);
    let mut entries = vec![main];
    for name in kind.subresources.names() {
        let mut entry = json!({
            "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.is_namespaced(),
            "kind": kind.kind, "verbs": subresource_verbs(name),
        });
        if let Some((group, version, kind)) = made_by(name) {
            entry["kind"] = json!(kind);
            if !group.is_empty() {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
        }
        entries.push(entry);
    }
    entries
}

fn add_names(entry: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
}

fn subresource_verbs(name: &str) -> &'static [&'static str] {
    match name {
        "finalize" => &["update"],
        "binding" | "eviction" => &["create"],
        _ => &["get", "patch", "update"],
    }
}

/// The group, version and kind of what a subresource is told in, if that is not the kind itself.
fn made_by(subresource: &str) -> Option<(&'static str, &'static str, &'static str)> {
    match subresource {
        "scale" => Some(("autoscaling", "v1", "Scale")),
        "binding" => Some(("", "v1", "Binding")),
        "eviction" => Some(("policy", "v1", "Eviction")),
        _ => None,
    }
}

fn aggregated<'a>(groups: impl Iterator<Item = &'a Group>, version: DiscoveryVersion) -> Value {
    let items: Vec<Value> = groups
        .map(|group| {
            let versions: Vec<Value> =
                group.versions.iter().map(|version| aggregated_version(&group.name, version)).collect();
            // The core group has no name, and leaves it out.
            let metadata = if group.name.is_empty() { json!({}) } else { json!({ "name": group.name }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("{AGGREGATED_GROUP}/{}", version.as_str()),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_version(group: &str, version: &GroupVersion) -> Value {
    let resources: Vec<Value> = version.kinds().map(|kind| aggregated_resource(group, kind)).collect();
    json!({ "version": version.version, "freshness": "Current", "resources": resources })
}

fn aggregated_resource(group: &str, kind: &Kind) -> Value {
    let response =
        |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let own = response(group, &kind.version, &kind.kind);
    let mut resource = json!({
        "resource": kind.plural, "responseKind": own, "scope": format!("{:?}", kind.scope),
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    add_names(&mut resource, kind);
    let subresources: Vec<Value> = kind
        .subresources
        .names()
        .into_iter()
        .map(|name| {
            let kind = made_by(name)
                .map_or_else(|| own.clone(), |(group, version, kind)| response(group, version, kind));
            json!({ "subresource": name, "responseKind": kind, "verbs": subresource_verbs(name) })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = Value::Array(subresources);
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::negotiation::negotiate;

    fn entry<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
        let found = list.as_array().expect("a list").iter().find(|each| each[field] == name);
        found.expect(name)
    }

    #[test]
    fn the_form_is_chosen_by_the_first_clause_that_can_be_served() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let v2beta1 = "application/json;v=v2beta1;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
        for (accept, form) in [
            ("", None),
            ("*/*", None),
            ("application/json", None),
            ("application/json, */*", None),
            (v2, Some(DiscoveryVersion::V2)),
            (v2beta1, Some(DiscoveryVersion::V2Beta1)),
            (&format!("{v2},{v2beta1},application/json"), Some(DiscoveryVersion::V2)),
            ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", None),
            ("application/vnd.kubernetes.protobuf, application/json;q=0.5", None),
        ] {
            assert_eq!(negotiate(accept, &OFFER).map(|form| form.aggregated()), Ok(form), "{accept}");
        }
        assert_eq!(negotiate("text/html", &OFFER).expect_err("not served").code(), 406);
        assert_eq!(negotiate(v2, &OFFER).map(|form| form.content_type()), Ok(v2));
    }

    #[test]
    fn the_plain_index() {
        let registry = Registry::built_in();
        let core = core(&registry, None);
        assert_eq!(core["versions"], json!(["v1"]));
        let groups = groups(&registry, None);
        let apps = entry(&groups["groups"], "name", "apps");
        assert_eq!(apps["preferredVersion"], json!({ "groupVersion": "apps/v1", "version": "v1" }));
        assert!(groups["groups"].as_array().expect("a list").iter().all(|group| group["name"] != ""));
        assert_eq!(group(&registry, "apps").expect("there")["kind"], "APIGroup");
        assert_eq!(group(&registry, ""), None);
        assert_eq!(group(&registry, "nowhere"), None);
    }

    #[test]
    fn resources_and_their_subresources() {
        let registry = Registry::built_in();
        let list = resources(&registry, "apps", "v1").expect("there");
        assert_eq!(list["groupVersion"], "apps/v1");
        let deployment = entry(&list["resources"], "name", "deployments");
        assert_eq!(
            (&deployment["singularName"], &deployment["kind"]),
            (&json!("deployment"), &json!("Deployment"))
        );
        assert_eq!(
            (&deployment["shortNames"], &deployment["namespaced"]),
            (&json!(["deploy"]), &json!(true))
        );
        assert_eq!(deployment["verbs"].as_array().expect("verbs").len(), 8);
        let scale = entry(&list["resources"], "name", "deployments/scale");
        assert_eq!((&scale["group"], &scale["kind"]), (&json!("autoscaling"), &json!("Scale")));
        let core = resources(&registry, "", "v1").expect("there");
        assert_eq!(core["groupVersion"], "v1");
        assert_eq!(entry(&core["resources"], "name", "namespaces/finalize")["verbs"], json!(["update"]));
        assert_eq!(resources(&registry, "apps", "v2"), None);
    }

    #[test]
    fn the_aggregated_form_says_the_same_as_the_plain_one() {
        let registry = Registry::built_in();
        let form = Some(DiscoveryVersion::V2);
        let mut items = core(&registry, form)["items"].as_array().expect("items").clone();
        items.extend(groups(&registry, form)["items"].as_array().expect("items").clone());
        let mut seen = 0;
        for item in &items {
            let group = item["metadata"]["name"].as_str().unwrap_or_default();
            for version in item["versions"].as_array().expect("versions") {
                assert_eq!(version["freshness"], "Current");
                let name = version["version"].as_str().expect("a name");
                let plain = resources(&registry, group, name).expect("both");
                for resource in version["resources"].as_array().expect("resources") {
                    let other =
                        entry(&plain["resources"], "name", resource["resource"].as_str().expect("named"));
                    assert_eq!(resource["verbs"], other["verbs"]);
                    assert_eq!(resource["responseKind"]["kind"], other["kind"]);
                    assert_eq!(resource["scope"] == "Namespaced", other["namespaced"] == true);
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, registry.kinds().count());
        assert_ne!(etag(&registry, form), etag(&registry, None));
        let v2beta1 = core(&registry, Some(DiscoveryVersion::V2Beta1));
        assert_eq!(v2beta1["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    }
}
